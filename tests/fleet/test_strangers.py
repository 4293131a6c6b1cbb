"""Servers of something else, where a scheduler is looked for."""

from __future__ import annotations

import contextlib
import socket
import threading
from pathlib import Path

import psutil
import pytest
from processes import running, said

from ..command_line import op_profiler
from ..installed import needs

pytestmark = needs("distributed")


@pytest.mark.parametrize("greeting", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b""])
def test_whoever_is_no_scheduler_is_not_waited_for(greeting: bytes, tmp_path: Path) -> None:
    """A server of something else, which says so at once or waits to be asked."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(greeting)
                with contextlib.suppress(ConnectionResetError):
                    connection.recv(1)  # until the other side gives up

        threading.Thread(target=answer, daemon=True).start()
        address = f"tcp://127.0.0.1:{port}"
        done = op_profiler("fleet", address, folder=tmp_path)
        taken = op_profiler("scheduler", "--port", str(port), folder=tmp_path)
    assert done.returncode == 5 and done.stderr.startswith(f"error: no scheduler answers at {address} ("), done.stderr
    assert done.stderr.count("\n") == 1
    assert taken.returncode == 5 and taken.stderr.count("\n") == 1
    assert f"no scheduler can listen at 127.0.0.1:{port}: Address already in use; give another --port" in taken.stderr


def test_a_worker_of_whoever_is_no_scheduler_says_so_and_can_be_ended(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            with contextlib.suppress(OSError):  # the server is closed
                while True:
                    connection, _ = server.accept()
                    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                    connection.close()

        threading.Thread(target=answer, daemon=True).start()
        log = tmp_path / "worker.log"
        with running("worker", f"tcp://127.0.0.1:{server.getsockname()[1]}", log=log) as process:
            said(log, "waiting for the scheduler at .*: another program answers at this address")
            psutil.Process(process.pid).terminate()
            process.wait()
