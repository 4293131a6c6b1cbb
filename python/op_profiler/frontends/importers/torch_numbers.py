"""Computes the integers in the graph of a trace with torch: sizes, and what follows from sizes and stored values.

The importer would infer each from all that leads to it, and refuses an integer that depends on a stored value, such as
the padding of encodec's convolutions.
"""

from __future__ import annotations

from typing import Any

from op_profiler.frontends.importers.torch_library import torch
from op_profiler.frontends.importers.torch_nodes import call, known_tensor, operator_of

_CONVERSIONS = {"prim::NumToTensor": torch.tensor, "aten::Int": int, "aten::Float": float}


_ARITHMETIC = {f"aten::{name}" for name in ("add", "sub", "mul", "div", "floor_divide", "remainder", "neg")}


class _UnknownError(Exception):
    """Raised if a number is known only at run time."""


def is_traced_number(tensor: Any) -> bool:
    """Return whether a tensor represents a size, or a number computed from sizes: while torch traces, such numbers are
    tensors. The result is False if torch is not tracing."""
    return torch._C._get_tracing_state() is not None and not tensor.ndim and _is_size(torch._C._get_value_trace(tensor))


def _is_size(value: Any) -> bool:
    node = value.node()
    computed = [one for one in node.inputs() if one.node().kind() != "prim::Constant"]
    return node.kind() == "prim::NumToTensor" or (
        node.kind() in _ARITHMETIC and bool(computed) and all(map(_is_size, computed))
    )


def fold_integers(traced: Any) -> None:
    """Replace each known integer in the graph of a trace by a constant, in place. Uses that convert an integer back to
    a tensor are not changed, because TVM's importer cannot convert a constant number to a tensor.
    """
    graph = traced.graph
    numbers = _Numbers(traced)
    for node in list(graph.nodes()):
        if node.kind() != "prim::Constant" and node.outputsSize() == 1 and node.output().type().kind() == "IntType":
            try:
                found = numbers.of(node.output())
            except (_UnknownError, RuntimeError, TypeError, ValueError, ArithmeticError):  # torch refuses it
                continue
            with graph.insert_point_guard(node):
                constant = graph.insertConstant(found)
            for use in node.output().uses():
                if use.user.kind() != "prim::NumToTensor":
                    use.user.replaceInput(use.offset, constant)


class _Numbers:
    """The numbers of a trace, each computed once."""

    def __init__(self, traced: Any) -> None:
        self._traced = traced
        self._found: dict[str, Any] = {}

    def of(self, value: Any) -> Any:
        """Return a number or list of numbers.

        Raises:
            _UnknownError: it is known only at run time.
        """
        name = value.debugName()
        if name not in self._found:
            self._found[name] = self._computed(value)
        return self._found[name]

    def _computed(self, value: Any) -> Any:
        node, kind = value.node(), value.node().kind()
        is_tensor = value.type().kind() == "TensorType"
        if is_tensor and any(use.user.kind().endswith("_") and use.offset == 0 for use in value.uses()):
            raise _UnknownError  # it is written to
        if kind == "prim::Constant":
            return value.toIValue()
        if kind == "prim::ListConstruct":
            return [self.of(one) for one in node.inputs()]
        if kind == "aten::size" and node.inputsSize() == 2:
            return _size(node)
        if kind == "prim::GetAttr":
            return _stored(self._traced, value)
        if kind in _CONVERSIONS:
            return _CONVERSIONS[kind](self.of(node.inputsAt(0)))
        if is_tensor and value.type().dim() != 0:
            raise _UnknownError
        operator = operator_of(node)
        if operator is None or kind.endswith("_") or torch.Tag.nondeterministic_seeded in operator.tags:
            raise _UnknownError
        return call(operator, [self.of(one) for one in node.inputs()])


def _size(node: Any) -> int:
    sizes, axis = node.inputsAt(0).type().sizes(), node.inputsAt(1).toIValue()
    if sizes is None or axis is None:
        raise _UnknownError
    return int(sizes[axis])


def _stored(traced: Any, value: Any) -> Any:
    found = known_tensor(traced, value)
    if found is None or found.dim() or isinstance(found, torch.nn.Parameter):
        raise _UnknownError
    return found
