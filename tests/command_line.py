"""``op-profiler`` as a user calls it, without the seconds that its imports take: see `zygote.py`."""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from .nursery import BEFORE, COMPILERS, Forked, forked_child

ROOT = Path(__file__).resolve().parents[1]
_MAIN = "import sys; from op_profiler.cli import main; sys.exit(main())"
_PATIENCE_SECONDS = 600.0  # no command needs a tenth of it, also where others use the machine
_MOST_BYTES = 24 << 30  # of addresses; what asks for more gets a MemoryError, as on a machine that is full


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
    line, compiler = ["op-profiler", *arguments], _compiler_of(arguments)
    # A hook on the path, and another build of TVM, need a Python that starts.
    needs_python = "PYTHONPATH" in (environment or {}) or any("cuda" in argument for argument in arguments)
    with tempfile.TemporaryDirectory() as outputs:
        out, err = Path(outputs, "out"), Path(outputs, "err")
        with open(os.devnull, "rb") as nothing, out.open("wb") as to_out, err.open("wb") as to_err:
            process = Forked(
                _MAIN,
                line,
                {0: nothing.fileno(), 1: to_out.fileno(), 2: to_err.fileno()},
                compiler=compiler if compiler in COMPILERS else COMPILERS[0],
                folder=folder,
                environment={**os.environ, "PYTHONPATH": str(ROOT / "python"), **(environment or {})}
                | {BEFORE: in_workers}
                | ({"OP_PROFILER_COMPILER": compiler} if compiler in COMPILERS[1:] else {}),
                libraries=libraries,
                without=without,
                forks_workers=compiler in COMPILERS and not needs_python,
                most_bytes=(_MOST_BYTES, resource.getrlimit(resource.RLIMIT_AS)[1]),
            )
        try:
            code: int | None = process.wait(_PATIENCE_SECONDS)
        except TimeoutError:
            code = None
        texts = [file.read_text(errors="replace") for file in (out, err)]
    if code is None:
        raise subprocess.TimeoutExpired(line, _PATIENCE_SECONDS, *texts)
    return subprocess.CompletedProcess(line, code, *texts)


def _compiler_of(arguments: Sequence[str]) -> str:
    """The one whose TVM a command will use."""
    words = " ".join(arguments).replace("--compiler=", "--compiler ").split()
    return words[words.index("--compiler") + 1] if "--compiler" in words[:-1] else COMPILERS[0]


@contextlib.contextmanager
def forked_workers() -> Iterator[None]:
    """Collections of this process have their workers forked, as those of commands have. They measure in a hurry."""
    from op_profiler.collection import worker_process

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker_process, "Child", forked_child())
        yield
