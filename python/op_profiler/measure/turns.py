"""Locks that let only one process at a time measure on a machine, whichever user starts it.

The lock is a file lock, which the operating system releases when a process dies. Lowering and compiling are load for
processes that measure on the processor, so they take the same lock in shared mode: several processes may compile at
once, but none measures meanwhile. A tracker assigns boards, so boards need no lock.
"""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from op_profiler.cache import cache_folder
from op_profiler.child_processes import public_command
from op_profiler.errors import MeasureError

_FOLDER = "OP_PROFILER_LOCKS"
_SHARED = Path("/tmp")  # noqa: S108 - not TMPDIR: all users of the machine must find the same file
_ASK_AGAIN_SECONDS = 0.2

PROCESSOR = "processor"
"""Name of the lock of this machine's processor."""
WAITING = "waiting: "
"""Prefix of the messages that report a wait for a lock."""
_held: dict[str, int] = {}  # how many `measuring` blocks this process is in, by name


@contextlib.contextmanager
def measuring(names: Sequence[str], say: Callable[[str], None] | None = None) -> Iterator[None]:
    """Hold these locks exclusively while the block measures; before that, wait until other processes release them.

    The block may be nested within one process; child processes do not inherit the locks.

    Args:
        names: names of locks, from `locks_of`.
        say: called with a message that names the process that holds a lock, unless that process works for the same
            command of the user; None: the message is printed on stderr.
    """
    with contextlib.ExitStack() as stack:
        for name in sorted(names):
            stack.enter_context(_one(name, say or _print))
        yield


@contextlib.contextmanager
def compiling(say: Callable[[str], None] | None = None) -> Iterator[None]:
    """Hold the processor's lock in shared mode while the block compiles; inside `measuring`, do nothing.

    Leave this block before entering `measuring`, which waits until no process compiles.

    Args:
        say: as in `measuring`.
    """
    if _held.get(PROCESSOR):
        yield
        return
    descriptor = _open(PROCESSOR)
    try:
        _wait(descriptor, PROCESSOR, fcntl.LOCK_SH, say or _print)
        before = os.pread(descriptor, 4096, 0)
        holder = _write_holder(descriptor, "compiles")
        try:
            yield
        finally:
            if os.pread(descriptor, 4096, 0) == holder:  # else others report that they wait for this process
                _write(descriptor, before if before.startswith(public_command().encode(errors="replace")) else b"")
    finally:
        os.close(descriptor)


def _print(text: str) -> None:
    print(text, file=sys.stderr)


@contextlib.contextmanager
def _one(name: str, say: Callable[[str], None]) -> Iterator[None]:
    if _held.get(name):
        _held[name] += 1
        try:
            yield
        finally:
            _held[name] -= 1
        return
    descriptor = _open(name)
    try:
        _wait(descriptor, name, fcntl.LOCK_EX, say)
        _held[name] = 1
        _write_holder(descriptor, "measures")
        try:
            yield
        finally:
            _write(descriptor, b"")
    finally:
        _held.pop(name, None)
        os.close(descriptor)  # releases the lock


def _write_holder(descriptor: int, doing: str) -> bytes:
    """Write this process as the holder into the lock's file, for processes that wait; return the written text."""
    since = datetime.datetime.now(datetime.timezone.utc).strftime("%H:%M:%S UTC")
    holder = f"{public_command()}, since {since}, {doing}".encode(errors="replace")
    _write(descriptor, holder)
    return holder


def _write(descriptor: int, text: bytes) -> None:
    with contextlib.suppress(OSError):  # another user's file is not writable; the lock works all the same
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, text, 0)


def _wait(descriptor: int, name: str, lock: int, say: Callable[[str], None]) -> None:
    reported, nameless = "", 0
    while True:
        try:
            fcntl.flock(descriptor, lock | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            named = os.pread(descriptor, 4096, 0).decode(errors="replace")
        nameless = 0 if named else nameless + 1
        holder = named or "another process works"
        has_named_itself = nameless != 1  # a process takes the lock first and then writes its name
        if has_named_itself and holder != reported and not named.startswith(public_command()):
            reported = holder
            say(f"{WAITING}{holder} on this machine's {'processor' if name == PROCESSOR else name}")
        time.sleep(_ASK_AGAIN_SECONDS)


def _open(name: str) -> int:
    """Open the file of a lock, and create it if it is missing; every user may open it.

    Raises:
        MeasureError: the file cannot be opened in any folder for locks.
    """
    given = os.environ.get(_FOLDER)
    folders = [Path(given)] if given else [_SHARED, cache_folder()]
    for folder in folders:
        path = folder / f"op_profiler-{name}.lock"
        try:
            if folder != _SHARED:
                folder.mkdir(parents=True, exist_ok=True)
            return _open_file(path)
        except OSError as error:
            failure = error
    raise MeasureError(f"the lock {path} cannot be opened: {failure.strerror}; let {_FOLDER} name another folder")


def _open_file(path: Path) -> int:
    flags = os.O_CLOEXEC | os.O_NOFOLLOW
    for _ in range(10):
        # In a world-writable folder, O_CREAT fails for a file of another user (fs.protected_regular).
        for rights in (os.O_RDWR, os.O_RDONLY):
            with contextlib.suppress(FileNotFoundError, PermissionError):
                return os.open(path, rights | flags)
        with contextlib.suppress(FileExistsError):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | flags, 0o666)
            os.fchmod(descriptor, 0o666)
            return descriptor
    raise PermissionError(13, "Permission denied", str(path))
