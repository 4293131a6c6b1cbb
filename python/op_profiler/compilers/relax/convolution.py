"""Two-dimensional convolutions over blocks of channels (NCHWc), for which this TVM has no legalization.

The block sizes are those of Relay's default schedules for most convolutions, so that both compilers lower them to the
same operator. The number of channels of a tensor determines its block size, because this TVM cannot convert one block
size to another.
"""

from __future__ import annotations

from typing import Any

from op_profiler.compilers.relax.vectors import divisor, vectors_of
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.compilers.vectors import Vectors
from op_profiler.operators.kinds.sizes import windows

_SMALLEST_BLOCK = 4
"""With smaller blocks most of a vector would be empty; the width is then vectorized, and layouts stay as they are."""
_NARROW = 4  # a tile is narrow if it fills less than a quarter of the registers


def blocked_layouts(call: Any, lanes: int) -> list[str] | None:
    """Return the new layouts of data, weight and output of a ``relax.nn.conv2d`` in NCHW; None if they do not change.

    Args:
        lanes: number of float32 values in a vector.
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


def registers_of(vectors: Vectors, block: int) -> int:
    """Return the number of output positions whose sums, one block of channels each, fit into the registers together
    with the operands."""
    return max(vectors.accumulators * vectors.lanes // max(block, vectors.lanes), 1)


def computed_width(width: int, registers: int) -> int:
    """Return how many columns of an output are computed: more than `width` if `width` allows only narrow tiles, for
    example because it is prime."""
    if width <= registers or _NARROW * divisor(width, registers) >= registers:
        return width
    return min(-(-width // tile) * tile for tile in range(registers // 2, registers + 1))


def legalize(builder: Any, call: Any) -> Any:
    """Return the call of a TIR function that replaces a ``relax.nn.conv2d``: op_profiler's function if the layouts are
    blocked, otherwise TVM's."""
    topi = load_tvm().topi
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
    width, block = int(call.ty.shape[3]), int(call.ty.shape[4])
    if not depthwise:  # depthwise: one vector is read per summed vector, in tiles of any width
        width = computed_width(width, registers_of(vectors_of(load_tvm().target.Target.current()), block))
    return builder.call_te(
        _blocked,
        call.args[0],
        call.args[1],
        strides,
        padding,
        dilation,
        groups,
        depthwise,
        width,
        primfunc_name_hint="depthwise_conv2d_NCHWc" if depthwise else "conv2d_NCHWc",
    )


def _blocked(
    data: Any,
    weight: Any,
    strides: list[int],
    padding: list[int],
    dilation: list[int],
    groups: int,
    depthwise: bool,
    computed: int,
) -> Any:
    """Return the convolution of blocked tensors, in blocks of channels.

    The shapes are data (n, channels / b, h, w, b) and weight (out / c, channels / groups / b, kh, kw, b, c). In a
    depthwise convolution, each block of channels is computed from the same block, and the second and the fifth
    dimension of the weight are 1. `computed` columns are computed; the output contains the first ones of them.
    """
    tvm = load_tvm()
    te, topi = tvm.te, tvm.topi
    top, left, bottom, right = padding
    batch, _, height, width, _ = data.shape
    out_blocks, in_blocks, kernel_height, kernel_width, in_block, out_block = weight.shape
    out_height, out_width = windows((height, width), (kernel_height, kernel_width), strides, padding, dilation)
    right = max(right, (computed - 1) * strides[1] + dilation[1] * (kernel_width - 1) + 1 - int(width) - left)
    padded = data
    if any((top, left, bottom, right)):
        padded = topi.nn.pad(data, [0, 0, top, left, 0], [0, 0, bottom, right, 0], name="data_pad")
    kh = te.reduce_axis((0, kernel_height), name="kh")
    kw = te.reduce_axis((0, kernel_width), name="kw")
    shape = (batch, out_blocks, out_height, computed, out_block)

    def read(n: Any, block: Any, i: Any, j: Any, lane: Any) -> Any:
        return padded[n, block, i * strides[0] + kh * dilation[0], j * strides[1] + kw * dilation[1], lane]

    if depthwise:
        made = te.compute(
            shape,
            lambda n, oc, oh, ow, lane: te.sum(
                read(n, oc, oh, ow, lane) * weight[oc, 0, kh, kw, 0, lane], axis=[kh, kw]
            ),
            name="conv2d",
        )
        return _cut(made, out_width)
    ic, ici = te.reduce_axis((0, in_blocks), name="ic"), te.reduce_axis((0, in_block), name="ici")
    of_group = out_blocks // groups

    def channel(c: Any) -> Any:
        return ic if groups == 1 else (c // of_group) * in_blocks + ic

    made = te.compute(
        shape,
        lambda n, oc, oh, ow, lane: te.sum(
            read(n, channel(oc), oh, ow, ici) * weight[oc, ic, kh, kw, ici, lane], axis=[ic, kh, kw, ici]
        ),
        name="conv2d",
    )
    return _cut(made, out_width)


def _cut(made: Any, width: Any) -> Any:
    """Return the first `width` columns of the computed ones."""
    te = load_tvm().te
    batch, blocks, height, computed, block = made.shape
    if int(computed) == int(width):
        return made
    return te.compute((batch, blocks, height, width, block), lambda *at: made[at], name="cut")
