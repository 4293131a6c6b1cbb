"""Vectors for the remainders of rows whose length is no multiple of a vector.

TVM splits the rows of an element-wise kernel by 16 and guards each value by a condition if 16 does not divide the
length. With AVX-512, LLVM computes such a loop one value at a time: ``negative`` on rows of 100 values takes 11 times
as long as in vectors (`benchmarks/rule.py`). Inside `vectorized`, the loop ends before the last, incomplete vector,
which follows as a shorter one. Kernels that read or write with gaps keep TVM's loop, because a vector would be a gather
there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.operators.cost import HEAVY

if TYPE_CHECKING:
    from op_profiler.operators.operator import Operator

NAME = "remainders"
"""Name of these loops among the decisions of the schedule rule."""
_FACTOR = 16
"""Split factor of TVM's schedules for element-wise kernels on processors."""

_active: list[bool] = []


@contextlib.contextmanager
def vectorized() -> Iterator[None]:
    """Vectorize the remainders of rows inside this block."""
    _active.append(True)
    try:
        yield
    finally:
        _active.pop()


def concerns(operators: Iterable[Operator]) -> bool:
    """Return whether the kernel of any of these operators may have rows with a remainder."""
    return any(
        operator.anchor not in HEAVY and any(_has_remainder(tensor.shape) for tensor in operator.outputs)
        for operator in operators
    )


def _has_remainder(shape: tuple[int, ...]) -> bool:
    return bool(shape) and shape[-1] > _FACTOR and shape[-1] % _FACTOR != 0


def passes() -> list[tuple[int, Any]]:
    """Return the TIR pass, with its phase of lowering, inside of `vectorized`; nothing outside of it."""
    if not _active:
        return []
    tir = load_tvm().tir

    @tir.transform.prim_func_pass(opt_level=0)
    def rewrite(function: Any, module: Any, context: Any) -> Any:
        return function.with_body(tir.stmt_functor.ir_transform(function.body, None, _without_condition, ["tir.For"]))

    return [(0, rewrite)]


def _without_condition(outer: Any) -> Any | None:
    """Return a loop over whole vectors and the remainder in place of a loop over guarded vectors; None for other
    loops."""
    tir = load_tvm().tir
    inner = outer.body
    if not (isinstance(inner, tir.For) and inner.kind == tir.ForKind.VECTORIZED):
        return None
    guard = inner.body
    if not isinstance(guard, tir.IfThenElse) or guard.else_case is not None:
        return None
    factor, length = int(inner.extent), _guarded_length(guard.condition, outer.loop_var, inner)
    whole, remainder = divmod(length or 0, factor)
    is_row = whole > 0 and remainder > 0 and getattr(outer.extent, "value", None) == whole + 1
    if length is None or not is_row or not _is_contiguous(outer, length):
        return None
    vectors = tir.For(outer.loop_var, outer.min, whole, outer.kind, _vector(inner.loop_var, factor, guard.then_case))
    lane = tir.Var(inner.loop_var.name, inner.loop_var.dtype)
    at_end = {outer.loop_var: tir.const(whole, lane.dtype), inner.loop_var: lane}
    return tir.SeqStmt([vectors, _vector(lane, remainder, tir.stmt_functor.substitute(guard.then_case, at_end))])


def _vector(lane: Any, lanes: int, body: Any) -> Any:
    tir = load_tvm().tir
    if lanes == 1:
        return tir.stmt_functor.substitute(body, {lane: tir.const(0, lane.dtype)})
    return tir.For(lane, 0, lanes, tir.ForKind.VECTORIZED, body)


def _guarded_length(condition: Any, outer: Any, inner: Any) -> int | None:
    """Return the length of a row for the condition ``likely(inner + outer * factor < length)``; None for others."""
    tvm = load_tvm()
    if not (isinstance(condition, tvm.tir.Call) and condition.op.name == "tir.likely"):
        return None
    compared = condition.args[0]
    if not (isinstance(compared, tvm.tir.LT) and isinstance(compared.b, tvm.tir.IntImm)):
        return None
    terms = tvm.arith.detect_linear_equation(compared.a, [outer, inner.loop_var])
    is_row = [getattr(term, "value", None) for term in terms] == [int(inner.extent), 1, 0]
    return int(compared.b) if is_row else None


def _is_contiguous(outer: Any, length: int) -> bool:
    """Return whether all values that a row reads and writes are contiguous in memory or the same for the whole row."""
    tvm = load_tvm()
    tir, inner, analyzer, found = tvm.tir, outer.body, tvm.arith.Analyzer(), []
    row = tir.Var("row", inner.loop_var.dtype)
    in_row = {inner.loop_var: row - outer.loop_var * inner.extent}
    analyzer.bind(row, tvm.ir.Range(0, length))

    def simplified(expression: Any) -> Any:
        return analyzer.simplify(tir.stmt_functor.substitute(expression, in_row))

    def visit(node: Any) -> None:
        if isinstance(node, (tir.BufferLoad, tir.BufferStore)):
            *others, last = [simplified(index) for index in node.indices] or [tir.const(0)]
            terms = tvm.arith.detect_linear_equation(last, [row])
            step = getattr(terms[0], "value", None) if len(terms) else None
            found.append(step in (0, 1) and not any(_uses(index, row) for index in others))
        elif isinstance(node, tir.Call) and node.op.name == "tir.if_then_else":
            found.append(not _uses(simplified(node.args[0]), row))

    tir.stmt_functor.post_order_visit(inner.body.then_case, visit)
    return all(found)


def _uses(expression: Any, variable: Any) -> bool:
    found: list[bool] = []
    load_tvm().tir.stmt_functor.post_order_visit(expression, lambda node: found.append(node.same_as(variable)))
    return any(found)
