"""Converts torch's products of grouped rows: mixtures of experts multiply each token by the weights of its expert."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.frontends.importers.relay_values import dtype_of, number_of, sizes_of, tvm_converters


def _histc(inputs: Sequence[Any], _: Sequence[str]) -> Any:
    """aten::histc(data, bins, low, high): how many values lie in each of `bins` intervals of equal width."""
    relay = load_tvm().relay
    data, bins = inputs[0], int(inputs[1])
    low, high = number_of(inputs[2]), number_of(inputs[3])
    if low == high:
        raise NotImplementedError("histc without bounds takes them from the data; give min and max")
    kind = dtype_of(data)
    flat = relay.reshape(data, (-1, 1))
    scaled = relay.multiply(relay.subtract(flat, relay.const(low, kind)), relay.const(bins / (high - low), kind))
    place = relay.minimum(relay.floor(scaled), relay.const(bins - 1, kind))  # the last interval contains its end
    inside = relay.logical_and(
        relay.less_equal(flat, relay.const(high, kind)), relay.greater_equal(flat, relay.const(low, kind))
    )
    found = relay.logical_and(inside, relay.equal(place, relay.const(np.arange(bins)[None].astype(kind))))
    return relay.sum(relay.cast(found, kind), axis=0)


def _grouped_mm(inputs: Sequence[Any], types: Sequence[str]) -> Any:
    """aten::_grouped_mm(data, weights, ends, bias, dtype): rows of `data`, sorted by group, times the weights of their
    group; `ends` are the rows at which groups end.

    TVM has no product whose groups have sizes known only at run time. At most as many rows as groups are multiplied by
    a copy of the weights of their group; more rows are multiplied by the weights of all groups, and one result is
    kept.

    Shapes: (rows, inner), (groups, inner, outer), (groups,) to (rows, outer).
    """
    relay, converters = load_tvm().relay, tvm_converters()
    data, weights, ends, bias = inputs[:4]
    shapes = sizes_of(data), sizes_of(weights)
    if bias is not None or (ends is None) == (len(shapes[0]) == 2) or len(shapes[1]) != 3:
        raise NotImplementedError(f"a grouped product of shapes {shapes} is not supported")
    if ends is None:
        return converters.matmul([data, weights], types[:2])
    (rows, _inner), (groups, _, outer) = shapes
    row = relay.const(np.arange(rows, dtype="int32"))
    is_behind = relay.less_equal(relay.expand_dims(relay.cast(ends, "int32"), 0), relay.expand_dims(row, 1))
    group = relay.minimum(relay.sum(relay.cast(is_behind, "int32"), axis=1), relay.const(groups - 1, "int32"))
    if rows <= groups:
        own = relay.take(weights, group, axis=0)
        return relay.reshape(converters.matmul([relay.expand_dims(data, 1), own], types[:2]), (rows, outer))
    every = converters.matmul([relay.expand_dims(data, 0), weights], types[:2])
    return relay.gather_nd(every, relay.stack([group, row], axis=0))


EXPERT_CONVERTERS = {"aten::histc": _histc, "aten::_grouped_mm": _grouped_mm}
"""Converters by the name of the operator."""
