"""`OpenDatabase`: the connections and transactions of an open database."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, cast

from sqlalchemy import URL, Connection, Engine, Select

from op_profiler.dataset.database_errors import translated, was_cut_off
from op_profiler.dataset.engine import close_engine, connected, write_transaction
from op_profiler.errors import DatasetError

T = TypeVar("T")
_TRIES = 3


class OpenDatabase:
    """An open database with the tables of `schema`: its connections and transactions.

    `Dataset` adds the methods that store and read contents.
    """

    def __init__(self, engine: Engine, url: URL) -> None:
        self._engine = engine
        self._url = url
        self._writing: Connection | None = None
        self._closed = False

    def close(self) -> None:
        """Close the database; no transaction may be open. A second call does nothing."""
        if not self._closed:
            self._closed = True  # the engine may be another dataset's from here on
            close_engine(self._engine)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Store all writes of the block together at its end; if the block raises or the process dies, store none.

        Inside an open transaction, the writes of the block belong to that transaction.

        Returns:
            A context manager that yields the connection of the transaction.
        """
        if self._writing is not None:
            yield self._writing
            return
        with translated(self._url), write_transaction(self._engine) as connection:
            self._writing = connection
            try:
                yield connection
            finally:
                self._writing = None

    def repeated(self, write: Callable[[], T]) -> T:
        """Call `write` inside a transaction and return its result; retry if the server closes the connection.

        Inside an open transaction, `write` is called once.

        Args:
            write: may be called up to three times, even if the writes of an earlier call were stored.

        Raises:
            DatasetError: the dataset rejects the write, or the connection is lost in every attempt.
        """
        for left in reversed(range(_TRIES)):
            try:
                with self.transaction():
                    return write()
            except DatasetError as error:
                if not left or self._writing is not None or not was_cut_off(error):
                    raise
        raise AssertionError

    @contextlib.contextmanager
    def read(self) -> Iterator[Connection]:
        """Open a connection for reading; all its queries see the same state of the database.

        Inside a transaction, this is the connection of the transaction.
        """
        if self._writing is not None:
            yield self._writing
            return
        with translated(self._url), connected(self._engine) as connection:
            yield connection

    def rows(self, query: Select[Any]) -> Sequence[Mapping[str, Any]]:
        """Return all rows of a query over the tables in `schema`; a row maps column names to values."""
        with self.read() as connection:
            return cast("Sequence[Mapping[str, Any]]", connection.execute(query).mappings().all())
