"""Converts errors of a database driver into messages that name a remedy."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from sqlalchemy import URL, exc

from op_profiler.dataset.address import shown
from op_profiler.errors import DatasetError

DAMAGED = (
    "is damaged or cut off; nothing was changed. Restore a copy, or save what is readable with: sqlite3 FILE .recover"
)
_SQLITE_FAILURES = {
    "not a database": "is not a SQLite database; nothing was changed. Give another file with --db",
    "malformed": DAMAGED,
    "disk is full": "cannot grow: the disk is full. What was stored before is intact; free some space and run the "
    "same command again, or give a file on another disk with --db",
    "disk i/o": "cannot be read or written: the disk reports an error. Check its free space and health, or give a "
    "file on another disk with --db",
    "readonly": "cannot be written: the file or its folder is read-only. Make both writable, or give another file "
    "with --db",
    "unable to open": "cannot be opened: its folder is missing or may not be used by this user. Give another file "
    "with --db",
}
_LOCKED = (
    "was kept locked by another process for too long. Wait for it (a merge, removal or upgrade) or end it, then run "
    "the same command again"
)
_LOCK_NOT_AVAILABLE = "55P03"  # PostgreSQL's code where `lock_timeout` is over


@contextlib.contextmanager
def translated(url: URL) -> Iterator[None]:
    """Convert errors of the database driver into messages about the dataset.

    Raises:
        DatasetError: in place of any error of SQLAlchemy.
    """
    try:
        yield
    except exc.SQLAlchemyError as error:
        raise DatasetError(_error_text(url, error)) from error


def _error_text(url: URL, error: exc.SQLAlchemyError) -> str:
    """Return what went wrong with a database, and what to do about it."""
    detail = str(getattr(error, "orig", None) or error).strip()
    if is_locked(error):
        return f"the dataset {shown(url)} {_LOCKED}"
    if url.get_backend_name() == "sqlite":
        for sign, sentence in _SQLITE_FAILURES.items():
            if sign in detail.lower():
                return f"the dataset {url.database} {sentence}"
    elif isinstance(error, exc.OperationalError):
        reason = detail.splitlines()[0]
        return f"the dataset {shown(url)} cannot be used: {reason}. Check the address, and that the server is running"
    return f"the dataset {shown(url)} refused: {detail}"


def is_locked(error: exc.SQLAlchemyError) -> bool:
    """Return whether the statement failed because another process held a lock until the time limit."""
    driver = getattr(error, "orig", None)
    return getattr(driver, "sqlstate", None) == _LOCK_NOT_AVAILABLE or "is locked" in str(driver)


def was_cut_off(error: DatasetError) -> bool:
    """Return whether the connection was lost; the transaction may then be repeated."""
    return isinstance(error.__cause__, exc.DBAPIError) and error.__cause__.connection_invalidated
