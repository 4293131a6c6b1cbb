"""From the dataset to files of other programs; what a format has no words for is counted, never dropped in silence."""

from __future__ import annotations

import collections
import dataclasses
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np

from op_profiler.dataset.export import FORMATS as FLAT
from op_profiler.dataset.export import export_table
from op_profiler.dataset.flat import FlatTable, flat_rows, flat_table, parse_where
from op_profiler.dataset.formats import autotvm_export, gsoc, paddle, runtime_lut, tinynas
from op_profiler.dataset.formats.flat_table import FlatRow, operator_of_row
from op_profiler.dataset.formats.shapes import Conv, Shape
from op_profiler.dataset.formats.unblock import Unfit, shape_of
from op_profiler.dataset.store import Dataset
from op_profiler.errors import UnknownNameError, UsageError
from op_profiler.files import whole_file

FORMATS = ("tinynas", "runtime_lut", "autotvm", "paddle", "gsoc")


@dataclasses.dataclass(frozen=True)
class Exported:
    """What an export did.

    Attributes:
        rows: lines written, without a header.
        left_out: measurements that the format has no words for, by the reason.
        slower: measurements that are not in the file since a faster one of the same line is.
    """

    rows: int
    left_out: dict[str, int]
    slower: int


@dataclasses.dataclass(frozen=True)
class _Line:
    """A measurement in the words of a format.

    Attributes:
        shape: what the format says about the operator: the same for measurements of which only one can be kept.
        text: the line.
    """

    shape: str
    text: str
    row: FlatRow


def export_table_as(
    dataset: Dataset,
    path: str | os.PathLike[str],
    *,
    format: str,
    where: str | None = None,
    threads: int | None = None,
    device: str | None = None,
    table: str = "measurements",
) -> Exported:
    """Write the measurements that fit into a format; of the flat formats, all.

    All formats but autotvm and runtime_lut name no device, and none names threads or the state of the caches: where
    more than one of these is left, the choices are named instead of mixed.

    Args:
        format: one of `FORMATS`, or of the flat ones of `op_profiler.dataset.FORMATS`.
        where: condition in SQL over the columns of the flat table.
        threads: only measurements with this many threads asked for.
        device: only measurements of this processor (its name) or device (its key).
        table: of the flat formats, which one of `op_profiler.dataset.flat.TABLES`.

    Raises:
        UnknownNameError: no format of this name.
        UsageError: a condition that cannot be used, or one that leaves a choice; names what to choose from.
        DatasetError: the dataset cannot be read.
        OpProfilerError: the file cannot be written.
        MissingPackageError: Parquet without pyarrow.
    """
    condition = _condition(where, threads, device, flat_table(table))
    if format in FLAT:
        return Exported(export_table(dataset, path, format=format, where=condition, table=table), {}, 0)
    if format not in FORMATS:
        raise UnknownNameError("format", format, (*FLAT, *FORMATS))
    if table != "measurements":
        raise UsageError(f"--format {format} writes measurements only; {table} go into {', '.join(FLAT)}")
    left_out: collections.Counter[str] = collections.Counter()
    lines: list[_Line] = []
    for row in flat_rows(dataset, where=condition):
        try:
            lines.append(_line(format, row))
        except Unfit as error:
            left_out[str(error)] += 1
    if format != "autotvm":
        _refuse_choices(lines, with_device=format == "runtime_lut")
    kept = lines if format == "autotvm" else _fastest(lines)
    with whole_file(Path(path)) as temporary, open(temporary, "w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{line}\n" for line in (*_HEADERS.get(format, ()), *(line.text for line in kept)))
    return Exported(len(kept), dict(left_out), len(lines) - len(kept))


def describe(done: Exported) -> list[str]:
    """What is not in the file, a line each."""
    lines = [f"left out: {count} measurements: {reason}" for reason, count in sorted(done.left_out.items())]
    if done.slower:
        lines.append(f"left out: {done.slower} measurements that were slower than another of the same operator")
    return lines


