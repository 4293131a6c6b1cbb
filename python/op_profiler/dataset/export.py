"""The flat tables as files."""

from __future__ import annotations

import csv
import itertools
import json
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from op_profiler import json_text
from op_profiler.dataset.flat import TABLES, Column, flat_rows, flat_table
from op_profiler.dataset.store import Dataset
from op_profiler.errors import DatasetError, MissingPackageError, UnknownNameError
from op_profiler.files import whole_file

FlatRow = dict[str, Any]
Columns = Sequence[Column]
_BATCH = 500


def export_table(
    dataset: Dataset,
    path: str | os.PathLike[str],
    *,
    format: str,
    where: str | None = None,
    table: str = "measurements",
) -> int:
    """Write a flat table: all measurements, one row each, or all operators that ran beside others.

    The file appears under its name when it is whole; an older one is kept until then.

    Args:
        format: one of `FORMATS`. In CSV an empty cell is a missing value; nested values are JSON in CSV and Parquet,
            except for the samples, which are a list of lists in Parquet.
        where: condition in SQL over the columns, e.g. ``anchor = 'nn.conv2d' and threads = 2``.
        table: one of `op_profiler.dataset.flat.TABLES`.

    Returns:
        The number of rows.

    Raises:
        UsageError: unknown format or table, or a condition that cannot be used; names the columns.
        DatasetError: the dataset cannot be read.
        OpProfilerError: the file cannot be written.
        MissingPackageError: Parquet without pyarrow.
    """
    if format not in FORMATS:
        raise UnknownNameError("format", format, FORMATS)
    flat = flat_table(table)
    with whole_file(Path(path)) as temporary:
        return FORMATS[format](temporary, flat.columns, flat_rows(dataset, where=where, table=flat))


def _write_csv(path: Path, columns: Columns, rows: Iterable[FlatRow]) -> int:
    count = 0
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(column.name for column in columns)
        for count, row in enumerate(rows, 1):  # noqa: B007 - the last one is the number of rows
            writer.writerow(_cell(column, row[column.name]) for column in columns)
    return count


def _cell(column: Column, value: Any) -> Any:
    if value is None:
        return ""
    return value if column.type in ("text", "integer", "real") else json_text.dumps(value)


def _write_jsonl(path: Path, _columns: Columns, rows: Iterable[FlatRow]) -> int:
    count = 0
    with open(path, "w", encoding="utf-8") as file:
        for count, row in enumerate(rows, 1):  # noqa: B007 - the last one is the number of rows
            file.write(json_text.dumps(row, ensure_ascii=False) + "\n")
    return count


def _write_parquet(path: Path, columns: Columns, rows: Iterable[FlatRow]) -> int:
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


def read_parquet(path: str | os.PathLike[str], columns: Sequence[str] | None = None) -> list[FlatRow]:
    """The rows of a file that `export_table` wrote, with the same values as `flat_rows`.

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


def _parquet_schema(pyarrow: Any, columns: Columns) -> Any:
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


Writer = Callable[[Path, Columns, Iterable[FlatRow]], int]

FORMATS: dict[str, Writer] = {"parquet": _write_parquet, "csv": _write_csv, "jsonl": _write_jsonl}
"""Every format with the function that writes it."""
