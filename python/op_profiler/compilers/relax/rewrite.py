"""Helpers for passes that rewrite calls of ops."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from op_profiler.compilers.tvm_build import load_tvm

if TYPE_CHECKING:
    import numpy as np

Constant = Callable[[Any], "np.ndarray | None"]
Rewrite = Callable[[Any, Constant, Any], Any]
"""Returns the replacement of a call, given the module's ``relax.BlockBuilder``, a function that returns the values of
constant arguments (None for others), and the call."""


def rewrite_calls(name: str, rewrites: dict[str, Rewrite]) -> Any:
    """Return a pass that replaces calls of ops.

    Args:
        name: name of the pass.
        rewrites: functions that return the replacements, by the name of the op.
    """
    tvm = load_tvm()
    relax = tvm.relax

    @relax.expr_functor.mutator
    class Rewriter(relax.expr_functor.PyExprMutator):  # type: ignore[name-defined]
        def visit_call_(self, call: Any) -> Any:
            call = super().visit_call_(call)
            rewrite = rewrites.get(call.op.name) if isinstance(call.op, tvm.ir.Op) else None
            return call if rewrite is None else rewrite(self.builder_, self.constant, call)

        def constant(self, argument: Any) -> np.ndarray | None:
            if isinstance(argument, relax.Var):
                argument = self.lookup_binding(argument)
            return argument.value.numpy() if isinstance(argument, tvm.ir.GenericConst) else None

    @tvm.transform.module_pass(opt_level=0, name=name)
    def rewritten(module: Any, _context: Any) -> Any:
        rewriter = Rewriter(module)
        for variable, function in module.functions_items():
            if isinstance(function, relax.Function):
                rewriter.builder_.update_func(variable, rewriter.visit_expr(function))
        return rewriter.builder_.get()

    return rewritten


def bindings_of(function: Any) -> list[Any]:
    """Return the bindings of a ``relax.Function`` in order."""
    return [binding for block in function.body.blocks for binding in block.bindings]


def call_of(builder: Any, value: Any, op: str) -> Any | None:
    """Return the call of `op` whose result is `value`; None if `value` is not the result of a call of `op`.

    Args:
        builder: ``relax.BlockBuilder`` of the module.
        op: name, with the prefix ``relax.``.
    """
    relax = load_tvm().relax
    known = builder.lookup_binding(value) if isinstance(value, relax.Var) else None
    return known if isinstance(known, relax.Call) and getattr(known.op, "name", "") == op else None