def _condition(where: str | None, threads: int | None, device: str | None, table: FlatTable) -> str | None:
    """The condition with those of the options; `where` is checked alone, so that it cannot reach into the rest."""
    parts = [] if where is None else [f"({parse_where(where, table)})"]
    if threads is not None:
        parts.append(f"threads = {threads}")
    if device is not None:
        name = device.replace("'", "''")
        parts.append(f"(processor = '{name}' or device_key = '{name}')")
    return " and ".join(parts) or None


def _line(format: str, row: FlatRow) -> _Line:
    if not row["complete"]:
        raise Unfit("a check point of a run that did not finish")
    operator = operator_of_row(row)
    if format == "autotvm":
        rounds = autotvm_export.rounds_of(row["samples_us"], row["median_us"])
        record = autotvm_export.record_of(
            operator, template=row["template"], knobs=row["knobs"], target=row["target"], rounds_us=rounds
        )
        return _Line(row["measurement_key"], record.to_json(row["tvm_version"]), row)
    shape = shape_of(operator)
    if row["median_us"] is None and format != "tinynas":
        raise Unfit("a failure, for which the format has no words")
    text = _TEXTS[format](shape, row)
    return _Line(_TEXTS[format](shape, {**row, **_NO_TIMES}), text, row)


_NO_TIMES = {"median_us": 1.0, "min_us": 1.0, "samples_us": []}
"""In place of a row's times, so that the line says the operator alone."""


def _convolution(shape: Shape) -> Conv:
    if not isinstance(shape, Conv):
        raise Unfit("no two-dimensional convolution")
    return shape


def _gsoc(shape: Shape, row: FlatRow) -> str:
    name = row["model_name"] or row["operator_name"]
    return gsoc.format_line(gsoc.format_row(name, _convolution(shape), row["median_us"]))


_TEXTS: dict[str, Callable[[Shape, FlatRow], str]] = {
    "tinynas": lambda shape, row: tinynas.format_row(_convolution(shape), row["median_us"]),
    "paddle": lambda shape, row: paddle.format_row(_convolution(shape), row["median_us"]),
    "gsoc": _gsoc,
    "runtime_lut": lambda shape, row: runtime_lut.format_row(shape, _percentiles(row), row["processor"]),
}

_HEADERS = {"paddle": (paddle.HEADER,), "gsoc": (gsoc.HEADER,)}


def _percentiles(row: FlatRow) -> Sequence[float]:
    """Over the rounds; of an imported table they are what the samples are."""
    rounds = [sum(sample) / len(sample) for sample in row["samples_us"] if sample]
    if row["cache_mechanism"] == runtime_lut.MECHANISM and len(rounds) == len(runtime_lut.PERCENTILES):
        return rounds
    found = [float(value) for value in np.percentile(rounds or [row["median_us"]], runtime_lut.PERCENTILES)]
    found[runtime_lut.PERCENTILES.index(50)] = row["median_us"]
    return found


def _refuse_choices(lines: Sequence[_Line], *, with_device: bool) -> None:
    """What a line does not say has to be the same in all lines.

    Raises:
        UsageError: it is not; names the values and the option that chooses.
    """
    wanted = {
        "processor": "--device {!r}",
        "threads": "--threads {}",
        "cache": '--where "cache = {!r}"',
        "parallel_type": '--where "parallel_type = {!r}"',
        "precision": '--where "precision = {!r}"',
        "origin": '--where "origin = {!r}"',
    }
    if with_device:  # the line says device and dtypes
        del wanted["processor"], wanted["precision"]
    for column, option in wanted.items():
        values = sorted({line.row[column] for line in lines})
        if len(values) > 1:
            choices = " or ".join(option.format(value) for value in values[:8])
            raise UsageError(f"measurements with more than one {column} fit, which the format does not tell; {choices}")


def _fastest(lines: Iterable[_Line]) -> list[_Line]:
    """Of measurements of one line the least median, for no table has two values; any time before a failure."""
    best: dict[str, _Line] = {}
    for line in lines:
        time, known = line.row["median_us"], best.get(line.shape)
        if known is None or (time or np.inf) < (known.row["median_us"] or np.inf):
            best[line.shape] = line
    return list(best.values())
