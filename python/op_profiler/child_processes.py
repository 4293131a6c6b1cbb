"""What processes that this one starts have to know, and what they tell."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import op_profiler
from op_profiler.errors import EXIT_ENVIRONMENT

_PR_SET_PDEATHSIG = 1


def python_path() -> str:
    """A ``PYTHONPATH`` with which they import this very package, whether it is installed or lies in a source tree."""
    ours = str(Path(op_profiler.__file__).resolve().parent.parent)
    others = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    return os.pathsep.join(dict.fromkeys([ours, *others]))


def end_with_parent(by: signal.Signals = signal.SIGKILL) -> None:
    """A process that is killed takes this one along; ends this one where that happens meanwhile. On Linux only.

    One that was killed before has left closed pipes, at which whoever it started ends. Process 1 is a parent like any
    other: a container may run nothing but us.

    Args:
        by: the signal that this one gets then.
    """
    if sys.platform == "linux":
        parent = os.getppid()
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, by)
        if os.getppid() != parent:
            sys.exit(EXIT_ENVIRONMENT)


def events_of(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """What a process tells, one JSON object a line, until it ends; without half a line, over which it died."""
    for line in lines:
        if line.endswith(b"\n"):
            yield json.loads(line)
