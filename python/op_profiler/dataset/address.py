"""Addresses of datasets: parsing, and the databases that are supported."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy
from sqlalchemy import URL, exc

from op_profiler.addresses import without_password
from op_profiler.errors import UsageError

_EXAMPLE = "results/op_profiler.db, sqlite:///results/op_profiler.db or postgresql://user@host/name"
_SQLITE_SUFFIXES = (".db", ".sqlite", ".sqlite3")


def is_sqlite_path(text: str) -> bool:
    """Return whether a text is the path of a SQLite file; a path is accepted in place of an address."""
    return "://" not in text and Path(text).suffix in _SQLITE_SUFFIXES


def parse_url(text: str) -> URL:
    """Parse and check the address of a dataset; the path of a SQLite file is accepted in place of an address.

    Raises:
        UsageError: the text is not an address, or the database is not supported.
    """
    if is_sqlite_path(text):
        return URL.create("sqlite", database=text)
    try:
        url = sqlalchemy.make_url(text)
    except exc.ArgumentError:
        raise UsageError(f"{text!r} is not the address of a dataset; write it like {_EXAMPLE}") from None
    kind = url.get_backend_name()
    if kind in ("postgresql", "postgres"):
        return url.set(drivername="postgresql+psycopg")
    if kind != "sqlite":
        raise UsageError(f"datasets in {kind} are not supported; write an address like {_EXAMPLE}")
    if not url.database or url.database == ":memory:":
        raise UsageError(f"a dataset in memory would be lost with the process; write an address like {_EXAMPLE}")
    return url


def absolute_address(text: str) -> str:
    """Return the address of a dataset, with a password if it has one; the path of a SQLite file becomes absolute.

    Raises:
        UsageError: the text is not an address, or the database is not supported.
    """
    url = parse_url(text)
    if url.get_backend_name() == "sqlite":
        url = url.set(database=str(Path(str(url.database)).absolute()))
    return url.render_as_string(hide_password=False)


def shown(url: URL) -> str:
    """Return the address of a dataset for messages: the path of a SQLite file, or the address without its password."""
    if url.get_backend_name() == "sqlite":
        return str(url.database)
    return without_password(url.render_as_string(hide_password=False))
