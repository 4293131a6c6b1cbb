"""Processes that are forked from one that has imported what they need (`zygote.py`)."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NoReturn

ZYGOTES = "OP_PROFILER_TESTS_ZYGOTES"
"""Environment variable: the folder with a socket of each process that others are forked from."""
STAND_INS = "OP_PROFILER_TESTS_STAND_INS"
"""Environment variable of processes that tests start: those that they start stand in for forked ones (`stand_in`)."""
BEFORE = "OP_PROFILER_TESTS_IN_WORKERS"
"""Environment variable: code that worker processes of a collection run first."""
COMPILERS = ("relay", "relax")
"""For each there is a process with its TVM."""


class Zygotes:
    """The processes that others are forked from. They begin with their imports when the first one is asked for."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="op-zygotes-"))
        os.environ[ZYGOTES] = str(self._folder)
        self._processes = [self._started(compiler) for compiler in COMPILERS]

    def _started(self, compiler: str) -> subprocess.Popen[bytes]:
        own = {name: str(self._folder / "own") for name in ("OP_PROFILER_CACHE", "OP_PROFILER_LOCKS")}
        path = {"PYTHONPATH": str(Path(__file__).parents[1] / "python"), "OP_PROFILER_COMPILER": compiler}
        log = self._folder / f"{compiler}.log"
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening, log.open("w") as said:
            listening.bind(str(self._folder / compiler))
            listening.listen(64)
            return subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name("zygote.py")), str(listening.fileno())],
                stdin=subprocess.PIPE,
                stdout=said,
                stderr=said,
                pass_fds=[listening.fileno()],
                env={**os.environ, **own, **path},
                start_new_session=True,  # Ctrl-C is for who asks
            )

    def end(self) -> None:
        for process in self._processes:
            process.communicate()  # closes its input, which ends it
        shutil.rmtree(self._folder)
        del os.environ[ZYGOTES]


class Forked:
    """A process that was forked. It is killed where this one ends first.

    Args:
        code: that it runs, as ``python -c`` does.
        argv: its ``sys.argv``.
        files: by the number that they have there, its open files.
        compiler: whose TVM it has.
        libraries: further modules that it will need, imported once for all after it.
        without: modules that it finds not installed.
        before: code that it runs first.
        forks_workers: whether the worker processes of its collections are forked, too.
        most_bytes: of addresses, the limit and the highest one; by default those of this process.

    Attributes:
        pid: of the process.
        stdin: where its standard input is written, if that is a pipe.
    """

    def __init__(
        self,
        code: str,
        argv: Sequence[str],
        files: Mapping[int, int],
        *,
        compiler: str = COMPILERS[0],
        folder: Path | None = None,
        environment: Mapping[str, str] | None = None,
        libraries: Sequence[str] = (),
        without: Sequence[str] = (),
        before: str = "",
        forks_workers: bool = False,
        most_bytes: tuple[int, int] | None = None,
    ) -> None:
        self.stdin: IO[bytes] | None = None
        self._code: int | None = None
        self._answers = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._zygote = Path(os.environ[ZYGOTES], compiler)
        try:
            self._answers.connect(str(self._zygote))
        except ConnectionRefusedError:
            raise self._gone() from None
        order = {
            "code": code,
            "argv": list(argv),
            "files": list(files),
            "folder": str(folder or Path.cwd()),
            "environment": dict(os.environ if environment is None else environment),
            "libraries": list(libraries),
            "without": list(without),
            "before": before,
            "forks_workers": forks_workers,
            "most_bytes": most_bytes or resource.getrlimit(resource.RLIMIT_AS),
        }
        socket.send_fds(self._answers, [json.dumps(order).encode()], list(files.values()))
        self.pid = self._told()

    def _told(self) -> int:
        try:
            told = self._answers.recv(64)
        except ConnectionResetError:  # it had not been accepted
            told = b""
        if not told:
            raise self._gone()
        return int(told)

    def _gone(self) -> ConnectionError:
        return ConnectionError(f"what forks processes is gone: {self._zygote.with_suffix('.log').read_text()}")

    def kill(self) -> None:
        if self._code is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def wait(self, seconds: float | None = None) -> int:
        """Its exit code, less than 0 for a signal.

        Raises:
            TimeoutError: it has not ended; it is killed.
        """
        if self._code is None:
            self._answers.settimeout(seconds)
            try:
                self._code = self._told()
            finally:
                self._answers.close()
        return self._code


class Nursery:
    """Stands in the place of the module `subprocess` where Python is started to run code.

    Args:
        compiler: whose TVM the processes have.
    """

    PIPE, STDOUT, DEVNULL = subprocess.PIPE, subprocess.STDOUT, subprocess.DEVNULL

    def __init__(self, compiler: str = COMPILERS[0]) -> None:
        self._compiler = compiler

    def Popen(  # noqa: N802
        self, command: list[str], *, stdout: IO[str] | int, env: dict[str, str], pass_fds: Sequence[int] = (), **_: Any
    ) -> Forked:
        """With a pipe for its input, and one file for all that it prints; with `DEVNULL`, for its errors only."""
        given, ours = os.pipe()
        with open(os.devnull, "wb") as nowhere:
            out, err = (nowhere.fileno(), 2) if isinstance(stdout, int) else (stdout.fileno(), stdout.fileno())
            process = self._forked(command, {0: given, 1: out, 2: err, **{fd: fd for fd in pass_fds}}, env)
        os.close(given)
        process.stdin = os.fdopen(ours, "wb")
        return process

    def _forked(self, command: list[str], files: Mapping[int, int], env: dict[str, str]) -> Forked:
        _, _, code, *arguments = command
        before = env.get(BEFORE, "")
        return Forked(code, ["-c", *arguments], files, compiler=self._compiler, environment=env, before=before)


def forked_child(compiler: str = COMPILERS[0]) -> type[Any]:
    """`Child` of the package, forked."""
    from op_profiler.child_processes import Child

    class ForkedChild(Child):
        def _start(self, command: list[str], **how: Any) -> Any:
            return Nursery(compiler).Popen(command, **how)

    return ForkedChild


def stand_in() -> NoReturn:
    """In a Python that was started to run code or a module: have a forked process do that, and end as it does.

    To those who started it, this is the process: what is sent to it is sent on, and the other one dies with it.
    """
    option = next(word for word in sys.orig_argv if word in ("-c", "-m"))
    _, code, *arguments = sys.orig_argv[sys.orig_argv.index(option) :]
    if option == "-m":
        code = f"import runpy; runpy.run_module({code!r}, run_name='__main__', alter_sys=True)"
    if "op_profiler" in code:  # as what is started so does; others are told by a pipe
        from op_profiler.child_processes import end_with_parent

        end_with_parent()
    files = {fd: fd for fd in map(int, os.listdir("/proc/self/fd")) if _is_handed_down(fd)}
    process = Forked(code, ["-c", *arguments], files, compiler=os.environ[STAND_INS])
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: os.kill(process.pid, number))
    for fd in files:
        os.close(fd)  # who reads waits for the other process only
    ended = process.wait()
    if ended < 0:
        with contextlib.suppress(OSError):  # what cannot be caught
            signal.signal(-ended, signal.SIG_DFL)
        os.kill(os.getpid(), -ended)
    os._exit(ended)


def _is_handed_down(fd: int) -> bool:
    try:
        return os.get_inheritable(fd)
    except OSError:  # that of the list itself
        return False
