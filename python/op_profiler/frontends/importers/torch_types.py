"""Inserts torch's implicit casts, which TVM's importer ignores; without these casts, the results would differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.frontends.importers.relay_values import dtype_of, name_of_dtype
from op_profiler.frontends.importers.torch_nodes import insert, nodes_of, replace

_TYPED = ("aten::mean", "aten::softmax", "aten::log_softmax", "aten::sum", "aten::prod", "aten::cumsum")
"""Operators whose last input is the type in which they compute."""
_FUNCTIONS = (
    *("reciprocal", "sqrt", "rsqrt", "exp", "exp2", "log", "log2", "log10", "log1p", "sin", "cos", "tan"),
    *("sinh", "cosh", "tanh", "asin", "acos", "atan", "sigmoid", "erf", "deg2rad", "rad2deg"),
)
_OF_FRACTIONS = ("aten::div", *(f"aten::{name}" for name in _FUNCTIONS))
"""Operators that turn integers into fractions."""


def spell_out_types(graph: Any) -> None:
    """Insert the casts that torch makes implicitly into the graph of a trace, in place."""
    for node in list(nodes_of(graph)):
        kind = node.kind()
        if kind in _TYPED and node.inputsAt(node.inputsSize() - 1).toIValue() is not None:
            _cast_before(graph, node)
        elif kind in _OF_FRACTIONS and not _is_rounded(node):
            _calculate_in_fractions(graph, node)
        elif kind == "aten::add" and _is_of(node.output(), "bool"):
            replace(graph, node, "aten::logical_or", [node.inputsAt(0), node.inputsAt(1)])


def _is_rounded(node: Any) -> bool:
    return node.inputsSize() > 2 and node.inputsAt(2).toIValue() is not None


def _is_of(value: Any, *kinds: str) -> bool:
    """Return whether the dtype of a tensor begins with one of these names, as far as the trace shows it."""
    dtype = value.type().dtype() if value.type().kind() == "TensorType" else None
    return str(dtype).removeprefix("torch.").startswith(kinds)


def _cast_before(graph: Any, node: Any) -> None:
    """Cast a value before an operator that computes in another type."""
    last = node.inputsSize() - 1
    with graph.insert_point_guard(node):
        _cast_input(graph, node, 0, node.inputsAt(last))
        node.replaceInput(last, graph.insertConstant(None))


def _calculate_in_fractions(graph: Any, node: Any) -> None:
    if not _is_of(node.output(), "float"):
        return
    dtype = node.output().type().dtype()
    for at in range(min(node.inputsSize(), 2)):
        if _is_of(node.inputsAt(at), "int", "uint", "bool"):
            with graph.insert_point_guard(node):
                _cast_input(graph, node, at, graph.insertConstant(dtype))


def _cast_input(graph: Any, node: Any, at: int, dtype: Any) -> None:
    no, none = graph.insertConstant(False), graph.insertConstant(None)
    node.replaceInput(at, insert(graph, "aten::to", [node.inputsAt(at), dtype, no, no, none], node.output()))


def _reduction(name: str) -> Any:
    """Return a converter of aten::sum(data, _) and aten::sum(data, axes, keepdim, _). TVM's own adds Booleans as
    Booleans."""

    def reduce(inputs: Sequence[Any], _: Sequence[str]) -> Any:
        axes, keep = (inputs[1], bool(inputs[2])) if len(inputs) > 2 else (None, False)
        return getattr(load_tvm().relay, name)(_countable(inputs[0]), axis=None if axes == [] else axes, keepdims=keep)

    return reduce


def _countable(data: Any) -> Any:
    """Cast integers and Booleans to 64 bits before a sum, as torch does."""
    given = dtype_of(data)
    return data if "float" in given or given == "int64" else load_tvm().relay.cast(data, "int64")


def _to(inputs: Sequence[Any], _: Sequence[str]) -> Any:
    """aten::to(data, dtype, ...), aten::to(data, device, dtype, ...) and aten::to(data, other, ...). TVM's own
    converter ignores Booleans, small integers and the type of another tensor."""
    relay = load_tvm().relay
    data, target, after = inputs[:3]
    if target is None or isinstance(target, str):
        target = after
    if isinstance(target, relay.Expr):
        wanted = dtype_of(target)
    elif target is None or isinstance(target, bool):  # another device only
        return data
    else:
        wanted = name_of_dtype(target)
    if not isinstance(data, relay.Expr):
        return float(data) if "float" in wanted else int(data)
    return data if dtype_of(data) == wanted else relay.cast(data, wanted)


TYPE_CONVERTERS = {
    "aten::sum": _reduction("sum"),
    "aten::prod": _reduction("prod"),
    "aten::cumsum": lambda inputs, _: load_tvm().relay.cumsum(_countable(inputs[0]), axis=inputs[1]),
    "aten::to": _to,
}
"""Converters by the name of the operator."""
