"""Latency tables of Paddle: a header, then one operator per line, followed by a tab and microseconds.

op_type<TAB>device<TAB>us                      or, as PaddleSlim documents it: hardware,engine,timestamp
conv,0,0,1,3,640,640,8,1,3,1,2,1<TAB>2433
    conv,flag_bias,flag_relu,n,c_in,h,w,c_out,groups,kernel,pad,stride,dilation
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from op_profiler.dataset.formats.format import (
    ReadTable,
    TableRow,
    UnknownKindError,
    latency,
    number_text,
    numbered_lines,
    read_entries,
)
from op_profiler.dataset.formats.line_format import TableFormat, convolution
from op_profiler.errors import DatasetError
from op_profiler.operators.kinds.shapes import Conv, Shape, Unfit

if TYPE_CHECKING:
    from op_profiler.measure.measurement import Precision

HEADER = "op_type\tdevice\tus"
MECHANISM = "as in a Paddle latency table"
_FIELDS = 13
_US = 1.0  # microseconds in the table's unit, which its header names


def parse_header(line: str) -> str | None:
    """Return the name of the device in a header; None if the header contains the word ``device`` instead of a name.

    PaddleSlim's documentation shows the header ``hardware,engine,timestamp`` without a unit; its tables are in
    microseconds.

    Raises:
        ValueError: the line is not a header, or its unit is not microseconds.
    """
    words = [word.strip() for word in line.split("\t")]
    described = [word.strip() for word in line.split(",")]
    if len(words) == 1 and len(described) == 3 and all(described):
        return described[0]
    if len(words) != 3 or words[0] != "op_type":
        raise ValueError("the first line is neither op_type<TAB>device<TAB>us nor hardware,engine,timestamp")
    if words[2] != "us":
        raise ValueError(f"the header's unit is {words[2]!r}; only us (microseconds) is known")
    return None if words[1] == "device" else words[1]


def parse_row(line: str, *, dtype: str = "float32", device: str | None = None) -> TableRow:
    """Parse one row.

    Raises:
        UnknownKindError: the operator is not a convolution.
        ValueError: the row is not valid, or has no latency.
    """
    name, tab, time = line.partition("\t")
    op, *fields = name.split(",")
    if not tab:
        raise ValueError("no tab between operator and latency")
    if op not in ("conv", "conv2d"):
        raise UnknownKindError(op)
    if len(fields) != _FIELDS - 1:
        raise ValueError(f"{len(fields) + 1} fields before the tab; a convolution has {_FIELDS}")
    bias, relu, batch, in_channels, height, width, out_channels, groups, kernel, pad, stride, dilation = map(
        int, fields
    )
    if bias not in (0, 1) or relu not in (0, 1):
        raise ValueError("flag_bias and flag_relu are 0 or 1")
    conv = Conv(
        batch=batch,
        in_channels=in_channels,
        height=height,
        width=width,
        out_channels=out_channels,
        kernel=(kernel, kernel),
        stride=(stride, stride),
        padding=(pad, pad, pad, pad),
        dilation=(dilation, dilation),
        groups=groups,
        bias=bias == 1,
        activation="nn.relu" if relu else "",
        dtypes=(dtype, dtype, dtype),
    )
    return TableRow.of(conv, latency(time.strip(), us=_US), device=device)


def format_row(conv: Conv, latency_us: float) -> str:
    """Return the table row of a convolution.

    Raises:
        Unfit: the format cannot express the convolution.
    """
    if conv.residual or conv.activation == "clip":
        raise Unfit("fused with more than bias and ReLU")
    if len(set(conv.padding)) != 1:
        raise Unfit("padding that differs between the sides")
    if any(a != b for a, b in (conv.kernel, conv.stride, conv.dilation)):
        raise Unfit("a kernel, stride or dilation that is not square")
    flags = (int(conv.bias), int(conv.activation == "nn.relu"))
    sizes = (conv.batch, conv.in_channels, conv.height, conv.width, conv.out_channels, conv.groups)
    window = (conv.kernel[0], conv.padding[0], conv.stride[0], conv.dilation[0])
    return f"conv,{','.join(map(str, (*flags, *sizes, *window)))}\t{number_text(latency_us / _US)}"


class Paddle(TableFormat):
    """The format ``paddle``: latency tables of Paddle."""

    takes_precision = True
    header = (HEADER,)

    def read(self, path: Path, precision: Precision) -> ReadTable:
        """Read a table whose header names the device."""
        lines = numbered_lines(path)
        try:
            device = parse_header(next(lines, (0, ""))[1])
        except ValueError as error:
            raise DatasetError(f"{path} is no latency table of Paddle: {error}") from error
        return read_entries(lines, lambda line: parse_row(line, dtype=precision, device=device), mechanism=MECHANISM)

    def shape_line(self, shape: Shape, row: Mapping[str, Any]) -> str:
        """Return the line of a convolution in microseconds; raises Unfit for other operators."""
        return format_row(convolution(shape), row["median_us"])


FORMAT = Paddle()
