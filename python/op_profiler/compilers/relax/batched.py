"""Batched products with a transposed side as one op, which this TVM does not have.

Relay has such an op, so the operator is the same under both compilers. A transposed right side is rearranged inside the
kernel, so that vectors of the output read contiguous values.
"""

from __future__ import annotations

from typing import Any

from op_profiler.compilers.relax.legalize import OUT_FUSABLE, noted_call
from op_profiler.compilers.relax.rewrite import call_of
from op_profiler.compilers.tvm_build import load_tvm

NAME = "nn.batch_matmul"
TRANSPOSED = "transposed"
"""Name of the block that rearranges the right side."""
_RANK = 3


def transposed_sides(builder: Any, call: Any) -> Any:
    """Return the replacement of a call of ``relax.matmul`` with a transposed operand: a call of a TIR function that
    reads the operand before its transposition. Other calls are returned unchanged.

    Args:
        builder: ``relax.BlockBuilder`` of the module.
    """
    sizes = [[getattr(size, "value", None) for size in side.ty.shape] for side in call.args]
    dtypes = {str(each.ty.dtype) for each in (*call.args, call)}
    if [len(size) for size in sizes] != [_RANK] * 2 or None in sizes[0] + sizes[1] or len(dtypes) > 1:
        return call
    sources = [_transposed(builder, side) for side in call.args]
    if all(source is None for source in sources) or sizes[0][0] != sizes[1][0]:
        return call
    read = [side if source is None else source for side, source in zip(call.args, sources)]
    flags = [source is not None for source in sources]
    attrs = attributes(left=flags[0], right=flags[1])
    return noted_call(builder, NAME, attrs, _product, *read, *flags, hint="batch_matmul", pattern=OUT_FUSABLE)


def attributes(*, left: bool, right: bool) -> dict[str, Any]:
    """Return the attributes of Relay's batched product.

    Args:
        left, right: whether the left and the right matrix of each product are transposed.
    """
    return {"transpose_a": int(left), "transpose_b": int(right)}


def _transposed(builder: Any, side: Any) -> Any | None:
    """Return the tensor whose rows and columns were swapped to give a side; None if they were not swapped."""
    call = call_of(builder, side, "relax.permute_dims")
    axes = None if call is None or call.attrs.axes is None else [int(axis) % _RANK for axis in call.attrs.axes]
    return call.args[0] if call is not None and axes == [0, 2, 1] else None


def _product(left: Any, right: Any, left_transposed: bool, right_transposed: bool) -> Any:
    """Return the products of left (batch, rows, depth) and right (batch, depth, columns).

    A transposed side has its last two axes in the other order.
    """
    te = load_tvm().te
    batch, *shape = left.shape
    rows, depth = reversed(shape) if left_transposed else shape
    columns = right.shape[1 if right_transposed else 2]
    k = te.reduce_axis((0, depth), name="k")
    if right_transposed:
        rows_of_right = right
        right = te.compute((batch, depth, columns), lambda b, i, x: rows_of_right[b, x, i], name=TRANSPOSED)

    def value(b: Any, y: Any, x: Any) -> Any:
        return te.sum((left[b, k, y] if left_transposed else left[b, y, k]) * right[b, k, x], axis=k)

    return te.compute((batch, rows, columns), value, name="matmul")
