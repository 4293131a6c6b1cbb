"""Converts torch's attention where TVM's converter ignores an option or creates code that fails to build."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.frontends.importers.relay_values import dtype_of, shape_of, tvm_converters
from op_profiler.frontends.importers.torch_nodes import substitute

SCALED_ATTENTION = "aten::_scaled_dot_product_attention_math"
"""New name of attention nodes with options. A graph may contain only operators that torch has; torch has an operator of
this name, and TVM's importer has no converter for it."""


def attention_with_options(graph: Any, node: Any) -> None:
    """Rename an attention node to `SCALED_ATTENTION` if it is causal, scaled, or shares heads of keys and values."""
    *inputs, scale, shared = node.inputs()
    if scale.toIValue() is None and not shared.toIValue() and not inputs[5].toIValue():
        return
    with graph.insert_point_guard(node):
        none = graph.insertConstant(None)
        made = graph.insertNode(graph.create(SCALED_ATTENTION, [*inputs, none, scale, shared], 2))
    made.copyAttributes(node)
    made.copyMetadata(node)
    made.outputsAt(0).setType(node.output().type())
    substitute(node, made.outputsAt(0))


def _attention(inputs: Sequence[Any], types: Sequence[str]) -> Any:
    """aten::_scaled_dot_product_attention_math(query, key, value, mask, dropout, causal, _, scale, shared). TVM's own
    converter expects the scale as the seventh and last input, as in torch 2.1, and creates causal masks by trilu, which
    fails to build."""
    relay = load_tvm().relay
    query, key, value, mask, dropout, causal, _dropped, scale, shared = inputs
    types = list(types[:6])
    if causal:
        mask = relay.const(np.tril(np.ones((_size(query, -2), _size(key, -2)), "bool")))
        types[3] = "bool"
    if shared:
        times = _size(query, -3) // _size(key, -3)
        key, value = relay.repeat(key, times, -3), relay.repeat(value, times, -3)
    out = tvm_converters().scaled_dot_product_attention([query, key, value, mask, dropout, False, scale], types)
    return out, out  # the second would be the weights, which nothing uses


def _triangle(upper: bool) -> Any:
    """aten::triu(data, diagonal) and aten::tril(data, diagonal), by a constant mask: LLVM rejects TVM's own op if it is
    fused with a constant."""

    def convert(inputs: Sequence[Any], _: Sequence[str]) -> Any:
        relay = load_tvm().relay
        data, diagonal = inputs[0], int(inputs[1]) if len(inputs) > 1 and inputs[1] else 0
        ones = np.ones([int(size) for size in shape_of(data)[-2:]], "bool")
        mask = relay.const(np.triu(ones, diagonal) if upper else np.tril(ones, diagonal))
        return relay.where(mask, data, relay.const(0, dtype_of(data)))

    return convert


def _size(data: Any, axis: int) -> int:
    return int(shape_of(data)[axis])


ATTENTION_CONVERTERS = {
    SCALED_ATTENTION: _attention,
    "aten::triu": _triangle(upper=True),
    "aten::tril": _triangle(upper=False),
}
"""Converters by the name of the operator."""
