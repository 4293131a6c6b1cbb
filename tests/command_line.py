"""``op-profiler`` as a user calls it, without the seconds that its imports take: see `zygote.py`."""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from .nursery import Nursery

ROOT = Path(__file__).resolve().parents[1]
_PREPARED = ("relay", "relax")  # compilers whose commands are forked; the first one is the default
_PATIENCE_SECONDS = 600.0  # no command needs a tenth of it, also where others use the machine


def op_profiler(
    *arguments: str,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    libraries: Sequence[str] = (),
    without: Sequence[str] = (),
    in_workers: str = "",
) -> subprocess.CompletedProcess[str]:
    """Run one command line in a process of its own, forked from one that has imported the package and TVM.

    Where the start of Python is the point (what is imported, `sys.path`, a hook), start Python itself.

    Args:
        folder: that it runs in; this process's by default.
        environment: changes to this process's.
        libraries: further modules that it will need, imported once for all commands after it.
        without: modules that it finds not installed.
        in_workers: code that its worker processes run first, such as a function of the package that is replaced.

    Raises:
        TimeoutExpired: it did not end.
    """
    compiler = _compiler_of(arguments)
    zygote, _ = _zygote(compiler if compiler in _PREPARED else _PREPARED[0])
    assert zygote.stdin is not None and zygote.stdout is not None
    with tempfile.TemporaryDirectory() as outputs:
        out, err = Path(outputs, "out"), Path(outputs, "err")
        order = {
            "arguments": arguments,
            "folder": str(folder or Path.cwd()),
            "environment": {**os.environ, "PYTHONPATH": str(ROOT / "python"), **(environment or {})}
            | {"OP_PROFILER_TESTS_IN_WORKERS": in_workers}
            | ({"OP_PROFILER_COMPILER": compiler} if compiler in _PREPARED[1:] else {}),
            "libraries": list(libraries),
            "without": list(without),
            # A hook on the path, and another build of TVM, need a Python that starts.
            "forks_workers": "PYTHONPATH" not in (environment or {})
            and compiler in _PREPARED
            and not any("cuda" in argument for argument in arguments),
            "out": str(out),
            "err": str(err),
            "seconds": _PATIENCE_SECONDS,
        }
        zygote.stdin.write(json.dumps(order) + "\n")
        zygote.stdin.flush()
        code = json.loads(zygote.stdout.readline())
        texts = [file.read_text(errors="replace") for file in (out, err)]
    if code is None:
        raise subprocess.TimeoutExpired(["op-profiler", *arguments], _PATIENCE_SECONDS, *texts)
    return subprocess.CompletedProcess(["op-profiler", *arguments], code, *texts)


def _compiler_of(arguments: Sequence[str]) -> str:
    """The one whose TVM a command will use."""
    words = " ".join(arguments).replace("--compiler=", "--compiler ").split()
    return words[words.index("--compiler") + 1] if "--compiler" in words[:-1] else _PREPARED[0]


@contextlib.contextmanager
def forked_workers() -> Iterator[None]:
    """Collections of this process have their workers forked, as those of commands have. They measure in a hurry."""
    from op_profiler.collection import worker_process

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker_process, "subprocess", _zygote(_PREPARED[0])[1])
        yield


@functools.cache
def _zygote(compiler: str) -> tuple[subprocess.Popen[str], Nursery]:
    """One a process of the tests and a compiler, whose TVM it holds; and the nursery for this process."""
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("zygote.py")), str(theirs.fileno())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=[theirs.fileno()],
            env={**os.environ, "PYTHONPATH": str(ROOT / "python"), "OP_PROFILER_COMPILER": compiler},
            text=True,
        )
    nursery = Nursery(ours)
    atexit.register(process.communicate)  # closes its input, which ends it
    atexit.register(nursery.close)  # first
    return process, nursery
