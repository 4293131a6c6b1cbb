"""Ctrl-C while native code runs.

Python handles a signal when the main thread runs Python code again, which never happens if a kernel does not return.
But the signal's number is written to a file descriptor at once, and other threads continue to run.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator

from op_profiler.errors import EXIT_INTERRUPTED

_PATIENCE_SECONDS = 2.0


@contextlib.contextmanager
def ended_by_interrupt() -> Iterator[None]:
    """End the process with exit code 130 if this block has not ended two seconds after a Ctrl-C. Until then, Ctrl-C
    raises `KeyboardInterrupt` as usual. Works in the main thread; in other threads this does nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ended = threading.Event()
    reader, writer = socket.socketpair()
    writer.setblocking(False)

    def watch() -> None:
        while number := reader.recv(1):
            if number[0] == signal.SIGINT and not ended.wait(_PATIENCE_SECONDS):
                text = "\ninterrupted; a kernel had not returned two seconds later, and was ended with the process\n"
                os.write(sys.stderr.fileno(), text.encode())
                os._exit(EXIT_INTERRUPTED)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    before = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        ended.set()
        writer.close()
        watcher.join()
        reader.close()
