"""Protects the standard streams, so that a closed or unwritable stream does not stop a command."""

from __future__ import annotations

import contextlib
import errno
import faulthandler
import io
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Buffer

_NO_READER = (errno.EPIPE, errno.EBADF)


class _Descriptor(io.FileIO):
    """A file descriptor that drops all output after its first failure.

    Attributes:
        failure: error at the first failure; None without a failure.
    """

    failure: OSError | None = None

    def write(self, data: Buffer, /) -> int | None:  # type: ignore[override]
        if self.failure is None:
            try:
                return super().write(data)
            except BlockingIOError:
                raise
            except OSError as error:
                self.failure = error
        return memoryview(data).nbytes


def protect_streams() -> None:
    """Replace standard output and standard error by streams that drop what cannot be written and raise no error;
    `output_failure` returns the first error of standard output.

    A closed stream is opened on the null device. Otherwise, the next file that is opened, such as a dataset, would get
    the descriptor of the stream, and libraries would print into that file.
    """
    if sys.stdin is None:
        sys.stdin = os.fdopen(os.open(os.devnull, os.O_RDONLY))
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
        elif stream is getattr(sys, f"__{name}__"):  # else a caller has replaced it, as tests do
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
                setattr(sys, name, _protected(stream))


def _protected(stream: IO[str]) -> io.TextIOWrapper:
    assert isinstance(stream, io.TextIOWrapper)
    return _like(stream, stream.fileno())


def _like(stream: io.TextIOWrapper, descriptor: int) -> io.TextIOWrapper:
    raw = _Descriptor(descriptor, "w", closefd=False)
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering or stream.write_through,  # PYTHONUNBUFFERED: lines have to come at once
    )


@contextlib.contextmanager
def native_output_in_log() -> Iterator[None]:
    """Redirect what TVM and other libraries print from C++ to a log file while the block runs.

    These libraries write to file descriptor 2, which refers to the log inside the block; Python writes to a copy of the
    original descriptor. If a library kills the process, the screen shows where, and the log remains in the folder for
    temporary files, like the logs of worker processes.
    """
    stream = sys.stderr
    if not isinstance(stream, io.TextIOWrapper) or not isinstance(getattr(stream.buffer, "raw", None), _Descriptor):
        yield  # a caller has replaced it
        return
    try:
        log, name = tempfile.mkstemp(prefix="op_profiler-stderr-", suffix=".log")
    except OSError:  # a full disk; what is printed there then stays on the screen
        yield
        return
    stream.flush()
    screen = os.dup(2)
    sys.stderr = _like(stream, screen)
    os.dup2(log, 2)
    faulthandler.enable(screen, all_threads=False)
    try:
        yield
    finally:
        sys.stderr.flush()
        sys.stderr = stream
        faulthandler.disable()
        os.dup2(screen, 2)
        os.close(screen)
        os.close(log)
        Path(name).unlink(missing_ok=True)


def output_failure() -> OSError | None:
    """Return the error of writing to standard output; None without an error, or if a pipe was closed (``| head``)."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)  # a notebook's output has no buffer
    failure = raw.failure if isinstance(raw, _Descriptor) else None
    return None if failure is None or failure.errno in _NO_READER else failure
