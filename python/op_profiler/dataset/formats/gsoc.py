"""Tables of the TFLite latency estimator (GSoC): CSV, milliseconds, batch 1.

A depthwise convolution is written with one filter. In some rows of the published tables, height, width and channels are
in another order; such rows are imported unchanged and marked.
"""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from op_profiler.dataset.formats.format import (
    ReadTable,
    TableRow,
    latency,
    number_text,
    numbered_lines,
    read_entries,
    whole,
)
from op_profiler.dataset.formats.line_format import TableFormat, convolution
from op_profiler.errors import DatasetError
from op_profiler.operators.kinds.shapes import Conv, Shape, Unfit

if TYPE_CHECKING:
    from op_profiler.measure.measurement import Precision

COLUMNS = (
    *("model_name", "kernel_size", "filter_size", "input_h", "input_w", "input_channel"),
    *("stride", "padding", "latency_time"),
)
HEADER = ",".join(COLUMNS)
MECHANISM = "as in a table of the TFLite latency estimator"
_US = 1e3  # microseconds in a millisecond


def parse_row(row: Mapping[str, str], *, dtype: str = "float32") -> TableRow:
    """Parse one row, given its cells by the names of `COLUMNS`; milliseconds become microseconds.

    Raises:
        ValueError: the row is not valid, or has no latency.
    """
    names = ("kernel_size", "filter_size", "input_h", "input_w", "input_channel", "stride")
    kernel, filters, height, width, channels, stride = (whole(row[name]) for name in names)
    if min(kernel, filters, height, width, channels, stride) < 1:
        raise ValueError("sizes start at 1")
    depthwise = filters == 1 and channels > 1
    conv = Conv(
        batch=1,
        in_channels=channels,
        height=height,
        width=width,
        out_channels=channels if depthwise else filters,
        kernel=(kernel, kernel),
        stride=(stride, stride),
        padding=_padding(row["padding"].strip().lower(), kernel, stride, (height, width)),
        groups=channels if depthwise else 1,
        dtypes=(dtype, dtype, dtype),
    )
    return TableRow.of(conv, latency(row["latency_time"], us=_US), remark=mixed_up(height, width, channels))


def mixed_up(height: int, width: int, channels: int) -> str | None:
    """Return why height or width seems to be swapped with channels; None if they do not seem to be swapped.

    Images are square in nearly every model. If height and width differ and one of them equals channels, the numbers are
    probably in another order.
    """
    if height != width and channels in (height, width):
        other = "height" if channels == width else "width"
        return f"H={height}, W={width}, C={channels}: {other} and channels look exchanged"
    return None


def format_row(name: str, conv: Conv, latency_us: float) -> list[str]:
    """Return the cells of a convolution's row; microseconds become milliseconds.

    Args:
        name: first cell, the name of the model.

    Raises:
        Unfit: the format cannot express the convolution.
    """
    if conv.batch != 1:
        raise Unfit("a batch size other than 1")
    if conv.kernel[0] != conv.kernel[1] or conv.stride[0] != conv.stride[1] or conv.dilation != (1, 1):
        raise Unfit("dilated, or a kernel or stride that is not square")
    if conv.groups != 1 and not conv.depthwise:
        raise Unfit("in groups that are not single channels")
    if conv.groups == 1 and conv.out_channels == 1 and conv.in_channels > 1:
        raise Unfit("one filter over several channels, which the format would read as depthwise")
    filters = 1 if conv.depthwise else conv.out_channels
    sizes = (conv.kernel[0], filters, conv.height, conv.width, conv.in_channels, conv.stride[0])
    return [name, *map(str, sizes), _padding_word(conv), number_text(latency_us / _US)]


def format_line(cells: list[str]) -> str:
    """Return cells as a line of CSV, without a newline."""
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="").writerow(cells)
    return buffer.getvalue()


def _padding(word: str, kernel: int, stride: int, size: tuple[int, int]) -> tuple[int, int, int, int]:
    if word == "valid":
        return (0, 0, 0, 0)
    if word == "same":
        (top, bottom), (left, right) = (_same(extent, kernel, stride) for extent in size)
        return top, left, bottom, right
    try:
        width = whole(word)
    except ValueError:
        raise ValueError(f"padding is same, valid or a number, not {word!r}") from None
    if width < 0:
        raise ValueError("padding is not negative")
    return (width, width, width, width)


def _same(size: int, kernel: int, stride: int) -> tuple[int, int]:
    """Return TensorFlow's SAME padding before and after one axis; an odd total is larger at the end."""
    total = max((-(-size // stride) - 1) * stride + kernel - size, 0)
    return total // 2, total - total // 2


def _padding_word(conv: Conv) -> str:
    for word in ("valid", "same"):
        if _padding(word, conv.kernel[0], conv.stride[0], (conv.height, conv.width)) == conv.padding:
            return word
    if len(set(conv.padding)) != 1:
        raise Unfit("padding that differs between the sides")
    return str(conv.padding[0])


class Gsoc(TableFormat):
    """The format ``gsoc``: CSV tables of the TFLite latency estimator (GSoC)."""

    takes_precision = True
    header = (HEADER,)

    def read(self, path: Path, precision: Precision) -> ReadTable:
        """Read a CSV table with the columns `COLUMNS`."""
        lines = numbered_lines(path)
        header = next(csv.reader(line for _, line in itertools.islice(lines, 1)), [])
        missing = [name for name in COLUMNS if name not in header]
        if missing:
            raise DatasetError(f"{path} is no table of the TFLite estimator: it lacks the columns {', '.join(missing)}")

        def parse(line: str) -> TableRow:
            cells = next(csv.reader([line]))
            if len(cells) != len(header):
                raise ValueError(f"{len(cells)} cells instead of {len(header)}")
            return parse_row(dict(zip(header, cells)), dtype=precision)

        return read_entries(lines, parse, mechanism=MECHANISM)

    def shape_line(self, shape: Shape, row: Mapping[str, Any]) -> str:
        """Return a CSV line with the name of the model, or of the operator if the row has no model; times in ms.

        Raises:
            Unfit: the format cannot express the operator.
        """
        name = row["model_name"] or row["operator_name"]
        return format_line(format_row(name, convolution(shape), row["median_us"]))


FORMAT = Gsoc()
