"""Output to standard streams that does not stop a command where a stream is closed or cannot be written."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Buffer

_NO_READER = (errno.EPIPE, errno.EBADF)


class _Descriptor(io.FileIO):
    """A file descriptor that drops what is written after its first failure.

    Attributes:
        failure: what the operating system answered then.
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
    """Replace standard output and standard error by streams whose failures `output_failure` reports.

    A closed stream is opened on the null device: else the next file that opens, such as a dataset, gets its descriptor,
    and whatever a library prints is written into that file.
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
    raw = _Descriptor(stream.fileno(), "w", closefd=False)
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


def output_failure() -> OSError | None:
    """Return why standard output could not be written; None if it was, or if its reader went away (``| head``)."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    raw = getattr(sys.stdout.buffer, "raw", None)
    failure = raw.failure if isinstance(raw, _Descriptor) else None
    return None if failure is None or failure.errno in _NO_READER else failure
