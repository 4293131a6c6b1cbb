"""A process that has imported what commands need, and forks one for each command line that it reads.

A command then takes milliseconds instead of seconds, and is a process of its own: what crashes, hangs or asks for too
much memory is one command. One line of JSON in (see `command_line.py`), the exit code out.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import pkgutil
import resource
import signal
import sys
import time
import traceback
from collections.abc import Iterable
from typing import Any

_ALWAYS = ("numpy", "sqlalchemy.dialects.sqlite", "rich.table")
_MOST_BYTES = 24 << 30  # of addresses; what asks for more gets a MemoryError, as on a machine that is full


def load_package() -> None:
    import op_profiler
    from op_profiler.compilers.tvm_build import load_tvm

    load_tvm()
    for module in pkgutil.walk_packages(op_profiler.__path__, "op_profiler."):
        if not module.name.endswith(".preload"):  # it changes the environment
            with contextlib.suppress(ImportError):  # of an extra that is not installed
                importlib.import_module(module.name)
    load(_ALWAYS)


def load(libraries: Iterable[str]) -> None:
    """Import what is not there yet and is installed."""
    missing = [name for name in libraries if name not in sys.modules]
    for name in missing:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    if missing:
        gc.collect()
        gc.freeze()  # else a collection in a child copies all of this


def command(order: dict[str, Any]) -> None:
    """In the child: what the console script does."""
    os.setsid()
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_BYTES, _MOST_BYTES))
    os.chdir(order["folder"])
    os.environ.clear()
    os.environ.update(order["environment"])
    for descriptor, name in ((0, os.devnull), (1, order["out"]), (2, order["err"])):
        flags = os.O_RDONLY if descriptor == 0 else os.O_WRONLY | os.O_CREAT
        os.dup2(os.open(name, flags), descriptor)
    sys.argv = ["op-profiler", *order["arguments"]]
    from op_profiler.cli import main

    code = 0
    try:
        main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def wait(child: int, seconds: float) -> int | None:
    """Its exit code, less than 0 for a signal; None where it was still running, and was ended."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def serve() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    load_package()
    for line in sys.stdin:
        order = json.loads(line)
        load(order["libraries"])
        child = os.fork()
        if child == 0:
            command(order)
        answers.write(json.dumps(wait(child, order["seconds"])) + "\n")
        answers.flush()


if __name__ == "__main__":
    serve()
