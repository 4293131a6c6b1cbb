"""Ctrl-C while TVM calls back into Python.

What TVM calls back cannot pass a `KeyboardInterrupt` on: TVM goes on with whatever came of it, and refuses the model
for a reason that is none.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

_waiting = threading.Event()


class StoppedError(Exception):
    """An ordinary error, which TVM does pass on; `interrupts_wait` makes a `KeyboardInterrupt` of it."""


@contextlib.contextmanager
def interrupts_wait() -> Iterator[None]:
    """A Ctrl-C raises `KeyboardInterrupt` behind this block, whatever the block itself ends with. A second one does not
    wait. For the main thread, and where nobody else has taken over the signal; else this does nothing."""
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
    """End what TVM does, where it passes errors on, instead of waiting for all of it.

    Raises:
        StoppedError: a Ctrl-C waits.
    """
    if _waiting.is_set():
        raise StoppedError


def _note(number: int, frame: FrameType | None) -> None:
    if _waiting.is_set():
        signal.default_int_handler(number, frame)
    _waiting.set()
