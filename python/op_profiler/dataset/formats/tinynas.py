"""The convolution library of TinyNAS's op_profiler: text, milliseconds for the whole batch, -1 for a failure.

{Regular,128,3,480,480,192,7,2,1} 30.9881      {Conv_type,Batch,In_C,In_H,In_W,Out_C,Kernel,Stride,ElmtFused}
Regular 128 3 480 480 192 7 2 1 30.9881        a line of its sample files; the last field is for the latency

Comments, blank lines and any number of blanks between the fields are accepted; the original cannot read these.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from op_profiler.dataset.formats.format import (
    Convolutions,
    ReadTable,
    TableRow,
    latency,
    number_text,
    numbered_lines,
    read_entries,
)
from op_profiler.dataset.formats.line_format import TableFormat, convolution
from op_profiler.errors import DatasetError
from op_profiler.operators.kinds.shapes import Conv, Shape, Unfit, same_padding

if TYPE_CHECKING:
    from op_profiler.measure.measurement import Precision

EXAMPLE = "{Regular,128,3,480,480,192,7,2,1} 30.9881"
MECHANISM = "as in a TinyNAS library"
_ROW = re.compile(r"^\{\s*(Regular|Depthwise)\s*((?:,\s*\d+\s*){8})\}\s*(\S+)$")
_SAMPLE = re.compile(r"^(Regular|Depthwise)((?:\s+\d+){8})\s+(\S+)$")
_MOST_DIGITS = 9  # of a size
_US = 1e3  # microseconds in a millisecond


def parse_row(line: str, *, dtype: str = "float32") -> TableRow:
    """Parse one row of a library or of a sample file; milliseconds become microseconds.

    Raises:
        ValueError: the row is not valid, or has no latency.
    """
    found = _ROW.match(line) or _SAMPLE.match(line)
    if found is None:
        raise ValueError(f"not a row such as {EXAMPLE}")
    kind, numbers, time = found[1], re.findall(r"\d+", found[2]), found[3]
    if max(map(len, numbers)) > _MOST_DIGITS:
        raise ValueError(f"a size of more than {_MOST_DIGITS} digits")
    batch, in_channels, height, width, out_channels, kernel, stride, fused = map(int, numbers)
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
    return TableRow.of(conv, latency(time, us=_US))


def format_row(conv: Conv, latency_us: float | None) -> str:
    """Return the library row of a convolution in milliseconds; None, a failure, is written as -1.

    Raises:
        Unfit: the format cannot express the convolution.
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


def read_library(path: Path) -> Convolutions:
    """Return the convolutions of a library that have square inputs and a time.

    Raises:
        DatasetError: the file cannot be read, or contains no such convolution.
    """
    table = FORMAT.read(path, "float32")
    convs = [(convolution(entry.shape), entry.median_us) for _, entry in table.entries]
    square = [(conv, time) for conv, time in convs if conv.height == conv.width]  # as in every public table
    times = [time for _, time in square if time is not None]
    if not times:
        raise DatasetError(f"{path} holds no rows such as {EXAMPLE}")
    return Convolutions.of(
        [_fields(conv) for conv, time in square if time is not None],
        times,
        failed=len(square) - len(times),
        unreadable=len(table.unreadable) + len(convs) - len(square),
    )


def _fields(conv: Conv) -> tuple[int, ...]:
    """Return the values of a convolution in the order of `format.FIELDS`."""
    window = conv.kernel[0], conv.stride[0], int(conv.residual)
    return int(conv.groups > 1), conv.batch, conv.in_channels, conv.height, conv.out_channels, *window


class TinyNas(TableFormat):
    """The format ``tinynas``: the convolution library of TinyNAS's op_profiler."""

    takes_precision = True
    says_failures = True

    def read(self, path: Path, precision: Precision) -> ReadTable:
        """Read the lines of a convolution library."""
        return read_entries(numbered_lines(path), lambda line: parse_row(line, dtype=precision), mechanism=MECHANISM)

    def shape_line(self, shape: Shape, row: Mapping[str, Any]) -> str:
        """Return the line of a convolution in milliseconds, -1 for a failure; raises Unfit for other operators."""
        return format_row(convolution(shape), row["median_us"])


FORMAT = TinyNas()
