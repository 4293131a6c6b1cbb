"""Convolutions of two dimensions over blocks of channels (NCHWc), which this TVM has no legalization for.

The blocks are those that Relay's default schedules take for most convolutions, so that both compilers lower them to the
same operator. How many channels a tensor has decides its block, since this TVM cannot go from one block to another.
"""

from __future__ import annotations

from typing import Any

from op_profiler.compilers.relax.vectors import divisor
from op_profiler.compilers.tvm_build import load_tvm

_SMALLEST_BLOCK = 4
"""With smaller blocks most of a vector is empty; the width is vectorized then, and layouts stay as they are."""
_SPATIAL = 2


def blocked_layouts(call: Any, lanes: int) -> list[str] | None:
    """Layouts of data, weight and output that a ``relax.nn.conv2d`` in NCHW is to have; None for those it has.

    Args:
        lanes: float32 values in a vector.
    """
    data, weight = ([_size(d) for d in argument.ty.shape] for argument in call.args[:2])
    if call.attrs.kernel_layout != "OIHW" or None in (*data[1:], *weight):
        return None
    groups, channels, out = int(call.attrs.groups), int(data[1] or 0), int(weight[0] or 0)
    inner, block = divisor(channels, lanes), divisor(out, lanes)
    if block < _SMALLEST_BLOCK:
        return None
    if groups > 1 and groups == channels == out:
        return [f"NCHW{block}c", f"OIHW1i{block}o", f"NCHW{block}c"]
    if (channels // groups) % inner or (out // groups) % block:
        return None
    return [f"NCHW{inner}c", f"OIHW{inner}i{block}o", f"NCHW{block}c"]


def _size(dim: Any) -> int | None:
    value = getattr(dim, "value", None)
    return None if value is None else int(value)


def legalize(builder: Any, call: Any) -> Any:
    """A call of TIR for a ``relax.nn.conv2d``; as this TVM has it where the layouts are not blocked."""
    load_tvm()
    from tvm import topi

    attrs = call.attrs
    groups = int(attrs.groups)
    if len(attrs.data_layout) == len("NCHW"):
        return builder.call_te(
            topi.nn.conv,
            inp=call.args[0],
            filt=call.args[1],
            stride=attrs.strides,
            padding=attrs.padding,
            dilation=attrs.dilation,
            groups=groups,
            data_layout=attrs.data_layout,
            kernel_layout=attrs.kernel_layout,
            out_dtype=attrs.out_dtype if str(attrs.out_dtype) not in ("", "void") else None,
            primfunc_name_hint="conv2d",
        )
    strides, padding, dilation = ([int(v) for v in field] for field in (attrs.strides, attrs.padding, attrs.dilation))
    depthwise = groups > 1 and int(call.args[1].ty.shape[1]) == 1 and int(call.args[1].ty.shape[4]) == 1
    return builder.call_te(
        _blocked,
        call.args[0],
        call.args[1],
        strides,
        padding,
        dilation,
        groups,
        depthwise,
        primfunc_name_hint="depthwise_conv2d_NCHWc" if depthwise else "conv2d_NCHWc",
    )


def _blocked(
    data: Any, weight: Any, strides: list[int], padding: list[int], dilation: list[int], groups: int, depthwise: bool
) -> Any:
    """data (n, channels / b, h, w, b), weight (out / c, channels / groups / b, kh, kw, b, c); gives blocks too.

    In a depthwise convolution each block of channels is computed from the same block, and the weight's third last but
    one dimension is 1.
    """
    load_tvm()
    from tvm import te, topi

    top, left, bottom, right = padding
    batch, _, height, width, _ = data.shape
    out_blocks, in_blocks, kernel_height, kernel_width, in_block, out_block = weight.shape
    out_height = (height + top + bottom - dilation[0] * (kernel_height - 1) - 1) // strides[0] + 1
    out_width = (width + left + right - dilation[1] * (kernel_width - 1) - 1) // strides[1] + 1
    padded = data
    if any(padding):
        padded = topi.nn.pad(data, [0, 0, top, left, 0], [0, 0, bottom, right, 0], name="data_pad")
    kh = te.reduce_axis((0, kernel_height), name="kh")
    kw = te.reduce_axis((0, kernel_width), name="kw")
    shape = (batch, out_blocks, out_height, out_width, out_block)

    def row(i: Any) -> Any:
        return i * strides[0] + kh * dilation[0]

    def column(j: Any) -> Any:
        return j * strides[1] + kw * dilation[1]

    if depthwise:
        return te.compute(
            shape,
            lambda n, oc, oh, ow, lane: te.sum(
                padded[n, oc, row(oh), column(ow), lane] * weight[oc, 0, kh, kw, 0, lane], axis=[kh, kw]
            ),
            name="conv2d",
        )
    ic = te.reduce_axis((0, in_blocks), name="ic")
    ici = te.reduce_axis((0, in_block), name="ici")
    of_group = out_blocks // groups

    def channel(c: Any) -> Any:
        return ic if groups == 1 else (c // of_group) * in_blocks + ic

    return te.compute(
        shape,
        lambda n, oc, oh, ow, lane: te.sum(
            padded[n, channel(oc), row(oh), column(ow), ici] * weight[oc, ic, kh, kw, ici, lane],
            axis=[ic, kh, kw, ici],
        ),
        name="conv2d",
    )
