"""`WorkerProcess`: one worker process for trials, and the pipe to it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

from op_profiler.child_processes import python_path
from op_profiler.cores import unbind
from op_profiler.tuning.candidate import Failure, TaskSpec
from op_profiler.tuning.trials.worker import Worker, WorkerSetup
from op_profiler.tuning.trials.worker import main as worker_main


def forkserver() -> ForkServerContext:
    """Return the multiprocessing context in which workers are started: a fork server that has imported TVM."""
    os.environ["PYTHONPATH"] = python_path()  # the server starts with a fresh `sys.path`
    unbind()  # the server, its workers and threads of a cost model inherit this thread's binding
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["op_profiler.tuning.trials.preload"])
    return context


def new_log() -> Path:
    """Create an empty temporary file for the output of workers, and return its path."""
    descriptor, log = tempfile.mkstemp(prefix="op_profiler-trials-", suffix=".log")
    os.close(descriptor)
    return Path(log)


class WorkerProcess:
    """One worker process and the pipe to it.

    Args:
        context: context in which the process is started.
        worker_class: class in the process that executes the commands.
        setup: configuration of the worker.

    Attributes:
        task: task that the worker prepared last; None before the first task.
    """

    def __init__(self, context: ForkServerContext, worker_class: type[Worker], setup: WorkerSetup) -> None:
        self.task: TaskSpec | None = None
        self.connection: Connection
        self.connection, theirs = context.Pipe()
        self._process = context.Process(target=worker_main, args=(theirs, worker_class, setup), daemon=True)
        self._process.start()
        theirs.close()

    def ask(self, *command: Any) -> None:
        """Send a command to the worker; `answer` then returns the reply.

        Args:
            command: name of a method of `Worker`, and its arguments.

        Raises:
            EOFError: the worker has died since its last answer and has not received the command.
        """
        try:
            self.connection.send(command)
        except OSError as error:
            raise EOFError from error

    def answer(self, seconds: float) -> Any:
        """Wait for the answer to the last `ask`.

        Raises:
            TimeoutError: no answer came within `seconds`; the worker was killed.
            EOFError: the worker died.
        """
        if not self.connection.poll(seconds):
            self.kill()
            raise TimeoutError
        try:
            return self.connection.recv()
        except (ConnectionResetError, EOFError) as error:
            raise EOFError from error

    def kill(self) -> None:
        """Kill the process, wait for its end and close the pipe."""
        self._process.kill()
        self._process.join()
        self.connection.close()

    def how_it_died(self) -> tuple[Failure, str]:
        """Wait up to 5 s for the end of the process; return how it died.

        Returns:
            ``memory`` if it was killed by SIGKILL, otherwise ``crash``; and a text with the signal or exit code.
        """
        self._process.join(5)
        code = self._process.exitcode or 0
        if code == -signal.SIGKILL:
            return "memory", "killed by the system, as it does when memory runs out"
        return "crash", signal.Signals(-code).name if code < 0 else f"exit code {code}"
