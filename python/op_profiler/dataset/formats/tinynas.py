"""The convolution library of TinyNAS's op_profiler: text, milliseconds for the whole batch, -1 for a failure.

{Regular,128,3,480,480,192,7,2,1} 30.9881      {Conv_type,Batch,In_C,In_H,In_W,Out_C,Kernel,Stride,ElmtFused}
Regular 128 3 480 480 192 7 2 1 30.9881        a line of its sample files; the last is a place for the latency

Comments, blank lines and any number of blanks between the fields are accepted, which the original cannot read.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from op_profiler.dataset.formats.format import (
    Convolutions,
    Entry,
    Table,
    latency,
    number_text,
    numbered_lines,
    read_entries,
    whole,
)
from op_profiler.dataset.formats.line_format import TableFormat, convolution
from op_profiler.dataset.formats.shapes import Conv, Shape, same_padding
from op_profiler.dataset.formats.unblock import Unfit
from op_profiler.errors import DatasetError

if TYPE_CHECKING:
    from op_profiler.measure.measurement import Precision

EXAMPLE = "{Regular,128,3,480,480,192,7,2,1} 30.9881"
MECHANISM = "as in a TinyNAS library"
_ROW = re.compile(r"^\{\s*(Regular|Depthwise)\s*((?:,\s*\d+\s*){8})\}\s*(\S+)$")
_SAMPLE = re.compile(r"^(Regular|Depthwise)((?:\s+\d+){8})\s+(\S+)$")
_KINDS = {"Regular": 0, "Depthwise": 1}
_TUPLE = ("Conv_type", "Stride", "ElmtFused", "Kernel", "Batch", "In_C", "In_H", "Out_C")
_MOST_DIGITS = 9  # of a size
_US = 1e3  # microseconds in a millisecond


def parse_fields(line: str) -> tuple[str, tuple[int, ...], str]:
    """Conv_type, the eight numbers from Batch to ElmtFused, and the text of the latency.

    Raises:
        ValueError: not a row of a library or of a sample file.
    """
    found = _ROW.match(line) or _SAMPLE.match(line)
    if found is None:
        raise ValueError(f"not a row such as {EXAMPLE}")
    numbers = re.findall(r"\d+", found[2])
    if max(map(len, numbers)) > _MOST_DIGITS:
        raise ValueError(f"a size of more than {_MOST_DIGITS} digits")
    return found[1], tuple(map(int, numbers)), found[3]


def parse_row(line: str, *, dtype: str = "float32") -> Entry:
    """One row; milliseconds become microseconds.

    Raises:
        ValueError: no row, or no latency.
    """
    kind, numbers, time = parse_fields(line)
    batch, in_channels, height, width, out_channels, kernel, stride, fused = numbers
    if fused not in (0, 1):
        raise ValueError(f"ElmtFused is 0 or 1, not {fused}")
    conv = Conv(
        batch=batch,
        in_channels=in_channels,
        height=height,
        width=width,
        out_channels=out_channels,
        kernel=(kernel, kernel),
        stride=(stride, stride),
        padding=same_padding(kernel),
        groups=in_channels if kind == "Depthwise" else 1,
        residual=fused == 1,
        dtypes=(dtype, dtype, dtype),
    )
    return Entry.of(conv, latency(time, us=_US))


def format_row(conv: Conv, latency_us: float | None) -> str:
    """One row; None is written as -1.

    Raises:
        Unfit: the format has no words for the convolution.
    """
    if conv.kernel[0] != conv.kernel[1] or conv.stride[0] != conv.stride[1]:
        raise Unfit("a kernel or stride that is not square")
    if conv.dilation != (1, 1) or not conv.keeps_size:
        raise Unfit("dilated, or padded in another way than to keep the size")
    if conv.groups != 1 and conv.groups != conv.in_channels:
        raise Unfit("in groups that are not single channels")
    kind = "Depthwise" if conv.groups == conv.in_channels and conv.groups > 1 else "Regular"
    sizes = (conv.batch, conv.in_channels, conv.height, conv.width, conv.out_channels)
    numbers = (*sizes, conv.kernel[0], conv.stride[0], int(conv.residual))
    time = "-1" if latency_us is None else number_text(latency_us / _US)
    return f"{{{kind},{','.join(map(str, numbers))}}} {time}"


def read_table(path: Path, *, dtype: str = "float32") -> Table:
    """Every row of a library, failures included.

    Args:
        dtype: of the tensors, which the format does not say.

    Raises:
        DatasetError: it cannot be read.
    """
    return read_entries(numbered_lines(path), lambda line: parse_row(line, dtype=dtype), mechanism=MECHANISM)


def parse_tuple(row: Mapping[str, str]) -> tuple[int, ...]:
    """A predictor tuple, whose order is another one, in the order of `Convolutions`.

    Raises:
        ValueError: a Conv_type that does not exist, or no whole numbers.
    """
    if row["Conv_type"] not in _KINDS:
        raise ValueError(f"Conv_type is Regular or Depthwise, not {row['Conv_type']!r}")
    names = ("Batch", "In_C", "In_H", "Out_C", "Kernel", "Stride", "ElmtFused")
    return (_KINDS[row["Conv_type"]], *(whole(row[name]) for name in names))


def read_library(path: Path) -> Convolutions:
    """The square rows of a library that have a time.

    Raises:
        DatasetError: it cannot be read, or no line of it is a row.
    """
    rows: list[Sequence[int]] = []
    times: list[float] = []
    failed = unreadable = 0
    for _, line in numbered_lines(path):
        try:
            kind, numbers, text = parse_fields(line)
        except ValueError:
            unreadable += 1
            continue
        batch, in_channels, height, width, *others = numbers
        if height != width:  # every public table has H = W, and the predictors learn from one size
            unreadable += 1
            continue
        time = _time(text)
        if time is None:
            failed += 1
            continue
        rows.append((_KINDS[kind], batch, in_channels, height, *others))
        times.append(time)
    if not rows:
        raise DatasetError(f"{path} holds no rows such as {EXAMPLE}")
    return Convolutions.of(rows, times, failed=failed, unreadable=unreadable)


def write_library(table: Convolutions, path: Path) -> None:
    """The same format; a time that is not known is written as -1."""
    names = {number: name for name, number in _KINDS.items()}
    with path.open("w") as file:
        for row, time in zip(table.matrix, table.latency_us):
            kind, batch, in_channels, size, out_channels, kernel, stride, fused = (int(v) for v in row)
            shape = f"{names[kind]},{batch},{in_channels},{size},{size},{out_channels},{kernel},{stride},{fused}"
            known = math.isfinite(time) and time > 0
            file.write(f"{{{shape}}} {number_text(time / _US)}\n" if known else f"{{{shape}}} -1\n")


def read_tuples(path: Path) -> Convolutions:
    """A CSV of predictor tuples, with their names in the first line.

    Raises:
        DatasetError: it cannot be read, columns are missing, or a line is no tuple.
    """
    rows = list(csv.DictReader(line for _, line in numbered_lines(path)))
    if not rows or not set(_TUPLE) <= set(rows[0]):
        raise DatasetError(f"{path} is no table with the columns {', '.join(_TUPLE)}")
    try:
        return Convolutions.of([parse_tuple(row) for row in rows])
    except (ValueError, TypeError) as error:
        raise DatasetError(f"{path} holds a line that is no predictor tuple: {error}") from error


def _time(text: str) -> float | None:
    try:
        return latency(text, us=_US)
    except ValueError:
        return None


class TinyNas(TableFormat):
    """See the module."""

    takes_precision = True
    says_failures = True

    def read(self, path: Path, precision: Precision) -> Table:
        return read_table(path, dtype=precision)

    def shape_line(self, shape: Shape, row: Mapping[str, Any]) -> str:
        return format_row(convolution(shape), row["median_us"])


FORMAT = TinyNas()
