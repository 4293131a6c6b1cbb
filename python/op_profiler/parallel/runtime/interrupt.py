"""Makes Ctrl-C end the process while native code runs.

Python handles a signal only when the main thread runs Python code again, which never happens if a kernel does not
return. But the number of the signal is written to a file descriptor at once, which another thread can read.
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
    """End the process with exit code 130 if this block has not ended two seconds after a Ctrl-C.

    If the block runs Python code in time, Ctrl-C raises `KeyboardInterrupt` as usual. Outside of the main thread, this
    context manager does nothing.
    """
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
