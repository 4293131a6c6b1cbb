"""The flat table in Parquet, its columns with types and descriptions, so that a file explains itself.

Nested values are JSON, except for the samples, which are lists of lists.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from op_profiler import json_text
from op_profiler.dataset.flat import TABLES, Column
from op_profiler.dataset.formats.flat_format import FlatFormat, check_columns
from op_profiler.dataset.formats.flat_table import ADDED_LATER, FlatRow
from op_profiler.errors import DatasetError, MissingPackageError

_BATCH = 500


class Parquet(FlatFormat):
    """See the module."""

    def write(self, path: Path, columns: Sequence[Column], rows: Iterable[FlatRow]) -> int:
        pyarrow, parquet = _pyarrow()
        schema = _parquet_schema(pyarrow, columns)
        nested = [column.name for column in columns if column.type == "json"]
        count, remaining = 0, iter(rows)
        with parquet.ParquetWriter(path, schema, compression="zstd") as writer:
            while batch := list(itertools.islice(remaining, _BATCH)):
                for row in batch:
                    row.update((name, json_text.dumps(row[name])) for name in nested if row[name] is not None)
                writer.write_table(pyarrow.Table.from_pylist(batch, schema))
                count += len(batch)
        return count

    def read(self, path: Path) -> Iterator[tuple[int, FlatRow | None]]:
        try:
            rows = read_parquet(path)
        except ValueError as error:  # text that is no JSON where the flat table has nested values
            raise DatasetError(f"{path} is no file of 'op-profiler export': {error}") from error
        from pyarrow import parquet  # `read_parquet` has said what to do where it is missing

        check_columns(path, dict.fromkeys(parquet.read_schema(path).names))
        return iter(enumerate((dict.fromkeys(ADDED_LATER) | row for row in rows), 1))


def read_parquet(path: str | os.PathLike[str], columns: Sequence[str] | None = None) -> list[FlatRow]:
    """The rows of a file of this format, with the same values as `flat_rows`.

    Columns that came after the file was written are None.

    Args:
        columns: names of those that are wanted; None for all.

    Raises:
        DatasetError: the file is missing or no Parquet file.
        MissingPackageError: pyarrow is not installed.
    """
    pyarrow, parquet = _pyarrow()
    try:
        there = parquet.read_schema(path).names
        later = [] if columns is None else [name for name in columns if name not in there]
        wanted = None if columns is None else [name for name in columns if name in there]
        rows: list[FlatRow] = parquet.read_table(path, columns=wanted).to_pylist()
    except (OSError, pyarrow.ArrowInvalid) as error:
        raise DatasetError(f"cannot read {path} as Parquet: {error}") from error
    nested = {column.name for table in TABLES.values() for column in table.columns if column.type == "json"}
    return [
        {k: json.loads(v) if k in nested and v is not None else v for k, v in row.items()} | dict.fromkeys(later)
        for row in rows
    ]


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise MissingPackageError("pyarrow", "Parquet", extra="all") from None
    return pyarrow, parquet


def _parquet_schema(pyarrow: ModuleType, columns: Sequence[Column]) -> Any:
    """The columns with their descriptions, so that a file explains itself."""
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
