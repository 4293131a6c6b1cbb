"""Atomic writing of files and folders, and checks before measuring that a path can be written."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from op_profiler.errors import OpProfilerError, UsageError


def check_writable(files: Mapping[str, Path | None]) -> None:
    """Reject files that cannot be written, before minutes are spent on a measurement. The check leaves nothing behind.

    Args:
        files: path of each file, by the command-line option that gives it; None and ``-`` are skipped.

    Raises:
        UsageError: two options name the same file.
        OpProfilerError: a file cannot be written; the message names the option.
    """
    options: dict[str, str] = {}
    for option, path in files.items():
        if path is None or str(path) == "-":
            continue
        other = options.setdefault(os.path.realpath(path), option)
        if other != option:
            raise UsageError(f"{other} and {option} both name {path}; give each a separate file")
        with explained(f"{option} {path}"):
            partial = _beside(path)
            partial.touch()
            partial.unlink()


def check_folder(option: str, folder: Path) -> None:
    """Reject a folder, existing or not, in which files cannot be created. The check leaves nothing behind.

    Raises:
        OpProfilerError: no file can be created in the folder; the message names the option.
    """
    with explained(f"{option} {folder}"):
        wanted = Path(os.path.realpath(folder))
        there = next(one for one in (wanted, *wanted.parents) if one.exists())
        if not there.is_dir():
            raise OSError(f"{there} is not a folder")
        tempfile.TemporaryFile(dir=there).close()


@contextlib.contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path, which is renamed to `path` at the end of the block and removed after an error.

    Until then, an existing file is kept. If `path` is a link, its target is replaced, not the link. A missing folder is
    created.

    Raises:
        OSError: the file cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = _beside(path)
    try:
        yield partial
        partial.replace(os.path.realpath(path))
    finally:
        partial.unlink(missing_ok=True)


@contextlib.contextmanager
def atomic_folder(path: Path, *, replace: bool = False) -> Iterator[Path]:
    """Yield a temporary folder, which is renamed to `path` at the end of the block and removed after an error.

    Args:
        replace: whether an existing folder, or the target of a link, is replaced when the new folder is complete.
            Otherwise an existing folder is kept, even if another process created it in the meantime.

    Raises:
        OSError: the folder cannot be written.
    """
    path = Path(os.path.realpath(path)) if replace else path
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
    partial.mkdir(parents=True)
    try:
        yield partial
        if replace and path.exists():
            _exchange(path, partial)
            return
        try:
            partial.rename(path)
        except OSError:
            if not path.is_dir():
                raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _exchange(path: Path, partial: Path) -> None:
    """Exchange the names of two folders. Between the two renames, `path` does not exist for a moment."""
    older = partial.with_suffix(".old")
    path.rename(older)
    try:
        partial.rename(path)
    except BaseException:
        older.rename(path)
        raise
    older.rename(partial)


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield an `atomic_file` for a path that the user gave, in an existing folder.

    Raises:
        OpProfilerError: the file cannot be written.
    """
    with explained(str(path)):
        _beside(path)
        with atomic_file(path) as partial:
            yield partial


@contextlib.contextmanager
def locked(lock: Path, waiting: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Hold the exclusive lock of a file inside the block; if another process holds the lock, wait for it.

    The file and its missing folders are created, and removed at the end. If a process is killed, its lock is released,
    and the next process reuses the file.

    Args:
        waiting: called if another process holds the lock.

    Raises:
        OSError: the file cannot be created.
    """
    missing = [folder for folder in lock.parents if not folder.exists()]
    descriptor = _held(lock, waiting)
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)  # while it is held: who waits for it sees that it is gone, and makes another
        os.close(descriptor)
        with contextlib.suppress(OSError):  # something was put there
            for folder in missing:
                folder.rmdir()


def _held(lock: Path, waiting: Callable[[], None]) -> int:
    """Lock a file and return its descriptor; retry if the process that held the lock before has removed the file."""
    while True:
        with contextlib.suppress(FileNotFoundError), contextlib.ExitStack() as stack:
            lock.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o666)
            stack.callback(os.close, descriptor)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                waiting()
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            if os.path.samestat(os.fstat(descriptor), lock.stat()):
                stack.pop_all()
                return descriptor


def write_whole(path: Path, text: str) -> None:
    """Write a text, in UTF-8, as the whole content of a file; for errors see `whole_file`."""
    with whole_file(path) as partial:
        partial.write_text(text, encoding="utf-8")


def _beside(path: Path) -> Path:
    """Return an unused name in the folder of a file, if the file can be replaced.

    Raises:
        OSError: the file cannot be replaced.
    """
    file = Path(os.path.realpath(path))
    if file.exists() and not file.is_file():  # renaming over /dev/null would replace it
        raise OSError("it is not a regular file")
    if file.exists() and not os.access(file, os.W_OK):
        raise OSError("it is read-only")
    if len(os.fsencode(file.name)) > os.pathconf(file.parent, "PC_NAME_MAX"):
        raise OSError("its name is too long")
    return file.with_name(f".op_profiler-{uuid.uuid4().hex}.part")


@contextlib.contextmanager
def explained(what: str) -> Iterator[None]:
    """Turn an OSError of the block into an `OpProfilerError` that names `what` and advises another path."""
    try:
        yield
    except OSError as error:
        raise OpProfilerError(f"cannot write {what}: {error.strerror or error}; give another path") from error
