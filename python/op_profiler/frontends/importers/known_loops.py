"""Evaluates loops and branches of Relay that depend only on constants, because the graph executor supports neither.

A loop whose condition depends on counters alone is unrolled, unless the model becomes too large; an If on a known
condition is replaced by its branch. Remaining loops and branches need the virtual machine.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from op_profiler.compilers.relay_rewriting import calls_in, nodes_in
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.compilers.tvm_types import DeviceArray, IRModule

_MOST_CALLS = 3000
"""Largest number of calls after unrolling all loops: as many kernels as the largest networks have."""
_DEEPEST = 16
_OF_NUMBERS: dict[str, Callable[..., Any]] = {
    **{name: getattr(np, name) for name in ("add", "subtract", "multiply", "maximum", "minimum", "where")},
    **{name: getattr(np, name) for name in ("equal", "not_equal", "greater", "greater_equal", "less", "less_equal")},
    **{name: getattr(np, name) for name in ("logical_and", "logical_not", "logical_or")},
    **dict.fromkeys(("cast", "copy", "expand_dims", "reshape", "squeeze"), np.copy),  # a node tells its result's type
}
"""Operators that compute counters and conditions from single values."""


def with_known_loops(module: IRModule, params: Mapping[str, DeviceArray]) -> tuple[IRModule, tuple[str, ...]]:
    """Return the typed module in which loops and branches that depend only on constants are unrolled or resolved, and
    notes for the user.

    Args:
        params: weights by the variable of ``main`` to which each is bound.
    """
    relay = load_tvm().relay
    written_out = _WrittenOut()
    with contextlib.suppress(RecursionError):  # a deep model stays as it is, for the virtual machine
        for _ in range(_DEEPEST):
            main = module["main"]
            known = {v: params[v.name_hint] for v in main.params if v.name_hint in params}
            single = {v: value.numpy() for v, value in known.items() if math.prod(map(int, value.shape)) == 1}
            replaced = written_out.replacements(main, single)
            if not replaced:
                break
            functions = {**module.functions, module.get_global_var("main"): _replaced(main, replaced)}
            module = relay.transform.InferType()(load_tvm().IRModule(functions, module.type_definitions))
            if written_out.steps:  # stacks of results grow by a known size now
                module = relay.transform.DynamicToStatic()(module)
    steps = ", ".join(map(str, written_out.steps))
    return module, (f"loops of {steps} steps are written out step by step",) if steps else ()


class _WrittenOut:
    """Loops that were replaced by their steps.

    Attributes:
        steps: number of steps of each loop.
    """

    def __init__(self) -> None:
        self.steps: list[int] = []
        self._calls_left = _MOST_CALLS

    def replacements(self, main: Any, weights: Mapping[Any, np.ndarray]) -> dict[Any, Any]:
        """Return replacements for the outermost loops and branches that are known."""
        relay = load_tvm().relay
        found = [node for node in nodes_in(main.body) if isinstance(node, relay.If) or _is_loop(node)]
        made: dict[Any, Any] = {}
        inside: set[Any] = set()
        known = _KnownValues(weights)
        for node in reversed(found):  # outer ones first
            if node in inside:
                continue
            if isinstance(node, relay.If):
                condition = known.value(node.cond)
                taken = None if condition is None else node.true_branch if condition.all() else node.false_branch
            else:
                taken = self._steps_of(node, known)
            if taken is not None:
                made[node] = taken
                inside |= {*nodes_in(node)}
        return made

    def _steps_of(self, call: Any, known: _KnownValues) -> Any | None:
        """Return the results of a loop after its last step; None if the number of steps is unknown or too large."""
        relay = load_tvm().relay
        params, choice = call.op.value.params, call.op.value.body
        goes_on = isinstance(choice.true_branch, relay.Call) and choice.true_branch.op == call.op.var
        again, ends = (choice.true_branch, choice.false_branch)[:: 1 if goes_on else -1]
        count, course = 0, [[known.value(argument) for argument in call.args]]
        calls = max(len(calls_in(again)), 1)
        while True:
            inside = known.inside(params, course[-1])
            condition = inside.value(choice.cond)
            if condition is None:
                return None
            if bool(condition.all()) != goes_on:
                break
            count += 1
            if count * calls > self._calls_left:
                return None
            course.append([inside.value(argument) for argument in again.args])
        self._calls_left -= count * calls
        self.steps.append(count)
        state = _constants(call.args, course[0])
        for values in course[1:]:
            step = relay.bind(relay.Tuple(again.args), dict(zip(params, state)))
            state = _constants(step.fields, values)
        return relay.bind(ends, dict(zip(params, state)))


class _KnownValues:
    """Single values that are computed from constants.

    Args:
        values: values of variables; all other variables are unknown.
    """

    def __init__(self, values: Mapping[Any, np.ndarray | None]) -> None:
        self._relay = load_tvm().relay
        self._values: dict[Any, np.ndarray | None] = dict(values)
        self._variables = values

    def inside(self, params: Sequence[Any], values: Sequence[np.ndarray | None]) -> _KnownValues:
        """Return the known values inside a function whose parameters have these values."""
        return _KnownValues({**self._variables, **dict(zip(params, values))})

    def value(self, node: Any) -> np.ndarray | None:
        """Return the value of a node with one element; None if it is unknown, or if the node has more elements."""
        if node not in self._values:
            self._values[node] = self._value(node)
        return self._values[node]

    def _value(self, node: Any) -> np.ndarray | None:
        shape = getattr(node.checked_type, "shape", None)
        if shape is None or any(getattr(size, "value", None) != 1 for size in shape):
            return None
        if isinstance(node, self._relay.Constant):
            return np.asarray(node.data.numpy())
        operation = _OF_NUMBERS.get(getattr(node.op, "name", "")) if isinstance(node, self._relay.Call) else None
        if operation is None:
            return None
        values = [self.value(argument) for argument in node.args]
        if any(value is None for value in values):
            return None
        with np.errstate(all="ignore"):
            made = np.asarray(operation(*values))
        return made.astype(str(node.checked_type.dtype)).reshape([1] * len(shape))


def _is_loop(node: Any) -> bool:
    """Return whether a node calls a loop as TVM's importers create it: a function that ends, or calls itself last."""
    relay = load_tvm().relay
    if not isinstance(node, relay.Call) or not isinstance(node.op, relay.Let) or node.op.body != node.op.var:
        return False
    function = node.op.value
    if not isinstance(function, relay.Function) or not isinstance(function.body, relay.If):
        return False
    calls = [call for call in calls_in(function.body) if call.op == node.op.var]
    branches = (function.body.true_branch, function.body.false_branch)
    return len(calls) == 1 and calls[0] in branches


def _constants(nodes: Sequence[Any], values: Sequence[np.ndarray | None]) -> list[Any]:
    """Return the nodes, with nodes of known values replaced by constants."""
    relay = load_tvm().relay
    return [node if value is None else relay.const(value, str(value.dtype)) for node, value in zip(nodes, values)]


def _replaced(main: Any, made: Mapping[Any, Any]) -> Any:
    relay = load_tvm().relay

    class Replace(relay.ExprMutator):  # type: ignore[name-defined]  # TVM has no types
        def visit(self, node: Any) -> Any:
            return super().visit(made.get(node, node))

    return Replace().visit(main)
