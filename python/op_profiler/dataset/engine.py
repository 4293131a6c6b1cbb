"""Opens a database: connection settings, the upgrade of its tables to the newest version, and write transactions.

Writers queue instead of failing: on SQLite by ``BEGIN IMMEDIATE`` and its busy timeout, on PostgreSQL by an advisory
lock for the duration of the transaction. Two processes therefore never deadlock, in whatever order they write.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import sqlalchemy
from sqlalchemy import URL, Connection, Engine, event, exc

from op_profiler.dataset import migrations, schema
from op_profiler.dataset.address import parse_url, shown
from op_profiler.dataset.database_errors import DAMAGED, is_locked, translated
from op_profiler.errors import DatasetError, needing

SERVER_SECONDS = 60
"""Time limit for waiting for a server that restarts, seconds."""
LOCK_SECONDS = 3600
"""Time limit for waiting for other writers, seconds; these may merge or remove millions of rows, or upgrade tables."""
TELL_SECONDS = 30
"""Time after which a waiting writer prints a message, seconds."""
_AGAIN_SECONDS = 0.2

_LOCK = 0x6F705F70  # any number will do, as long as every op_profiler uses the same
_MOST_CLOSED = 8
_closed: dict[tuple[URL, bool], Engine] = {}  # by address, and whether it is for reading only; they have no connection
_WRITE = "op_profiler_write"  # options of connections and engines, read when a transaction begins
_COMPLETE = "op_profiler_complete"  # of engines whose dataset was found to have every column
_READ_ONLY = "op_profiler_read_only"
_ONE_STATE = r"repeatable\ read"  # of PostgreSQL's transactions, as its options write it
_KEEPALIVE_SECONDS = {"idle": 60, "interval": 10, "count": 6}


def utc_now() -> str:
    """Return the current time in UTC, ISO 8601 with microseconds; such times can be compared as text."""
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="microseconds")


def open_engine(text: str, *, create: bool, read_only: bool, was_open: bool = False) -> tuple[Engine, URL]:
    """Connect to a database, upgrade its tables to the newest version, and return the engine and the parsed address.

    Args:
        text: address of the database.
        create: create the file, its folder and the tables if they are missing (not with `read_only`).
        read_only: reject every write; a database with tables of an older version is then rejected too.
        was_open: the database was open before, so wait up to `SERVER_SECONDS` for a server that does not answer.

    Raises:
        UsageError: the address is not that of a supported database.
        MissingPackageError: the database is PostgreSQL, and psycopg is not installed.
        DatasetError: the database cannot be opened, was not created by op_profiler, or has tables of a newer version.
    """
    url = parse_url(text)
    create = create and not read_only
    if url.get_backend_name() == "sqlite":
        _check_file(url, create=create)
    engine = _engine(url, read_only=read_only)
    try:
        with translated(url):
            if was_open:
                connected(engine).close()
            _prepare(engine, url, create=create, read_only=read_only)
    except BaseException:
        engine.dispose()
        raise
    return engine, url


def _check_file(url: URL, *, create: bool) -> None:
    """Raise DatasetError for a missing, truncated or unusable file, before SQLite raises an unclear error.

    Creates the folder of a missing file if `create` is true.
    """
    path = Path(str(url.database))
    try:
        if path.is_dir():
            raise DatasetError(f"the dataset {path} is a folder; give a file with --db")
        if path.exists():
            if _was_cut_off(path):
                raise DatasetError(f"the dataset {path} {DAMAGED}")
        elif create:
            path.parent.mkdir(parents=True, exist_ok=True)
        else:
            raise DatasetError(f"there is no dataset {path}; collect one first, or give another address with --db")
    except OSError as error:
        reason = error.strerror or error
        raise DatasetError(f"the dataset {path} cannot be opened: {reason}. Give another file with --db") from error


def _was_cut_off(path: Path) -> bool:
    """Return whether the file is truncated inside a page (SQLite would fill it with zeros) and is not just growing."""
    if not _ends_inside_a_page(path):
        return False
    time.sleep(0.1)
    return _ends_inside_a_page(path)


def _ends_inside_a_page(path: Path) -> bool:
    try:
        with open(path, "rb") as file:
            header = file.read(18)
            size = file.seek(0, os.SEEK_END)
    except OSError:
        return False  # SQLite says it better
    if not header.startswith(b"SQLite format 3\0") or len(header) < 18:
        return False
    page = int.from_bytes(header[16:], "big")
    return size % (65536 if page == 1 else page or 1) != 0


def close_engine(engine: Engine) -> None:
    """Close the connections, and cache the engine for the next use of the same dataset.

    Creating an engine takes most of the time of opening a dataset.
    """
    engine.dispose()
    if len(_closed) >= _MOST_CLOSED:
        _closed.clear()
    _closed[engine.url, engine.get_execution_options()[_READ_ONLY]] = engine


def _engine(url: URL, *, read_only: bool) -> Engine:
    """Return a cached engine that is not in use, or a new engine."""
    if url.get_backend_name() == "sqlite":  # an engine belongs to a file, wherever this process goes meanwhile
        url = _read_only_sqlite(url) if read_only else url.set(database=str(Path(str(url.database)).absolute()))
    return _closed.pop((url, read_only), None) or _new_engine(url, read_only=read_only)


def _new_engine(url: URL, *, read_only: bool) -> Engine:
    kept = {_READ_ONLY: read_only}
    if url.get_backend_name() == "sqlite":
        engine = sqlalchemy.create_engine(url, connect_args={"timeout": TELL_SECONDS}, execution_options=kept)
        event.listen(engine, "connect", _set_up_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
        return engine
    # A writer that is cut off from the server would hold its lock, and all wait for it: for two hours by TCP's default.
    alive = _KEEPALIVE_SECONDS.items()
    options = " ".join([f"-c lock_timeout={LOCK_SECONDS}s", *(f"-c tcp_keepalives_{name}={n}" for name, n in alive)])
    if read_only:
        options += f" -c default_transaction_read_only=on -c default_transaction_isolation={_ONE_STATE}"
    with needing("psycopg[binary]", "a dataset in PostgreSQL", extra="postgres"):
        arguments = {"options": options, "connect_timeout": 10, **{f"keepalives_{name}": n for name, n in alive}}
        # A connection that the pool kept may be of a server that was started again since.
        engine = sqlalchemy.create_engine(url, connect_args=arguments, pool_pre_ping=True, execution_options=kept)
    event.listen(engine, "begin", _begin_postgresql)
    return engine


def _read_only_sqlite(url: URL) -> URL:
    """Return the address that opens a SQLite file for reading without creating it.

    A reader of a WAL database creates two files next to it, and can remove them only if it may write. The address
    therefore allows writes where possible, and `_begin_sqlite` prevents them. If the folder is not writable and has no
    ``-wal`` file with newer changes, the address declares the file immutable, so that no other file is needed.
    """
    path = Path(str(url.database)).absolute()
    folder_is_writable = os.access(path.parent, os.W_OK)
    query = {"uri": "true", "mode": "rw" if folder_is_writable and os.access(path, os.W_OK) else "ro"}
    if not folder_is_writable and not Path(f"{path}-wal").exists():
        query["immutable"] = "1"
    return URL.create("sqlite", database=f"file:{quote(str(path))}", query=query)


def _set_up_sqlite(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # this driver would otherwise start its own transactions, and too late
    connection.execute("PRAGMA foreign_keys = ON")
    # With WAL this keeps every transaction through a killed process, and the file whole through a loss of power;
    # waiting for the disk at each check point would disturb what is being measured.
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("PRAGMA case_sensitive_like = ON")  # as in PostgreSQL


def _begin_sqlite(connection: Connection) -> None:
    options = connection.get_execution_options()
    write = options.get(_WRITE, False) and not options[_READ_ONLY]
    connection.exec_driver_sql(f"PRAGMA query_only = {not write}")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")


def _begin_postgresql(connection: Connection) -> None:
    options = connection.get_execution_options()
    if options.get(_WRITE, False):
        connection.exec_driver_sql(
            f"SET LOCAL lock_timeout = '{TELL_SECONDS}s'; SELECT pg_advisory_xact_lock({_LOCK}); "
            "SET LOCAL lock_timeout TO DEFAULT"
        )
    elif not options[_READ_ONLY]:  # its connections begin so by themselves: each statement here is a look-up's fifth
        connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")


def connected(engine: Engine) -> Connection:
    """Open a connection to a database that was reachable before; wait for a server that restarts.

    Raises:
        sqlalchemy.exc.OperationalError: the server does not answer within `SERVER_SECONDS`, or SQLite cannot open the
            file.
    """
    until = time.monotonic() + SERVER_SECONDS
    while True:
        try:
            return engine.connect()
        except exc.OperationalError:
            if engine.dialect.name == "sqlite" or time.monotonic() > until:
                raise
        time.sleep(_AGAIN_SECONDS)


@contextlib.contextmanager
def write_transaction(engine: Engine) -> Iterator[Connection]:
    """Open a transaction with the exclusive right to write; it is rolled back if the block raises.

    Raises:
        sqlalchemy.exc.OperationalError: another process holds the lock for `LOCK_SECONDS`; nothing was done.
    """
    with contextlib.ExitStack() as stack:
        yield _begun(engine, stack)


def _begun(engine: Engine, stack: contextlib.ExitStack) -> Connection:
    """Return a connection inside an exclusive write transaction; the transaction ends with the stack."""
    until, noted = time.monotonic() + LOCK_SECONDS, False
    while True:
        connection = connected(engine).execution_options(**{_WRITE: True})
        try:
            transaction = connection.begin()
        except BaseException as error:
            connection.close()
            if not isinstance(error, exc.OperationalError) or not is_locked(error) or time.monotonic() > until:
                raise
        else:
            stack.enter_context(connection)
            stack.enter_context(transaction)
            return connection
        if not noted:
            print(f"waiting: another process writes to {shown(engine.url)}", file=sys.stderr)
            noted = True


def _prepare(engine: Engine, url: URL, *, create: bool, read_only: bool) -> None:
    with engine.connect() as connection:
        found = _found_version(connection)
        foreign = [] if found is not None else migrations.foreign_tables(connection)
        complete = engine.get_execution_options().get(_COMPLETE) or not read_only or migrations.is_complete(connection)
        outdated = read_only and not (found == schema.VERSION and complete)
    if foreign:
        raise DatasetError(_not_ours(url, foreign))
    if found is not None and found < 1:
        raise DatasetError(
            f"the dataset {shown(url)} is damaged: no tables have the version {found}; nothing was changed. "
            "Restore a copy, or give another address with --db"
        )
    if found is not None and found > schema.VERSION:
        raise DatasetError(
            f"the dataset {shown(url)} has tables of version {found}; this op_profiler supports versions up to "
            f"{schema.VERSION}. Nothing was changed. Upgrade op_profiler, or give another address with --db"
        )
    if found is None and not create:
        raise DatasetError(
            f"{shown(url)} contains no dataset; collect a model first, or give another address with --db"
        )
    if outdated:
        what = "lacks tables or columns" if found == schema.VERSION else f"has tables of the older version {found}"
        raise DatasetError(
            f"the dataset {shown(url)} {what}; open it once for writing (any "
            "'op-profiler collect --dry-run' with this --db does) to upgrade it"
        )
    if read_only:
        engine.update_execution_options(**{_COMPLETE: True})  # tables only grow: it need not be asked again
        return
    if url.get_backend_name() == "sqlite":
        _use_wal(engine)
    _create_or_upgrade(engine)


def _found_version(connection: Connection) -> int | None:
    """Return `migrations.stored_version`; one statement is enough if this process has seen the tables before."""
    if connection.get_execution_options().get(_COMPLETE):
        try:
            return migrations.version_of(connection)
        except (exc.ProgrammingError, exc.OperationalError):  # they were taken away since
            connection.rollback()
    return migrations.stored_version(connection)


def _create_or_upgrade(engine: Engine) -> None:
    """Create or upgrade the tables if needed.

    The write transaction also shows early that the database can be written.
    """
    with write_transaction(engine) as connection:
        found = migrations.stored_version(connection)  # another process may have been faster
        if found is None:
            migrations.create(connection, utc_now())
        elif found < schema.VERSION or not migrations.is_complete(connection):
            migrations.upgrade(connection, found, utc_now())


def _use_wal(engine: Engine) -> None:
    """Switch the file to write-ahead logging; retry while another process does so, because SQLite does not wait."""
    until = time.monotonic() + TELL_SECONDS
    while True:
        connection = engine.raw_connection()
        try:
            connection.cursor().execute("PRAGMA journal_mode = WAL")
            return
        except Exception as error:
            if "locked" not in str(error) or time.monotonic() > until:
                raise exc.OperationalError("PRAGMA journal_mode", None, error) from error
            time.sleep(0.01)
        finally:
            connection.close()


def _not_ours(url: URL, tables: list[str]) -> str:
    some = ", ".join(sorted(tables)[:3])
    return (
        f"{shown(url)} contains tables of another program ({some}); nothing was changed. Give another address with --db"
    )
