"""The flat tables as batches of Arrow.

What many rows share (operators, devices, models, ...) is read once and joined here: most of a flat row is of this kind,
and text that the database copies into every row takes longer than all the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from sqlalchemy import Column as SchemaColumn
from sqlalchemy import Connection, Table, select
from sqlalchemy.sql import visitors

from op_profiler import json_text
from op_profiler.dataset import schema
from op_profiler.dataset.flat import Column, FlatTable, raw, streamed
from op_profiler.dataset.schema import parse_json

if TYPE_CHECKING:
    import pyarrow

    from op_profiler.dataset.store import Dataset

_ROWS = 5000  # of a batch
_PARSED = 500  # rows whose samples are Python's numbers at a time
_MOST_SHARED = 50_000  # rows of one table that are held
_SHARED = (schema.operators, schema.schedules, schema.settings, schema.devices, schema.models, schema.model_timings)


def arrow_batches(
    dataset: Dataset, flat: FlatTable, arrow_schema: pyarrow.Schema, *, where: str | None
) -> Iterator[pyarrow.RecordBatch]:
    """The rows of a flat table, oldest first.

    Args:
        arrow_schema: its columns.
        where: see `op_profiler.dataset.flat.parse_where`.

    Raises:
        UsageError: the condition cannot be used.
        DatasetError: the database cannot be read.
    """
    import pyarrow

    types = dict(zip(arrow_schema.names, arrow_schema.types))
    own = [column for column in flat.columns if _table_of(column) is None]
    shared = [_Shared(table, flat, types) for table in _SHARED if any(_table_of(c) is table for c in flat.columns)]
    wanted = [*own, *(one.key for one in shared)]
    with dataset.read() as connection:
        for piece in streamed(connection, flat, wanted, where=where, rows=_ROWS):
            values = dict(zip((column.name for column in wanted), zip(*piece)))
            arrays = {column.name: _array(column, values[column.name], types[column.name]) for column in own}
            for one in shared:
                arrays |= one.of(connection, pyarrow.array(values[one.key.name], pyarrow.string()))
            yield pyarrow.RecordBatch.from_arrays([arrays[name] for name in arrow_schema.names], schema=arrow_schema)


def _table_of(column: Column) -> Table | None:
    """The one table of `_SHARED` that tells a column; None where there is none."""
    parts = visitors.iterate(column.source)
    (table, *others) = {part.table for part in parts if isinstance(part, SchemaColumn)}
    return table if not others and table in _SHARED else None


class _Shared:
    """Rows of a table that many rows of a flat table refer to.

    Attributes:
        key: by which they do.
    """

    def __init__(self, table: Table, flat: FlatTable, types: dict[str, Any]) -> None:
        (key,) = table.primary_key.columns
        self.key = Column(f"{table.name} key", "text", "", key)
        self._columns = [column for column in flat.columns if _table_of(column) is table]
        self._types = [types[column.name] for column in self._columns]
        self._forget()

    def _forget(self) -> None:
        import pyarrow

        self._keys = pyarrow.array([], pyarrow.string())
        self._arrays = [pyarrow.array([], kind) for kind in self._types]

    def of(self, connection: Connection, keys: pyarrow.StringArray) -> dict[str, pyarrow.Array]:
        """By name, the columns of the rows with these keys; null where a key is."""
        from pyarrow import compute

        wanted = keys.drop_null().unique()
        if len(self._keys) + len(wanted) > _MOST_SHARED:
            self._forget()
        self._read(connection, wanted.filter(compute.invert(compute.is_in(wanted, value_set=self._keys))))
        places = compute.index_in(keys, value_set=self._keys)
        return {column.name: array.take(places) for column, array in zip(self._columns, self._arrays)}

    def _read(self, connection: Connection, keys: pyarrow.StringArray) -> None:
        import pyarrow

        if not len(keys):
            return
        key = self.key.source
        rows = connection.execute(select(key, *map(raw, self._columns)).where(key.in_(keys.to_pylist()))).all()
        found, *values = zip(*rows)
        self._keys = pyarrow.concat_arrays([self._keys, pyarrow.array(found, pyarrow.string())])
        self._arrays = [
            pyarrow.concat_arrays([array, _array(column, value, array.type)])
            for array, column, value in zip(self._arrays, self._columns, values)
        ]


def _array(column: Column, values: Sequence[Any], kind: pyarrow.DataType) -> pyarrow.Array:
    """What is stored, as a file has it: JSON without the numbers that it does not know, samples as lists."""
    import pyarrow

    if column.type == "samples":
        parts = [values[begin : begin + _PARSED] for begin in range(0, len(values), _PARSED)]
        return pyarrow.concat_arrays([pyarrow.array(_samples(part), kind) for part in parts])
    if column.type == "json":
        values = [None if text is None else _finite(text) for text in values]
    return pyarrow.array(values, kind)


def _finite(text: str) -> str:
    if "Infinity" in text or "NaN" in text:
        return json_text.dumps(parse_json(text, parse_constant=str))
    return text


def _samples(texts: Sequence[str | None]) -> Sequence[Any]:
    try:
        found: list[Any] = msgspec.json.decode(f"[{','.join('null' if text is None else text for text in texts)}]")
    except msgspec.DecodeError:  # numbers that JSON does not know, or a damaged one
        return [None if text is None else parse_json(text) for text in texts]
    return found
