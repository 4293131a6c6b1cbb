"""The flat table as Parquet, with the type and the description of each column.

Nested values are JSON, except for the samples, which are lists of lists.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow
from pyarrow import compute, parquet
from pyarrow import dataset as parts
from pyarrow import json as arrow_json

from op_profiler import json_text
from op_profiler.dataset.flat import MEASUREMENTS, TABLES, Column, FlatTable, Values, flat_table, nested, streamed
from op_profiler.dataset.formats.flat_table import ADDED_LATER, FlatFormat, FlatRow, check_columns
from op_profiler.dataset.formats.format import Exported
from op_profiler.dataset.schema import parse_json
from op_profiler.errors import DatasetError, UsageError, check_known
from op_profiler.files import atomic_folder, explained, whole_file

if TYPE_CHECKING:
    from op_profiler.dataset.store import Dataset

Condition = tuple[str, str, Any]
"""A condition on rows: column name, operator (``=``, ``in``, ``<``, ...: `pyarrow.parquet.filters_to_expression`),
value."""
_BATCH = 2000
_ROW_GROUP = 20_000  # what is held of each part that is being written
_GROUP_BYTES = 64 * 2**20


class Parquet(FlatFormat):
    """The format ``parquet``: the flat table as Parquet."""

    def write_from(
        self, dataset: Dataset, path: Path, *, where: str | None = None, table: str = "measurements"
    ) -> Exported:
        """Write a Parquet file; each row group is compressed with zstd while the next one is read from the dataset."""
        flat = flat_table(table)
        schema = schema_of(flat.columns)
        batches = _CountingBatches(_batches(dataset, flat, schema, where=where))
        with (
            whole_file(path) as temporary,
            parquet.ParquetWriter(temporary, schema, compression="zstd") as writer,
            ThreadPoolExecutor(1) as behind,  # a group is compressed while the database reads the next one
        ):
            writing: Future[None] | None = None
            for group in _groups(iter(batches)):
                if writing is not None:
                    writing.result()
                writing = behind.submit(writer.write_table, pyarrow.Table.from_batches(group))
            if writing is not None:
                writing.result()
        return Exported(batches.rows)

    def read(self, path: Path) -> Iterator[tuple[int, FlatRow | None]]:
        """Yield the rows of a Parquet file; columns of later versions are None if the file lacks them."""
        check_columns(path, dict.fromkeys(_opened(path).schema.names))
        return self._numbered(path)

    def _numbered(self, path: Path) -> Iterator[tuple[int, FlatRow | None]]:
        try:
            for number, row in enumerate(parquet_rows(path), 1):
                yield number, dict.fromkeys(ADDED_LATER) | row
        except ValueError as error:  # text that is no JSON where the flat table has nested values
            raise DatasetError(f"{path} is no file of 'op-profiler export': {error}") from error


def _groups(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[list[pyarrow.RecordBatch]]:
    """Yield lists of batches that form one row group: larger row groups make files smaller and faster to read."""
    group: list[pyarrow.RecordBatch] = []
    for batch in batches:
        group.append(batch)
        if sum(one.nbytes for one in group) > _GROUP_BYTES:
            yield group
            group = []
    if group:
        yield group


def write_parts(
    dataset: Dataset,
    folder: Path,
    by: Sequence[str],
    *,
    where: str | None = None,
    table: str = "measurements",
    replace: bool = False,
) -> Exported:
    """Write a folder of Parquet files, one or more for each combination of values of some columns.

    Subfolders are named ``COLUMN=VALUE``, as DuckDB, Spark and pyarrow read them. The folder appears only when it is
    complete.

    Args:
        by: names of partition columns (text, integers or booleans); empty: files without subfolders.
        where: condition in SQL over the columns of the flat table.
        table: one of `TABLES`.
        replace: whether an existing folder is replaced.

    Raises:
        UnknownNameError: the table or a partition column does not exist.
        UsageError: a column has another type, or the folder exists and `replace` is false.
        OpProfilerError: the folder cannot be written.
    """
    flat = flat_table(table)
    schema = schema_of(flat.columns)
    check_parts(flat, by)
    if folder.exists() and not replace:
        raise UsageError(
            f"{folder} exists already; give --output a folder that does not, or add to that one with "
            "op-profiler dataset merge"
        )
    layout = parts.partitioning(pyarrow.schema([schema.field(name) for name in by]), flavor="hive") if by else None
    counted = _CountingBatches(_batches(dataset, flat, schema, where=where))
    with explained(str(folder)), atomic_folder(folder, replace=replace) as partial:
        parts.write_dataset(
            counted,
            partial,
            schema=schema,
            format="parquet",
            file_options=parts.ParquetFileFormat().make_write_options(compression="zstd"),
            partitioning=layout,
            max_rows_per_group=_ROW_GROUP,
            max_partitions=10_000,
        )
    return Exported(counted.rows)


def _batches(
    dataset: Dataset, flat: FlatTable, schema: pyarrow.Schema, *, where: str | None
) -> Iterator[pyarrow.RecordBatch]:
    """Yield the rows of a flat table as Arrow record batches, oldest row first.

    Args:
        schema: schema of the columns, from `schema_of`.
    """
    with dataset.read() as connection:
        for piece in streamed(connection, flat, flat.columns, where=where):
            arrays = map(_array, flat.columns, piece, schema.types)
            yield pyarrow.RecordBatch.from_arrays(list(arrays), schema=schema)


def _array(column: Column, values: Values, kind: pyarrow.DataType) -> pyarrow.Array:
    """Return a column as an Arrow array: samples are lists, and infinities and NaN inside JSON become text."""
    if column.type == "samples":
        return _samples(pyarrow.array(values.distinct, pyarrow.string()), kind)
    array = pyarrow.array(map(_finite, values.distinct) if column.type == "json" else values.distinct, kind)
    return array if values.places is None else array.take(pyarrow.array(np.asarray(values.places)))


@nested
def _finite(text: str | None) -> str | None:
    if text is not None and ("Infinity" in text or "NaN" in text):
        return json_text.dumps(parse_json(text, parse_constant=str))
    return text


def _samples(texts: pyarrow.StringArray, kind: pyarrow.DataType) -> pyarrow.Array:
    """Parse the JSON texts of samples with Arrow's JSON reader, in a quarter of the time that Python lists take.

    Raises:
        DatasetError: a text is not JSON.
    """
    lines = compute.binary_join_element_wise('{"samples":', texts.fill_null("null"), "}\n", "")
    try:
        table = arrow_json.read_json(
            pyarrow.BufferReader(lines.buffers()[2]),
            arrow_json.ReadOptions(use_threads=False),
            arrow_json.ParseOptions(explicit_schema=pyarrow.schema([("samples", kind)])),
        )
    except pyarrow.ArrowInvalid:
        table = None
    if table is None or table.num_rows != len(texts):  # a text ends its line, or is no JSON
        return pyarrow.array([None if text is None else parse_json(text) for text in texts.to_pylist()], kind)
    return pyarrow.concat_arrays(table.column(0).chunks)


class _CountingBatches:
    """An iterator over batches that counts their rows."""

    def __init__(self, batches: Iterator[pyarrow.RecordBatch]) -> None:
        self._batches = batches
        self.rows = 0

    def __iter__(self) -> Iterator[pyarrow.RecordBatch]:
        for batch in self._batches:
            self.rows += batch.num_rows
            yield batch


def check_parts(flat: FlatTable, by: Sequence[str]) -> None:
    """Check that a folder can be partitioned by these columns.

    Raises:
        UnknownNameError: the table has no column of this name.
        UsageError: the values of a column are not text, integers or booleans.
    """
    kinds = {column.name: column.type for column in flat.columns}
    for name in by:
        check_known("column in --partition-by", name, kinds)
        if kinds[name] not in ("text", "integer", "boolean"):
            raise UsageError(
                f"--partition-by {name}: folders are named by text, integers or booleans, not {kinds[name]}"
            )


def parted_by(folder: Path) -> tuple[str, ...] | None:
    """Return the partition columns of a folder of Parquet files; None if the folder contains no file.

    Raises:
        UsageError: the folder contains other files, or files under different partition columns.
    """
    layouts = set()
    for path in sorted(folder.rglob("*")):
        if path.is_dir():
            continue
        if path.suffix != ".parquet":
            raise UsageError(f"{folder} is no folder of Parquet files: it holds {path.relative_to(folder)}")
        layouts.add(_columns_above(path, folder))
    if len(layouts) > 1:
        raise UsageError(f"{folder} is no folder of 'op-profiler export': its files lie in folders of other columns")
    return next(iter(layouts), None)


def _columns_above(path: Path, folder: Path) -> tuple[str, ...]:
    """Return the partition columns of a file: those in the names of the subfolders between `folder` and the file."""
    return tuple(part.partition("=")[0] for part in path.relative_to(folder).parts[:-1])


def read_parquet(path: str | os.PathLike[str], columns: Sequence[str] | None = None) -> list[FlatRow]:
    """Return all rows of a Parquet file or folder as a list of dicts; see `parquet_rows`."""
    return list(parquet_rows(path, columns))


def parquet_rows(
    path: str | os.PathLike[str], columns: Sequence[str] | None = None, where: Sequence[Condition] = ()
) -> Iterator[FlatRow]:
    """Yield the rows of a Parquet file or folder, with the same values as `flat_rows`, in constant memory.

    Nested values are shared between rows, so do not change them.

    Args:
        columns: names of the requested columns; columns that the file lacks are None. None: all columns of the file.
        where: conditions; only rows that fulfil all of them are returned.

    Raises:
        DatasetError: the file is missing, or is not Parquet.
    """
    source = _opened(path)
    there = source.schema.names
    wanted = there if columns is None else [name for name in columns if name in there]
    missing = dict.fromkeys(name for name in columns or () if name not in there)
    nested_columns = {column.name for table in TABLES.values() for column in table.columns if column.type == "json"}
    texts = nested_columns.intersection(wanted)
    parsed = nested(json.loads)
    kept = parquet.filters_to_expression(list(where)) if where else None
    sizes = {"batch_size": _BATCH, "batch_readahead": 1, "fragment_readahead": 1}
    try:
        for batch in source.to_batches(columns=wanted, filter=kept, **sizes):
            for row in batch.to_pylist():
                for name in texts:
                    if row[name] is not None:
                        row[name] = parsed(row[name])
                yield row | missing
    except (OSError, pyarrow.ArrowInvalid) as error:
        raise DatasetError(f"cannot read {path} as Parquet: {error}") from error


def refuse_unknown_columns(path: Path) -> None:
    """Reject a file or folder with unknown columns before it is rewritten, because these columns would be lost.

    Raises:
        UsageError: the file or folder has unknown columns; the message names them.
        DatasetError: the file or folder is not Parquet.
    """
    known = {column.name for column in MEASUREMENTS.columns}
    try:
        found = {name for part in _opened(path).get_fragments() for name in part.physical_schema.names}
    except (OSError, ValueError) as error:
        raise DatasetError(f"cannot read {path} as Parquet: {error}") from error
    if unknown := ", ".join(sorted(found - known)):
        raise UsageError(f"{path} has columns of others, which would be lost: {unknown}; give another path")


def _opened(path: str | os.PathLike[str]) -> Any:
    """Open a Parquet file, or a folder of `write_parts`, as a pyarrow dataset that includes the partition columns.

    Raises:
        DatasetError: the file or folder is missing, or is not Parquet.
    """
    folder = Path(path)
    layout = None
    try:
        if folder.is_dir():
            first = min(folder.rglob("*.parquet"), default=folder / "none")
            names = _columns_above(first, folder)
            known = schema_of([column for table in TABLES.values() for column in table.columns])
            layout = parts.partitioning(
                pyarrow.schema([known.field(known.names.index(n)) for n in names]), flavor="hive"
            )
        return parts.dataset(str(path), format="parquet", partitioning=layout)
    except (OSError, ValueError, pyarrow.ArrowInvalid) as error:
        raise DatasetError(f"cannot read {path} as Parquet: {error}") from error


def schema_of(columns: Sequence[Column]) -> pyarrow.Schema:
    """Return the Arrow schema of flat columns, with their descriptions as metadata."""
    types = {
        "text": pyarrow.string(),
        "integer": pyarrow.int64(),
        "real": pyarrow.float64(),
        "boolean": pyarrow.bool_(),
        "json": pyarrow.string(),
        "samples": pyarrow.list_(pyarrow.list_(pyarrow.float64())),
    }
    return pyarrow.schema(
        [pyarrow.field(c.name, types[c.type], metadata={"description": c.description}) for c in columns]
    )


FORMAT = Parquet()
