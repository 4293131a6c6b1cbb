"""Operators of torch that only rearrange elements, and that TVM's importer does not support."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.frontends.importers.relay_values import dtype_of, shape_of, sizes_of, tvm_converters


def _unfold(inputs: Sequence[Any], _: Sequence[str]) -> Any:
    """aten::unfold(data, axis, size, step): windows along an axis, as a last dimension."""
    relay = load_tvm().relay
    data, axis, size, step = inputs
    shape = sizes_of(data)
    axis %= len(shape)
    count = (shape[axis] - size) // step + 1
    if size == step:
        whole = relay.strided_slice(data, begin=[0], end=[count * size], axes=[axis])
        windows = relay.reshape(whole, (*shape[:axis], count, size, *shape[axis + 1 :]))
        return relay.transpose(windows, _moved(len(shape) + 1, [axis + 1], [len(shape)]))
    ends = [(count - 1) * step + 1 + at for at in range(size)]
    parts = [relay.strided_slice(data, [at], [end], [step], axes=[axis]) for at, end in enumerate(ends)]
    return relay.stack(parts, axis=len(shape))


def _movedim(inputs: Sequence[Any], _: Sequence[str]) -> Any:
    """aten::movedim(data, sources, places)"""
    data, *axes = inputs
    sources, places = ([one] if isinstance(one, int) else one for one in axes)
    return load_tvm().relay.transpose(data, _moved(len(shape_of(data)), sources, places))


def _moved(rank: int, sources: Sequence[int], places: Sequence[int]) -> list[int]:
    """Return the order of dimensions after some were moved to other positions."""
    order = [axis for axis in range(rank) if axis not in [one % rank for one in sources]]
    for place, source in sorted((place % rank, source % rank) for place, source in zip(places, sources, strict=True)):
        order.insert(place, source)
    return order


def _joined(axis: int, rank: int) -> Any:
    """Return a converter of aten::hstack(tensors) and similar operators. Tensors with fewer dimensions get new ones:
    the first two in front, a third one at the end.

    Args:
        axis: axis to concatenate along; -1 for the second, or the first if there is only one.
        rank: least number of dimensions of the tensors.
    """

    def join(inputs: Sequence[Any], _: Sequence[str]) -> Any:
        relay = load_tvm().relay
        tensors = [_with_rank(one, rank) for one in inputs[0]]
        along = min(1, len(shape_of(tensors[0])) - 1) if axis < 0 else axis
        return relay.concatenate(tensors, axis=along)

    return join


def _with_rank(data: Any, rank: int) -> Any:
    shape = tuple(sizes_of(data))
    if len(shape) >= rank:
        return data
    wide = (1,) * (min(rank, 2) - len(shape)) + shape
    return load_tvm().relay.reshape(data, wide + (1,) * (rank - len(wide)))


def _take_along_dim(inputs: Sequence[Any], _: Sequence[str]) -> Any:
    """aten::take_along_dim(data, indices, axis); data and indices are broadcast along all other axes. Indices may count
    from the end."""
    relay = load_tvm().relay
    data, indices, axis = inputs
    if axis is None:
        return relay.take(relay.reshape(data, (-1,)), relay.reshape(indices, (-1,)))
    kind, size = dtype_of(indices), int(shape_of(data)[axis])
    indices = relay.where(relay.less(indices, relay.const(0, kind)), indices + relay.const(size, kind), indices)
    axis %= len(shape_of(data))
    wide = [max(sizes) for sizes in zip(map(int, shape_of(data)), map(int, shape_of(indices)), strict=True)]
    sizes = [[*wide[:axis], int(shape_of(one)[axis]), *wide[axis + 1 :]] for one in (data, indices)]
    data, indices = (relay.broadcast_to(one, size) for one, size in zip((data, indices), sizes, strict=True))
    return relay.gather(data, axis, indices)


def _diagonal(inputs: Sequence[Any], _: Sequence[str]) -> Any:
    """aten::diagonal(data, offset, first, second); the diagonal becomes the last dimension."""
    relay = load_tvm().relay
    data, offset, first, second = inputs
    shape = sizes_of(data)
    places = np.arange(shape[first] * shape[second]).reshape(shape[first], shape[second]).diagonal(offset)
    data = relay.transpose(data, _moved(len(shape), [first, second], [-2, -1]))
    flat = relay.reshape(data, (*sizes_of(data)[:-2], -1))
    return relay.take(flat, relay.const(places.astype("int64")), axis=-1)


def _upsample_nearest1d(inputs: Sequence[Any], _: Sequence[str]) -> Any:
    """aten::upsample_nearest1d(data, size, scales)"""
    data, sizes, scales = inputs
    sizes = sizes or [int(int(shape_of(data)[-1]) * scales[0])]
    return load_tvm().relay.image.resize1d(data, sizes, None, "NCW", "nearest_neighbor", "asymmetric", "floor")


def _roll(inputs: Sequence[Any], types: Sequence[str]) -> Any:
    """aten::roll(data, shifts, axes). Without axes, torch rolls the flattened data; TVM's own converter rolls rows."""
    relay = load_tvm().relay
    data, shifts, axes = inputs
    if axes:
        return tvm_converters().roll(inputs, types)
    row = tvm_converters().roll([relay.reshape(data, (-1,)), shifts, [0]], types)
    return relay.reshape(row, sizes_of(data))


def _squeeze(inputs: Sequence[Any], types: Sequence[str]) -> Any:
    """aten::squeeze(data, axes). TVM's own converter refuses axes of another size than 1, which torch keeps."""
    data, *axes = inputs
    if not axes:
        return load_tvm().relay.squeeze(data)
    sizes = shape_of(data)
    named = [int(axis) for axis in (axes[0] if isinstance(axes[0], list) else axes)]
    kept = [axis for axis in named if sizes and sizes[axis] == 1]
    return load_tvm().relay.squeeze(data, kept) if kept else data


def _unbind(inputs: Sequence[Any], types: Sequence[str]) -> Any:
    """aten::unbind(data, axis). TVM's own converter needs at least two parts."""
    data, axis = inputs
    if sizes_of(data)[axis] == 1:
        return [load_tvm().relay.squeeze(data, axis=[axis])]
    return tvm_converters().convert_map["aten::unbind"](inputs, types)


LAYOUT_CONVERTERS = {
    "aten::squeeze": _squeeze,
    "aten::unbind": _unbind,
    "aten::roll": _roll,
    "aten::unfold": _unfold,
    "aten::movedim": _movedim,
    "aten::moveaxis": _movedim,
    "aten::mT": lambda inputs, _: load_tvm().relay.transpose(inputs[0], _moved(len(shape_of(inputs[0])), [-1], [-2])),
    "aten::hstack": _joined(-1, 1),
    "aten::vstack": _joined(0, 2),
    "aten::dstack": _joined(2, 3),
    "aten::take_along_dim": _take_along_dim,
    "aten::diagonal": _diagonal,
    "aten::upsample_nearest1d": _upsample_nearest1d,
}
"""Converters by the name of the operator."""
