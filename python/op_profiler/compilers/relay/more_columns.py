"""Adds columns to products whose number of columns no vector divides, for builds by the rule.

TVM packs weights in blocks of columns that divide their number: 300 columns in blocks of 30. LLVM computes such a block
in pieces, which is many times slower (`benchmarks/rule.py`). The weights therefore get columns of zeros, and the result
is cut.
"""

from __future__ import annotations

from op_profiler.compilers.relay_rewriting import fixed_shape, with_location_of
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.compilers.tvm_types import Call, Node

_OP, _DTYPE = "nn.dense", "float32"
_HALF_VECTOR, _VECTOR = 8, 16
_LEAST_FLOPS = 100_000
"""Smaller products are not worth the copy of their result."""


def with_more_columns(call: Call, arguments: list[Node]) -> Node | None:
    """Return an expression that replaces a float32 product and keeps its location: the weight is padded with columns of
    zeros, and the result is cut to its columns. None for other calls, for small products, and if the number of columns
    is a multiple of 8."""
    if getattr(call.op, "name", "") != _OP or any(str(tensor.checked_type.dtype) != _DTYPE for tensor in call.args):
        return None
    sizes = [fixed_shape(tensor) for tensor in call.args]
    if not all(len(shape) == 2 for shape in sizes):
        return None
    (rows, depth), (columns, _) = sizes
    if columns % _HALF_VECTOR == 0 or 2 * rows * columns * depth < _LEAST_FLOPS:
        return None
    relay = load_tvm().relay
    weight = relay.nn.pad(arguments[1], ((0, -columns % _VECTOR), (0, 0)))
    product = relay.nn.dense(arguments[0], weight, out_dtype=str(call.attrs.out_dtype))
    return relay.strided_slice(with_location_of(call, product), begin=[0], end=[columns], strides=[1], axes=[1])
