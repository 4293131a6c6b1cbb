"""Finds and runs the C compiler of this machine."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Sequence

from op_profiler.errors import MeasureError

_FLAGS = ("-O2", "-shared", "-fPIC", "-pthread")


def compiler(needed_for: str = "running a plan") -> list[str]:
    """Return the command of a C compiler with its flags for a shared library.

    The command is the value of ``CC``, which may contain arguments (``ccache gcc``); if ``CC`` is not set, it is the
    first of cc, gcc and clang that is installed.

    Args:
        needed_for: what needs the compiler, for the error message.

    Raises:
        MeasureError: no C compiler is installed, or ``CC`` is not a command.
    """
    asked = os.environ.get("CC", "").strip()
    try:
        command = shlex.split(asked) or [name for name in ("cc", "gcc", "clang") if shutil.which(name)][:1]
    except ValueError as error:
        raise MeasureError(f"CC is {asked!r}, which is no command: {error}") from error
    if not command:
        raise MeasureError(f"{needed_for} needs a C compiler: install gcc or clang, or let CC name one")
    if shutil.which(command[0]) is None:
        raise MeasureError(f"CC is {asked!r}, but there is no {command[0]}: install it, or let CC name a C compiler")
    return [*command, *_FLAGS]


def check_cpp_compiler(needed_for: str) -> None:
    """Check that the C++ compiler that torch uses is installed: ``CXX``, or g++ if ``CXX`` is not set.

    Args:
        needed_for: what needs the compiler, for the error message.

    Raises:
        MeasureError: the C++ compiler is not installed.
    """
    command = os.environ.get("CXX", "").split() or ["g++"]
    if shutil.which(command[0]) is None:
        raise MeasureError(f"{needed_for} needs a C++ compiler, and there is no {command[0]}: install g++, or set CXX")


def make_library(
    path: str, files: Sequence[str], options: Sequence[str] = (), *, needed_for: str = "running a plan"
) -> None:
    """Create a shared library from C sources or object files; TVM calls this function to export kernels.

    Args:
        path: path of the library.
        files: sources or object files.
        options: further options of the compiler.
        needed_for: what needs the compiler, for the error message.

    Raises:
        MeasureError: no C compiler is installed, or compiling fails.
    """
    command = compiler(needed_for)
    done = subprocess.run([*command, "-o", path, *files, *options], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise MeasureError(f"{shlex.join(command)} cannot compile {', '.join(files)}: {done.stderr.strip()[-500:]}")
