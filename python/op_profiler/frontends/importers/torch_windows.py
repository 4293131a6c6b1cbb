"""Converters of torch's operators over windows and channels of images, where Relay or TVM's importer lacks a case."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.frontends.importers.pool_windows import begins_outside, reach_behind
from op_profiler.frontends.importers.relay_values import dtype_of, number_of, shape_of, sizes_of, tvm_converters
from op_profiler.frontends.importers.torch_converters import weight_or
from op_profiler.operators.kinds.sizes import windows

_POOLS = [f"aten::{kind}_pool{rank}d" for kind in ("max", "avg", "adaptive_avg", "adaptive_max") for rank in (1, 2, 3)]

_PADDINGS = {None: "constant", "replicate": "edge"}
"""Relay's names of modes that have another name there."""


def _convolution(inputs: Sequence[Any], types: Sequence[str]) -> Any:
    """aten::_convolution(data, weight, bias, stride, padding, dilation, transposed, output_padding, groups, ...). Relay
    does not support transposed convolutions with dilation, or with groups in 3-D: they are written as convolutions of
    the data with zeros between its elements, with the flipped kernel."""
    data, weight, bias, strides, padding, dilation, transposed, beyond, groups, *rest = inputs
    rank = len(shape_of(weight)) - 2
    special = transposed and (any(int(one) != 1 for one in dilation) or (rank == 3 and int(groups) > 1))
    if rank == 3 and not transposed and _multiplies_channels(weight, int(groups)):
        return _convolution_3d(data, weight, bias, strides, padding, dilation, int(groups))
    if not special:
        return tvm_converters().convolution(inputs, types)
    relay = load_tvm().relay
    inner, outer, *kernel = sizes_of(weight)
    weight = relay.reshape(weight, (groups, inner // groups, outer, *kernel))
    weight = relay.transpose(weight, (0, 2, 1, *range(3, 3 + rank)))
    weight = relay.reshape(weight, (groups * outer, inner // groups, *kernel))
    for axis in range(rank):
        weight = relay.reverse(weight, 2 + axis)
    data = relay.nn.dilate(data, [1, 1, *strides])
    ones = [1] * rank
    reach = [step * (size - 1) - around for step, size, around in zip(dilation, kernel, padding, strict=True)]
    data = _padded(data, [(lost, lost + more) for lost, more in zip(reach, beyond, strict=True)])
    given = [data, weight, bias, ones, [0] * rank, dilation, False, [0] * rank, groups, *rest]
    return _convolution(given, types)


def _multiplies_channels(weight: Any, groups: int) -> bool:
    """Return whether each group has one input channel and several output channels."""
    outer, inner, *_ = sizes_of(weight)
    return groups > 1 and inner == 1 and outer != groups


def _convolution_3d(data: Any, weight: Any, bias: Any, strides: Any, padding: Any, dilation: Any, groups: int) -> Any:
    """TVM's own converter arranges the weight as Relay expects it of depthwise convolutions in 2-D only."""
    relay = load_tvm().relay
    outer, _, *kernel = sizes_of(weight)
    sizes = {"channels": outer, "kernel_size": kernel, "groups": groups}
    made = relay.nn.conv3d(data, weight, strides, padding, dilation, **sizes)
    return made if bias is None else relay.nn.bias_add(made, bias)


def _padded(data: Any, padding: Sequence[tuple[int, int]]) -> Any:
    """Return data padded with zeros before and after along its last axes; negative numbers remove elements."""
    relay = load_tvm().relay
    shape = sizes_of(data)
    first = len(shape) - len(padding)
    begins = [0] * first + [max(0, -before) for before, _ in padding]
    ends = shape[:first] + [size - max(0, -behind) for size, (_, behind) in zip(shape[first:], padding, strict=True)]
    if begins != [0] * len(shape) or ends != shape:
        data = relay.strided_slice(data, begins, ends)
    wide = [(0, 0)] * first + [(max(0, before), max(0, behind)) for before, behind in padding]
    return relay.nn.pad(data, wide) if any(map(any, wide)) else data


def _col2im(inputs: Sequence[Any], _: Sequence[str]) -> Any:
    """aten::col2im(columns, size, kernel, dilation, padding, stride): the sum of windows at their positions."""
    relay = load_tvm().relay
    data, sizes, kernel, dilation, padding, strides = inputs
    if len(shape_of(data)) == 2:
        batched = _col2im([relay.expand_dims(data, 0), *inputs[1:]], _)
        return relay.squeeze(batched, [0])
    batch, rows, _count = sizes_of(data)
    sizes = [int(number_of(size)) for size in sizes]
    options = list(zip(sizes, kernel, dilation, padding, strides, strict=True))
    counts = windows(sizes, kernel, strides, (*padding, *padding), dilation)
    channels = rows // int(np.prod(kernel))
    if all(s == k and d == 1 and n % k == 0 and not p for n, k, d, p, s in options):
        places = relay.reshape(data, (batch, channels, *kernel, *counts))
        return relay.reshape(relay.transpose(places, (0, 1, 4, 2, 5, 3)), (batch, channels, *sizes))
    taken = relay.reshape(data, (batch, channels, int(np.prod(kernel)), *counts))
    total = None
    for number, place in enumerate(np.ndindex(*kernel)):
        part = relay.squeeze(relay.strided_slice(taken, [number], [number + 1], axes=[2]), [2])
        part = relay.nn.dilate(part, [1, 1, *strides])
        around = []
        for at, count, (n, _k, d, p, s) in zip(place, counts, options, strict=True):
            before = at * d - p
            around.append((before, n - before - (count - 1) * s - 1))
        part = _padded(part, around)
        total = part if total is None else relay.add(total, part)
    return total


def _pixel_unshuffle(inputs: Sequence[Any], _: Sequence[str]) -> Any:
    """aten::pixel_unshuffle(data, factor): blocks of pixels as channels, of any number of leading dimensions."""
    relay = load_tvm().relay
    data, factor = inputs
    *leading, channels, height, width = sizes_of(data)
    inner = (channels, height // factor, factor, width // factor, factor)
    turned = relay.transpose(relay.reshape(data, (-1, *inner)), (0, 1, 3, 5, 2, 4))
    return relay.reshape(turned, (*leading, channels * factor**2, height // factor, width // factor))


def _pixel_shuffle(inputs: Sequence[Any], _: Sequence[str]) -> Any:
    """aten::pixel_shuffle(data, factor). TVM's own converter accepts four dimensions only."""
    relay = load_tvm().relay
    data, factor = inputs
    if len(shape_of(data)) == 4:
        return tvm_converters().pixel_shuffle(inputs, _)
    *leading, channels, height, width = sizes_of(data)
    less = channels // factor**2
    turned = relay.transpose(relay.reshape(data, (-1, less, factor, factor, height, width)), (0, 1, 4, 2, 5, 3))
    return relay.reshape(turned, (*leading, less, height * factor, width * factor))


def _pool(kind: str) -> Any:
    """Return a converter of aten::max_pool2d(data, ...) and similar operators, whose data may have no batch."""
    rank = int(kind[-2])

    def pool(inputs: Sequence[Any], types: Sequence[str]) -> Any:
        relay = load_tvm().relay
        usual = tvm_converters().convert_map[kind] if "adaptive" in kind else functools.partial(_rounded_up, kind)
        data, *rest = inputs
        if len(shape_of(data)) != rank + 1:
            return usual(inputs, types)
        made = usual([relay.expand_dims(data, 0), *rest], types)
        if isinstance(made, tuple):  # with the places of the largest, which are none
            return relay.squeeze(made[0], [0]), *made[1:]
        return relay.squeeze(made, [0])

    return pool


def _rounded_up(kind: str, inputs: Sequence[Any], types: Sequence[str]) -> Any:
    """aten::max_pool2d(data, size, steps, padding, dilation, rounds up), aten::avg_pool2d(data, size, steps, padding,
    rounds up, counts padding, divisor). torch drops windows that would start in the padding after the data; TVM's
    importer keeps them along every axis or none, and ignores the divisor."""
    relay = load_tvm().relay
    data, size, steps, around, *options = inputs
    mean, rank = "avg" in kind, int(kind[-2])
    dilation, rounds_up = ([1] * rank, options[0]) if mean else options[:2]
    counted, divisor = (options[1], *options[2:], None)[:2] if mean else (False, None)
    size, steps, around, dilation = (
        [int(number_of(one)) for one in (given * rank if len(given) == 1 else given)]
        for given in (size, steps or size, around, dilation)
    )
    extents = shape_of(data)[-rank:]
    known = all(isinstance(one, int) for one in extents)
    pads = [(one, one) for one in around]
    spans = list(zip(extents if known else [None] * rank, size, steps, pads, dilation, strict=True))
    outside = [begins_outside(*one) for one in spans] if rounds_up else []
    scale = None if divisor is None else relay.const(math.prod(size) / int(number_of(divisor)), dtype_of(data))
    if False not in outside or True not in outside and scale is None:
        rounds_up = rounds_up and True not in outside
        options = [rounds_up, counted or scale is not None, None] if mean else [dilation, rounds_up]
        made = tvm_converters().convert_map[kind]([data, *inputs[1:4], *options], types)
        return made if scale is None else relay.multiply(made, scale)
    reach = [max(0, reach_behind(*one)) for one in spans]
    if counted and scale is None:
        zeros = [min(more, one) for more, one in zip(reach, around, strict=True)]
        data = _padded(data, list(zip(around, zeros, strict=True)))
        around, reach = [0] * rank, [more - zero for more, zero in zip(reach, zeros, strict=True)]
    more = {"count_include_pad": scale is not None} if mean else {}
    function = getattr(relay.nn, f"{'avg' if mean else 'max'}_pool{rank}d")
    made = function(data, size, steps, dilation, (*around, *reach), ceil_mode=False, **more)
    return made if scale is None else relay.multiply(made, scale)


def _pad(inputs: Sequence[Any], types: Sequence[str]) -> Any:
    """aten::pad(data, widths, mode, value). TVM's own converter pads at most the last three axes, and has no circular
    mode, which repeats the data."""
    relay = load_tvm().relay
    data, widths, *options = inputs
    mode, value = (*options, None, None)[:2]
    widths = [int(number_of(one)) for one in widths]
    around = list(zip(widths[::2], widths[1::2], strict=True))  # of the last axis first
    if not any(widths):
        return data
    if mode != "circular":
        axes = [(0, 0)] * (len(shape_of(data)) - len(around)) + around[::-1]
        filling = {"pad_value": 0 if value is None else value} if mode in (None, "constant") else {}
        return relay.nn.pad(data, axes, pad_mode=_PADDINGS.get(mode, mode), **filling)
    for place, (before, behind) in enumerate(around):
        axis = len(shape_of(data)) - 1 - place
        size = sizes_of(data)[axis]
        if before < 0 or behind < 0:
            raise NotImplementedError("circular padding with negative widths; slice the data instead")
        parts = [relay.strided_slice(data, [size - before], [size], axes=[axis])] if before else []
        parts += [data, *([relay.strided_slice(data, [0], [behind], axes=[axis])] if behind else [])]
        data = relay.concatenate(parts, axis) if len(parts) > 1 else data
    return data


def _constant_pad(inputs: Sequence[Any], types: Sequence[str]) -> Any:
    """aten::constant_pad_nd(data, widths, value)."""
    data, widths, *value = inputs
    return _pad([data, widths, "constant", *value], types)


def _group_norm(inputs: Sequence[Any], types: Sequence[str]) -> Any:
    """aten::group_norm(data, groups, weight, bias, epsilon, _). TVM's own converter requires a weight and a bias."""
    data, groups, weight, bias, *rest = inputs
    channels = sizes_of(data)[1:2]
    weight, bias = weight_or(1, weight, channels, types), weight_or(0, bias, channels, types)
    return tvm_converters().group_norm([data, groups, weight, bias, *rest], types)


WINDOW_CONVERTERS = {
    "aten::_convolution": _convolution,
    "aten::col2im": _col2im,
    "aten::pixel_unshuffle": _pixel_unshuffle,
    "aten::pixel_shuffle": _pixel_shuffle,
    "aten::pad": _pad,
    "aten::constant_pad_nd": _constant_pad,
    "aten::group_norm": _group_norm,
    **{kind: _pool(kind) for kind in _POOLS},
}
"""Converters by the name of the operator."""
