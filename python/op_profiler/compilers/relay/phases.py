"""Rewrites transposed convolutions as convolutions, for builds by the rule.

TVM inserts zeros between the values of the input and multiplies them, too. With strides s, the outputs of one phase
(row and column modulo s) are a convolution of the input with every s-th row and column of the kernel. One convolution
therefore computes the phases as channels, and its results are interleaved: for strides of 2, a quarter of the work.
"""

from __future__ import annotations

import itertools

from op_profiler.compilers.relay_rewriting import fixed_shape, with_location_of
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.compilers.tvm_types import Call, Node

_OP = "nn.conv2d_transpose"
_TILES = range(3, 9)


def as_convolution(call: Call, arguments: list[Node]) -> Node | None:
    """Return an expression that computes a transposed convolution by one convolution with the same location; None for
    other calls, and for unsupported forms."""
    if getattr(call.op, "name", "") != _OP:
        return None
    attrs, sizes = call.attrs, [fixed_shape(tensor) for tensor in (*call.args, call)]
    plain = attrs.data_layout == "NCHW" and attrs.kernel_layout == "IOHW" and int(attrs.groups) == 1
    if not plain or any(int(d) != 1 for d in attrs.dilation) or not all(sizes):
        return None
    (batch, _, *image), (channels, outputs, *kernel), (_, _, *result) = sizes
    padding = [int(p) for p in attrs.padding][:2]
    # a single value reaches each result once, as with the largest strides
    strides = [size if one == 1 else int(s) for size, one, s in zip(kernel, image, attrs.strides)]
    relay = load_tvm().relay
    taps = [-(-extent // stride) for extent, stride in zip(kernel, strides)]
    first = [pad // stride for pad, stride in zip(padding, strides)]
    last = [(extent + pad - 1) // stride for extent, pad, stride in zip(result, padding, strides)]
    before = [tap - 1 - start for tap, start in zip(taps, first)]
    after = [max(end + 1 - extent, 0) for end, extent in zip(last, image)]
    if min(before) < 0:
        return None
    rows = [extent + near + far - tap + 1 for extent, near, far, tap in zip(image, before, after, taps)]
    added = _with_tile(rows[1]) - rows[1]
    rows[1], after[1] = rows[1] + added, after[1] + added
    weight = _by_phases(arguments[1], (channels, outputs, *kernel), strides, taps)
    phases = [outputs, *strides]
    convolution = relay.nn.conv2d(
        arguments[0],
        weight,
        padding=(*before, *after),
        channels=outputs * strides[0] * strides[1],
        kernel_size=taps,
        out_dtype=str(attrs.out_dtype),
    )
    apart = relay.reshape(with_location_of(call, convolution), (batch, *phases, *rows))
    together = relay.transpose(apart, (0, 1, 4, 2, 5, 3))
    whole = relay.reshape(together, (batch, outputs, rows[0] * strides[0], rows[1] * strides[1]))
    begin = [pad - start * stride for pad, start, stride in zip(padding, first, strides)]
    end = [start + extent for start, extent in zip(begin, result)]
    return relay.strided_slice(whole, begin=begin, end=end, strides=[1, 1], axes=[2, 3])


def _by_phases(weight: Node, shape: tuple[int, ...], strides: list[int], taps: list[int]) -> Node:
    """Convert a weight (channels, outputs, kernel) to that of a convolution: (outputs and phases, channels, taps)."""
    relay = load_tvm().relay
    channels, outputs, *kernel = shape
    missing = [tap * stride - extent for tap, stride, extent in zip(taps, strides, kernel)]
    if any(missing):
        weight = relay.nn.pad(weight, ((0, 0), (0, 0), (0, missing[0]), (0, missing[1])))
    apart = relay.reshape(weight, (channels, outputs, taps[0], strides[0], taps[1], strides[1]))
    turned = relay.reverse(relay.reverse(apart, axis=2), axis=4)
    ordered = relay.transpose(turned, (1, 3, 5, 0, 2, 4))
    return relay.reshape(ordered, (outputs * strides[0] * strides[1], channels, *taps))


def _with_tile(columns: int) -> int:
    """Return the next number of columns that a tile of 3 to 8 divides; 17 columns would be computed one at a time."""
    return next(n for n in itertools.count(columns) if n < _TILES[0] or any(n % size == 0 for size in _TILES))
