"""The flat tables as batches of Arrow.

What many rows share (operators, devices, models, ...) is read once and joined here: most of a flat row is of this kind,
and text that the database copies into every row takes longer than all the rest. Samples are parsed by Arrow: lists of
Python's numbers take four times as long.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from sqlalchemy import Column as SchemaColumn
from sqlalchemy import ColumnElement, Connection, Join, Table, select
from sqlalchemy.sql import visitors

from op_profiler import json_text
from op_profiler.dataset import schema
from op_profiler.dataset.flat import Column, FlatTable, raw, streamed
from op_profiler.dataset.schema import parse_json

if TYPE_CHECKING:
    import pyarrow

    from op_profiler.dataset.store import Dataset

_ROWS = 5000  # of a batch
_MOST_SHARED = 50_000  # rows of one table that are held
_NOT_FINITE = ("Infinity", "NaN")
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
    there = {column.source: column for column in own}
    keys = [there.get(one.key.source, one.key) for one in shared]
    wanted = list(dict.fromkeys([*own, *keys]))
    with dataset.read() as connection:
        for piece in streamed(connection, flat, wanted, where=where, rows=_ROWS):
            values = dict(zip((column.name for column in wanted), zip(*piece)))
            arrays = {column.name: _array(column, values[column.name], types[column.name]) for column in own}
            for one, key in zip(shared, keys):
                arrays |= one.of(connection, pyarrow.array(values[key.name], pyarrow.string()))
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
        (self._identity,) = table.primary_key.columns
        self.key = Column(f"{table.name} key", "text", "", _reference(flat, self._identity))
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
        key = self._identity
        rows = connection.execute(select(key, *map(raw, self._columns)).where(key.in_(keys.to_pylist()))).all()
        found, *values = zip(*rows)
        self._keys = pyarrow.concat_arrays([self._keys, pyarrow.array(found, pyarrow.string())])
        self._arrays = [
            pyarrow.concat_arrays([array, _array(column, value, array.type)])
            for array, column, value in zip(self._arrays, self._columns, values)
        ]


def _reference(flat: FlatTable, key: SchemaColumn[Any]) -> ColumnElement[Any]:
    """Where the rows of a flat table hold the key of another table, so that the database need not look there."""
    rows = flat.source
    while isinstance(rows, Join):
        rows = rows.left
    assert isinstance(rows, Table)
    held = [reference.parent for reference in rows.foreign_keys if reference.column is key]
    return held[0] if held else key


def _array(column: Column, values: Sequence[Any], kind: pyarrow.DataType) -> pyarrow.Array:
    """What is stored, as a file has it: JSON without the numbers that it does not know, samples as lists."""
    import pyarrow

    if column.type == "samples":
        return _samples(pyarrow.array(values, pyarrow.string()), kind)
    array = pyarrow.array(values, kind)
    return _finite(array) if column.type == "json" else array


def _finite(texts: pyarrow.StringArray) -> pyarrow.StringArray:
    import pyarrow
    from pyarrow import compute

    if not any(compute.any(compute.match_substring(texts, word)).as_py() for word in _NOT_FINITE):
        return texts
    return pyarrow.array([_without(text) for text in texts.to_pylist()], texts.type)


def _without(text: str | None) -> str | None:
    if text is not None and any(word in text for word in _NOT_FINITE):
        return json_text.dumps(parse_json(text, parse_constant=str))
    return text


def _samples(texts: pyarrow.StringArray, kind: pyarrow.DataType) -> pyarrow.Array:
    """Each text as a line of a file of JSON.

    Raises:
        DatasetError: one is no JSON.
    """
    import pyarrow
    from pyarrow import compute, json

    if not len(texts):
        return pyarrow.array([], kind)
    lines = compute.binary_join_element_wise('{"samples":', texts.fill_null("null"), "}\n", "")
    try:
        table = json.read_json(
            pyarrow.BufferReader(lines.buffers()[2]),
            json.ReadOptions(use_threads=False),
            json.ParseOptions(explicit_schema=pyarrow.schema([("samples", kind)])),
        )
    except pyarrow.ArrowInvalid:
        table = None
    if table is None or table.num_rows != len(texts):  # a text ends its line, or is no JSON
        return pyarrow.array([None if text is None else parse_json(text) for text in texts.to_pylist()], kind)
    return pyarrow.concat_arrays(table.column(0).chunks)
