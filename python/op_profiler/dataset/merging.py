"""`merge`: adds the rows of several datasets to one dataset.

Rows are written into a temporary table by the fastest method of the driver, and moved to the final table by one
statement per 5000 rows. One statement per row, through SQLAlchemy, takes several times as long.
"""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from sqlalchemy import (
    Column,
    Connection,
    MetaData,
    Row,
    Select,
    Table,
    Text,
    and_,
    delete,
    false,
    func,
    or_,
    select,
    text,
    type_coerce,
    update,
)

from op_profiler.dataset import coruns, schema
from op_profiler.dataset.quality import or_better, or_newer
from op_profiler.dataset.statements import insert
from op_profiler.dataset.store import Dataset

_CHUNK = 5000  # rows
_CACHE_KIB = 64 * 1024
_COUNTED = {"preserve_rowcount": True}
_SHARED = (
    *(schema.devices, schema.models, schema.operators, schema.model_operators, schema.explanations),
    *(schema.schedules, schema.settings),
)
_TIMED = (schema.measurements, schema.model_timings)


def merge(sources: Sequence[Dataset], into: Dataset) -> dict[str, int]:
    """Add the rows of several datasets to another dataset in one transaction.

    If two datasets have a row of the same measurement, the better row is kept; of rows of equal quality, the newer one
    (`quality.rank`). Missing properties of a model, of its operators or of a device are completed from any dataset that
    has them.

    Returns:
        Number of rows by table that were added, or that replaced rows of worse quality.

    Raises:
        DatasetError: one of the databases fails; then nothing was changed.
    """
    tables = (*_SHARED, *_TIMED, schema.failures)
    written = collections.Counter({table.name: 0 for table in tables})
    with into.transaction() as target:
        if target.dialect.name == "sqlite":  # keys come in no order, so pages of the indices are asked for again
            target.exec_driver_sql(f"PRAGMA cache_size = -{_CACHE_KIB}")
        for source in sources:
            with source.read() as connection:
                for table in tables:
                    _copy(connection, target, table, written)
                members = connection.execute(coruns.select_members(None).execution_options(yield_per=_CHUNK)).mappings()
                found = coruns.of(cast("Iterable[Mapping[str, Any]]", members))
                written["coruns"] += sum(coruns.store(target, one) for one in found)
    return written


def _copy(source: Connection, target: Connection, table: Table, written: collections.Counter[str]) -> None:
    """Copy the rows of a table; the tables that it refers to must have been copied before.

    Args:
        written: numbers of rows by table, to which this call adds the rows that it writes.
    """
    with _temporary(target, table) as staged:
        moved = _moved(target, table, staged)
        for rows in source.execute(_stored(table).execution_options(yield_per=_CHUNK)).partitions():
            _fill(target, staged, rows)
            written[table.name] += target.execute(moved, execution_options=_COUNTED).rowcount
            if table is schema.models:
                written[schema.model_operators.name] -= _make_whole(target, staged)
            _fill_gaps(target, table, staged)
            target.execute(delete(staged))


def _fill_gaps(target: Connection, table: Table, staged: Table) -> None:
    """Complete missing values of existing rows with the values in the temporary table."""
    gaps = [column for column in table.c if column.nullable]
    if not gaps or table in (*_TIMED, schema.failures):
        return
    fills_gap = or_(*(and_(column.is_(None), staged.c[column.name].is_not(None)) for column in gaps))
    same = and_(*(column == staged.c[column.name] for column in table.primary_key.columns))
    values = {column.name: func.coalesce(column, staged.c[column.name]) for column in gaps}
    target.execute(update(table).where(same, fills_gap).values(values))


def _make_whole(target: Connection, staged: Table) -> int:
    """Replace models whose operators are only partly known (from a flat table) by complete models of the source.

    Returns:
        Number of deleted links of the replaced models to operators; the links of the source are copied next.
    """
    table, links = schema.models, schema.model_operators
    whole = and_(table.c.key == staged.c.key, staged.c.extracted, table.c.extracted.is_(false()))
    deleted = target.execute(delete(links).where(links.c.model_key.in_(select(table.c.key).where(whole))))
    values = {column.name: staged.c[column.name] for column in table.c if column.name not in ("key", "added_at")}
    target.execute(update(table).where(whole).values(values))
    return deleted.rowcount


@contextlib.contextmanager
def _temporary(target: Connection, table: Table) -> Iterator[Table]:
    """Create a temporary table with the columns of `table` but no constraints; nested values are text columns."""
    columns = [Column(column.name, _plain(column)) for column in table.c]
    staged = Table(f"staged_{table.name}", MetaData(), *columns, prefixes=["TEMPORARY"])
    staged.create(target)
    yield staged
    staged.drop(target)  # where the block raises, all is rolled back


def _plain(column: Column[Any]) -> Any:
    return Text() if isinstance(column.type, schema.Json) else column.type


def _stored(table: Table) -> Select[Any]:
    """Select the rows of a table; nested values are not parsed but read as the stored text."""
    return select(*(type_coerce(column, _plain(column)) for column in table.c))


def _fill(target: Connection, staged: Table, rows: Sequence[Row[Any]]) -> None:
    values = [tuple(row) for row in rows]
    if target.dialect.name == "sqlite":
        marks = ", ".join("?" * len(staged.c))
        target.exec_driver_sql(f"INSERT INTO {staged.name} VALUES ({marks})", values)
        return
    driver: Any = target.connection.driver_connection
    with driver.cursor() as cursor, cursor.copy(f"COPY {staged.name} FROM STDIN") as copy:
        for row in values:
            copy.write_row(row)


def _moved(target: Connection, table: Table, staged: Table) -> Any:
    """Return the statement that moves the rows of a temporary table to the final table."""
    everything = select(*staged.c).where(text("true"))  # without, SQLite takes ON CONFLICT for the condition of a join
    statement = insert(target, table).from_select([column.name for column in table.c], everything)
    keys = list(table.primary_key.columns)
    if table in _TIMED:
        return or_better(statement, table, [column.name for column in table.c])
    if table is schema.failures:
        return or_newer(statement)
    if table is schema.explanations:
        newer = statement.excluded.explained_at > table.c.explained_at
        values = {name: statement.excluded[name] for name in ("found", "explained_at")}
        return statement.on_conflict_do_update(index_elements=keys, set_=values, where=newer)
    return statement.on_conflict_do_nothing(index_elements=keys)
