"""Converters of torch's operators that write values at positions of a tensor, where TVM's own converters differ from
torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.frontends.importers.relay_values import dtype_of, sizes_of

_REDUCTIONS = {"add": "add", "sum": "add", "multiply": "mul", "prod": "mul", "amax": "max", "amin": "min"}


def _copy(inputs: Sequence[Any], _: Sequence[str]) -> Any:
    """aten::copy(data, source, _): return the source in the shape and type of the data."""
    relay = load_tvm().relay
    source = inputs[1] if isinstance(inputs[1], relay.Expr) else relay.const(inputs[1])
    return relay.broadcast_to(relay.cast(source, dtype_of(inputs[0])), sizes_of(inputs[0]))


def _select_scatter(inputs: Sequence[Any], types: Sequence[str]) -> Any:
    """aten::select_scatter(whole, part, axis, place)"""
    whole, part, axis, place = inputs
    place = int(place) % sizes_of(whole)[axis]
    return _slice_scatter(
        [whole, load_tvm().relay.expand_dims(part, axis % len(sizes_of(whole))), axis, place, place + 1, 1], types
    )


def _slice_scatter(inputs: Sequence[Any], _: Sequence[str]) -> Any:
    """aten::slice_scatter(whole, part, axis, start, end, step)"""
    relay = load_tvm().relay
    whole, part, axis, *places = inputs
    shape = sizes_of(whole)
    axis, size = axis % len(shape), shape[axis]
    if any(isinstance(place, relay.Expr) for place in places):
        raise NotImplementedError("writing in place to a part whose place is computed while running")
    begin, end, step = slice(*places).indices(size)
    wanted = dtype_of(whole)
    part = part if dtype_of(part) == wanted else relay.cast(part, wanted)
    if step == 1:
        before = relay.strided_slice(whole, [0], [begin], axes=[axis])
        after = relay.strided_slice(whole, [end], [size], axes=[axis])
        parts = [piece for piece, has in ((before, begin > 0), (part, end > begin), (after, end < size)) if has]
        return relay.concatenate(parts, axis) if len(parts) > 1 else parts[0]
    order = np.arange(size)
    order[begin:end:step] = size + np.arange(len(order[begin:end:step]))
    return relay.take(relay.concatenate([whole, part], axis), relay.const(order), axis=axis)


def _scatter(inputs: Sequence[Any], _: Sequence[str]) -> Any:
    """aten::scatter(data, axis, index, source, reduce) and aten::scatter_reduce(data, axis, index, source, reduce,
    include_self). Only as many elements of the source are used as there are indices; TVM uses all."""
    relay = load_tvm().relay
    data, axis, index, source, *rest = inputs
    shape, wanted = sizes_of(data), sizes_of(index)
    if not np.prod(wanted):
        return data
    axis %= len(shape)
    if rest and rest[0] == "mean":
        raise NotImplementedError("aten::scatter_reduce by mean; add up values and ones, and divide")
    if len(rest) > 1 and not rest[1]:
        raise NotImplementedError("aten::scatter_reduce without the values that are there")
    if any(size != wide for i, (size, wide) in enumerate(zip(wanted, shape, strict=True)) if i != axis):
        raise NotImplementedError("aten::scatter with fewer indices than data beside the axis; scatter into a slice")
    if isinstance(source, relay.Expr):
        source = relay.cast(source, dtype_of(data))
        if sizes_of(source) != wanted:
            source = relay.strided_slice(source, [0] * len(wanted), wanted)
    else:
        source = relay.full(relay.const(source, dtype_of(data)), wanted, dtype_of(data))
    reduction = _REDUCTIONS[rest[0]] if rest and rest[0] else "update"
    return relay.scatter_elements(data, index, source, axis=axis, reduction=reduction)


def _index_put(inputs: Sequence[Any], _: Sequence[str]) -> Any:
    """aten::index_put(data, indices, values, accumulate). TVM's own converter treats Booleans as positions, and does
    not broadcast values over positions."""
    relay = load_tvm().relay
    data, indices, values, accumulate = inputs
    shape, dtype = sizes_of(data), dtype_of(data)
    values = relay.cast(values if isinstance(values, relay.Expr) else relay.const(values), dtype)
    if None in indices:
        raise NotImplementedError("aten::index_put beside axes that are taken whole; select these parts first")
    if any(dtype_of(index) in ("bool", "uint8") for index in indices):
        if len(indices) > 1 or accumulate or np.prod(sizes_of(values)) != 1:
            raise NotImplementedError("aten::index_put by a mask of more than one value; use torch.where instead")
        mask = sizes_of(indices[0])
        wide = relay.reshape(indices[0], (*mask, *[1] * (len(shape) - len(mask))))
        return relay.where(relay.cast(wide, "bool"), relay.reshape(values, ()), data)
    common = np.broadcast_shapes(*(tuple(sizes_of(index)) for index in indices))
    places = []
    for index, size in zip(indices, shape, strict=False):
        index = relay.broadcast_to(relay.cast(index, "int64"), common)
        end = relay.const(size, "int64")
        places.append(relay.where(relay.less(index, relay.const(0, "int64")), relay.add(index, end), index))
    values = relay.broadcast_to(values, (*common, *shape[len(indices) :]))
    return relay.scatter_nd(data, relay.stack(places, axis=0), values, "add" if accumulate else "update")


PLACE_CONVERTERS = {
    "aten::copy": _copy,
    "aten::slice_scatter": _slice_scatter,
    "aten::select_scatter": _select_scatter,
    "aten::scatter": _scatter,
    "aten::scatter_reduce": _scatter,
    "aten::scatter_add": lambda inputs, types: _scatter([*inputs[:4], "add"], types),
    "aten::index_put": _index_put,
}
"""Converters by the name of the operator."""
