"""`export_table`: writes the measurements of a dataset to a file in one of the formats."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from sqlalchemy import select

from op_profiler.dataset import schema
from op_profiler.dataset.flat import FlatTable, flat_rows, flat_table, parse_where
from op_profiler.dataset.formats import FORMATS
from op_profiler.dataset.formats.format import Exported
from op_profiler.dataset.store import Dataset
from op_profiler.errors import DatasetError, UsageError
from op_profiler.option_values import several


def export_table(
    dataset: Dataset,
    path: str | os.PathLike[str],
    *,
    format: str,
    where: str | None = None,
    threads: int | None = None,
    device: str | None = None,
    table: str = "measurements",
    partition_by: Sequence[str] = (),
) -> Exported:
    """Write the measurements that a format can express to a file; the flat formats can express all.

    The file appears under its name only when it is complete; an older file is kept until then. Some formats contain no
    device, and only the flat formats contain the thread count and the cache state. Rows that differ in a value that the
    format does not contain are never mixed: UsageError is raised, and its message lists the values to choose from.

    Args:
        format: one of `FORMATS`. In CSV an empty cell is a missing value; nested values are JSON in CSV and Parquet,
            except for the samples, which are a list of lists in Parquet.
        where: condition in SQL over the columns of the flat table, e.g. ``anchor = 'nn.conv2d' and threads = 2``.
        threads: only measurements with this requested thread count.
        device: only measurements of this processor (its name) or device (its key).
        table: name of the flat table, one of `op_profiler.dataset.flat.TABLES`.
        partition_by: columns that partition a folder of Parquet files; `path` is then the folder.

    Raises:
        UnknownNameError: there is no format or table with this name.
        UsageError: the condition is invalid, the rows differ in a value that the format does not contain, or the
            format does not fit `table` or `partition_by`.
        DatasetError: the dataset cannot be read, or does not contain the device; the message lists its devices.
        OpProfilerError: the file cannot be written.
    """
    condition = _condition(where, threads, device, flat_table(table))
    if device is not None:
        _check_device(dataset, device)
    chosen = FORMATS.get(format)
    if table not in chosen.tables:
        others = ", ".join(name for name, one in FORMATS.available() if table in one.tables)
        raise UsageError(f"--format {format} writes {' and '.join(chosen.tables)} only; {table} go into {others}")
    if partition_by:
        if format != "parquet":
            raise UsageError(f"--partition-by is for --format parquet, not {format}")
        from op_profiler.dataset.formats.parquet import write_parts

        done = write_parts(dataset, Path(path), partition_by, where=condition, table=table)
    else:
        done = chosen.write_from(dataset, Path(path), where=condition, table=table)
    if done.rows or done.left_out:
        return done
    flat = flat_table(table)
    count = sum(1 for _ in flat_rows(dataset, columns=flat.order[:1], table=flat))
    reason = f"none of {count} {table} fits {condition}" if count else f"the dataset has no {table}"
    return dataclasses.replace(done, none_since=reason)


def write_trace(path: Path, dataset: Dataset, keys: Sequence[str], note: Callable[[str], None]) -> None:
    """Write the runs of models as a trace for Perfetto.

    Args:
        keys: keys of the models; an empty string for a model that could not be lowered.
        note: called with a line for each kind of measurement that is not in the file.

    Raises:
        OpProfilerError: the dataset cannot be read, or the file cannot be written.
    """
    listed = ", ".join(f"'{key}'" for key in keys)
    done = export_table(dataset, path, format="chrome_trace", where=f"model_key IN ({listed})")
    for line in describe(done):
        note(f"{path}: {line}")


def describe(done: Exported) -> list[str]:
    """Return lines that say how many measurements were not exported, and why; empty if all were exported."""
    lines = [f"no row: {done.none_since}"] if done.none_since else []
    lines += [f"left out: {several(count, 'measurement')}: {reason}" for reason, count in sorted(done.left_out.items())]
    if done.slower:
        lines.append(f"left out: {several(done.slower, 'measurement')} slower than another of the same operator")
    return lines


def _check_device(dataset: Dataset, device: str) -> None:
    there = schema.devices.c
    devices = list(dataset.rows(select(there.key, there.processor).order_by(there.key)))
    if not any(device in (one["key"], one["processor"]) for one in devices):
        known = "; ".join(f"{one['key']} ({one['processor']})" for one in devices) or "none"
        raise DatasetError(f"no device fits {device!r}; choose one with --device: {known}")


def _condition(where: str | None, threads: int | None, device: str | None, table: FlatTable) -> str | None:
    """Return one condition from `where` and the options, or None if none of them is given.

    `where` is checked before it is combined, so it cannot change the conditions of the options.
    """
    parts = [] if where is None else [f"({parse_where(where, table)})"]
    if threads is not None:
        parts.append(f"threads = {threads}")
    if device is not None:
        name = device.replace("'", "''")
        parts.append(f"(processor = '{name}' or device_key = '{name}')")
    return " and ".join(parts) or None
