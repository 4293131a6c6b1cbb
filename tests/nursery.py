"""Worker processes of collections, forked from one that has imported what they need (`zygote.py`)."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import socket
import subprocess
from typing import IO, Any


class Nursery:
    """Stands in a supervisor's place for the module `subprocess`: its `Popen` asks another process for a worker.

    Args:
        orders: where that process reads them.
    """

    PIPE, STDOUT = subprocess.PIPE, subprocess.STDOUT

    def __init__(self, orders: socket.socket) -> None:
        self._orders = orders

    def close(self) -> None:
        """Ends the process that forks workers, once no other process holds this end."""
        self._orders.close()

    def Popen(self, command: list[str], *, stdout: IO[str], env: dict[str, str], **_: Any) -> Forked:  # noqa: N802
        stdin, ours = os.pipe()
        answers, theirs = os.pipe()
        order = {"environment": env, "folder": os.getcwd(), "most_bytes": resource.getrlimit(resource.RLIMIT_AS)}
        events = int(command[-1])
        socket.send_fds(self._orders, [json.dumps(order).encode()], [stdin, stdout.fileno(), events, theirs])
        os.close(stdin)
        os.close(theirs)
        return Forked(os.fdopen(answers), os.fdopen(ours, "wb"))


class Forked:
    """A worker, as far as a supervisor asks."""

    def __init__(self, answers: IO[str], stdin: IO[bytes]) -> None:
        self.stdin = stdin
        self._answers = answers
        self._pid = int(self._answers.readline())
        self._code: int | None = None

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)

    def wait(self) -> int:
        if self._code is None:
            self._code = int(self._answers.readline())
        return self._code
