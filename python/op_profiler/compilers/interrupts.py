"""Ctrl-C while TVM calls back into Python.

A callback from TVM cannot raise `KeyboardInterrupt` through TVM: TVM continues with an incomplete result, and rejects
the model for a wrong reason.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

_waiting = threading.Event()


class StoppedError(Exception):
    """Raised in a callback after Ctrl-C; TVM propagates it, and `interrupts_wait` then raises `KeyboardInterrupt`."""


@contextlib.contextmanager
def interrupts_wait() -> Iterator[None]:
    """Delay Ctrl-C: `KeyboardInterrupt` is raised after this block, however the block ends. A second Ctrl-C is not
    delayed. Works in the main thread, unless other code handles the signal; otherwise this does nothing."""
    in_main = threading.current_thread() is threading.main_thread()
    if not in_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, _note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if _waiting.is_set():
            _waiting.clear()
            raise KeyboardInterrupt from None


def stop_if_interrupted() -> None:
    """Stop TVM from a callback after Ctrl-C, instead of waiting until TVM finishes.

    Raises:
        StoppedError: Ctrl-C was pressed inside `interrupts_wait`.
    """
    if _waiting.is_set():
        raise StoppedError


def _note(number: int, frame: FrameType | None) -> None:
    if _waiting.is_set():
        signal.default_int_handler(number, frame)
    _waiting.set()
