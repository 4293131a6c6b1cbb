"""A schedule for batched products of one or two terms, as in rotary embeddings of decoders (position by frequency).

TVM's schedule sums sixteen terms side by side. For fewer than three terms and a batch of one, it reads sums that were
never written, and the results are arbitrary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.operators.kinds.sizes import largest_divisor

_TERMS = 2
_LANES = 16


def without_partial_sums(scheduled: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a replacement of ``topi.x86.schedule_batch_matmul`` that sums one or two terms without partial sums.

    Args:
        scheduled: the original function, which is still used for more terms.
    """

    def schedule(outs: Any) -> Any:
        product = _product(outs[0].op)
        terms = getattr(product.reduce_axis[0].dom.extent, "value", None)
        return scheduled(outs) if terms is None or terms > _TERMS else _schedule(outs[0].op, product)

    return schedule


def _product(op: Any) -> Any:
    """Return the batched product that an operation is or depends on; None if there is no such product."""
    if "batch_matmul" in op.tag:
        return op
    behind = (_product(tensor.op) for tensor in op.input_tensors if hasattr(tensor.op, "axis"))
    return next((found for found in behind if found is not None), None)


def _schedule(output: Any, product: Any) -> Any:
    tvm = load_tvm()
    te, topi = tvm.te, tvm.topi
    s = te.create_schedule(output)
    topi.utils.traverse_inline(s, output, lambda _: None)
    *outer, row = output.axis
    last = row.dom.extent
    piece, lane = s[output].split(row, factor=largest_divisor(int(last), _LANES) if hasattr(last, "value") else _LANES)
    if product == output:
        s[output].reorder(*outer, piece, *output.reduce_axis, lane)
    else:
        s[product].compute_at(s[output], piece)
        s[product].vectorize(s[product].op.axis[-1])
    s[output].vectorize(lane)
    s[output].parallel(s[output].fuse(*outer))
    return s
