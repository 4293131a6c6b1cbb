"""What processes that this one starts have to know."""

from __future__ import annotations

import os
from pathlib import Path

import op_profiler


def python_path() -> str:
    """A ``PYTHONPATH`` with which they import this very package, whether it is installed or lies in a source tree."""
    ours = str(Path(op_profiler.__file__).resolve().parent.parent)
    others = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    return os.pathsep.join(dict.fromkeys([ours, *others]))
