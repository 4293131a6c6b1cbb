#!/usr/bin/env python3
"""Collect an operator performance dataset: the same as ``op-profiler collect``; ``--help`` lists the options."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path


def main() -> None:
    """Run the collector of the installed package, or of the source tree that this script lies in."""
    if importlib.util.find_spec("op_profiler") is None:
        sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "python"))
    try:
        from op_profiler.cli import collector_main
    except ModuleNotFoundError as error:
        sys.exit(f"error: the Python package {error.name!r} is not installed. Install it with: source ./env_var.sh")
    collector_main()


if __name__ == "__main__":
    main()
