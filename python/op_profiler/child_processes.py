"""Starts child processes of this package, sends them tasks, and receives their events."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import shlex
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, TypeVar, cast

import msgspec

import op_profiler
from op_profiler.addresses import without_password
from op_profiler.errors import EXIT_ENVIRONMENT, EXIT_MODEL, ModelError, OpProfilerError

_PR_SET_PDEATHSIG = 1
COMMAND = "OP_PROFILER_COMMAND"
"""Variable of child processes with the `public_command` for which they work."""
_Task = TypeVar("_Task")


def python_path() -> str:
    """Return a ``PYTHONPATH`` with which child processes import the same copy of this package as this process."""
    ours = str(Path(op_profiler.__file__).resolve().parent.parent)
    others = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    return os.pathsep.join(dict.fromkeys([ours, *others]))


def end_with_parent(by: signal.Signals = signal.SIGKILL) -> None:
    """Make Linux end this process as soon as its parent ends; on other systems, do nothing.

    If the parent ended before this call, its pipes are closed, and this process ends at its next access to them. A
    parent with process number 1 does not count as ended: in a container, process 1 may have started this process.

    Args:
        by: signal that this process receives when its parent ends.
    """
    if sys.platform == "linux":
        parent = os.getppid()
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, by)
        if os.getppid() != parent:
            sys.exit(EXIT_ENVIRONMENT)


def public_command() -> str:
    """Return the user's command for which this process works, as shown to processes that wait for this process.

    Passwords are removed, because every user may read the text.
    """
    words = map(without_password, sys.argv[1:])
    return os.environ.get(COMMAND) or f"process {os.getpid()} ({shlex.join([Path(sys.argv[0]).name, *words])})"


def _program(module: str) -> str:
    # Python looks for modules in the current folder first; a torch.py that lies there by chance is not the library.
    return f"import sys; del sys.path[0]; from {module} import main; sys.exit(main())"


class Child:
    """A process that carries out one task. As a context manager, it kills the process at the end.

    The task is written to the standard input of the process, as JSON. Its events come through a separate pipe, one JSON
    object per line, each written before the next step begins, so the last event names the step that a crash
    interrupted.

    Args:
        module: module whose `main` calls `carry_out`.
        task: task of a type that msgspec can encode.
        log: file for the output of the process and its libraries; None discards the output, except errors.
        path: ``PYTHONPATH`` of the process; None for `python_path`.

    Attributes:
        process: the process, with its exit code.
    """

    def __init__(self, module: str, task: object, log: IO[str] | None = None, *, path: str | None = None) -> None:
        self._begin(module, log, path)
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError), self.process.stdin as stdin:  # it died at once: a crash like others
            stdin.write(msgspec.json.encode(task))

    def _begin(self, module: str, log: IO[str] | None, path: str | None = None) -> None:
        read_end, write_end = os.pipe()
        self.process = self._start(
            [sys.executable, "-c", _program(module), str(write_end)],
            stdin=subprocess.PIPE,
            stdout=log or subprocess.DEVNULL,
            stderr=subprocess.STDOUT if log else None,
            pass_fds=(write_end,),
            env={**os.environ, "PYTHONPATH": path or python_path(), COMMAND: public_command()},
        )
        os.close(write_end)
        self._events = os.fdopen(read_end, "rb")

    def _start(self, command: list[str], **how: Any) -> subprocess.Popen[bytes]:
        return subprocess.Popen(command, **how)

    def events(self) -> Iterator[dict[str, Any]]:
        """Yield the events of the process until it ends; an incomplete last line is dropped."""
        for line in self._events:
            if line.endswith(b"\n"):
                yield json.loads(line)

    def end(self) -> str:
        """Wait for the end of the process; return the name of its signal, such as ``SIGKILL``, or ``exit code N``."""
        code = self.process.wait()
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        self._events.close()


class KeptChild(Child):
    """A process that carries out one task after the other, so that modules are imported only once.

    Args:
        module: module whose `main` calls `serve`.
        log: as in `Child`.
    """

    def __init__(self, module: str, log: IO[str]) -> None:
        self._begin(module, log)

    def ask(self, task: object) -> dict[str, Any] | None:
        """Carry out a task in the process, and return its result.

        After an error, the result contains ``error`` and ``code``; after a crash of the process, it is None.

        Args:
            task: task of a type that msgspec can encode.
        """
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(msgspec.json.encode(task) + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return None
        return next(self.events(), None)

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()


def serve(of: type[_Task], work: Callable[[_Task], Mapping[str, object]]) -> int:
    """Carry out the tasks of a `KeptChild` until its input ends; answer each task with its result or its error.

    Args:
        of: type of the tasks.
        work: carries out a task, and returns its result.

    Returns:
        The exit code.
    """
    end_with_parent()
    tasks, events = os.fdopen(os.dup(0), "rb"), os.fdopen(int(sys.argv[1]), "w")
    with open(os.devnull, "rb") as nothing:  # what a task runs may read its input, which is not the tasks
        os.dup2(nothing.fileno(), 0)
    for number, line in enumerate(tasks):
        if number == 1:  # what imports left is there for good: looking at it again takes a tenth of the time
            gc.collect()
            gc.freeze()
        found = _done(lambda task=line: work(msgspec.json.decode(task, type=of)))  # type: ignore[misc]
        events.write(json.dumps(found) + "\n")
        events.flush()
    return 0


def failure_of(event: Mapping[str, Any]) -> OpProfilerError:
    """Return the exception for an event that contains ``error`` and ``code``."""
    if event["code"] == EXIT_MODEL:
        return ModelError(event["error"])
    error = OpProfilerError(event["error"])
    error.exit_code = event["code"]
    return error


def _done(work: Callable[[], Mapping[str, object] | None]) -> Mapping[str, object]:
    """Return the result of some work, or its ``error`` and the exit ``code``."""
    try:
        return work() or {}
    except OpProfilerError as error:
        return {"error": str(error), "code": error.exit_code}
    except MemoryError:
        return {"error": "out of memory", "code": EXIT_ENVIRONMENT}
    except Exception as error:  # noqa: BLE001 - whatever it is, who started this has to hear of it
        traceback.print_exc()
        return {"error": f"{type(error).__name__}: {error}", "code": EXIT_ENVIRONMENT}


def carry_out(of: type[_Task], work: Callable[[_Task, Callable[..., None]], object]) -> int:
    """Read the task of a `Child` and carry it out; after an error, the last event has ``error`` and exit code ``code``.

    Args:
        of: type of the task.
        work: called with the task, and with a function that sends an event.

    Returns:
        The exit code.
    """
    end_with_parent()
    events = os.fdopen(int(sys.argv[1]), "w")

    def send(**event: object) -> None:
        events.write(json.dumps(event) + "\n")
        events.flush()

    def carried_out() -> None:
        work(msgspec.json.decode(sys.stdin.buffer.read(), type=of), send)

    failure = _done(carried_out)
    if not failure:
        return 0
    send(**failure)
    return cast(int, failure["code"])
