"""Replaces operators that the importer lacks by the plainer operators of which torch itself can compose them.

torch has decompositions of many operators, for its own compilers. An operator without a converter is decomposed on
tensors without values, so that a decomposition that depends on values is not used, and the recorded operators replace
it in the graph of the trace.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Container, Iterator, Sequence
from typing import Any

from op_profiler.frontends.importers.relay_values import tvm_converters
from op_profiler.frontends.importers.torch_compositions import compositions
from op_profiler.frontends.importers.torch_layers import copy_location
from op_profiler.frontends.importers.torch_library import torch
from op_profiler.frontends.importers.torch_nodes import call, nodes_of, operator_of


def decompose(graph: Any, converters: Container[str], prepare: Callable[[Any], None]) -> None:
    """Replace each operator without a converter by its decomposition, in place. An operator stays if torch cannot
    decompose it, or if the shape of an input is unknown.

    Args:
        converters: operators for which this package has a converter, in addition to TVM's own converters.
        prepare: function that rewrites the trace of a decomposition in the same way as `graph` was rewritten.
    """
    unknown = [node for node in nodes_of(graph) if not _is_known(node.kind(), converters)]
    if not unknown:
        return
    table = {operator: plain for operator, plain in _table().items() if not _is_known(_kind(operator), converters)}
    for node in unknown:
        found = _decomposition(node, converters, table)
        if found is not None:
            prepare(found)
            _put_in_place(graph, node, found.graph)


def _is_known(kind: str, converters: Container[str]) -> bool:
    if kind.startswith("prim::"):
        return True
    names = (kind, kind.removesuffix("_"))
    return any(name in converters or name in tvm_converters().convert_map for name in names)


def _decomposition(node: Any, converters: Container[str], table: dict[Any, Any]) -> Any:
    """Return a trace of the operators that replace a node; None if there are none."""
    from torch.fx.experimental.proxy_tensor import make_fx

    operator = operator_of(node, node.kind().removesuffix("_"))  # all writes were replaced before
    tensors: list[Any] = []
    try:
        given = [_argument(value, tensors) for value in node.inputs()]
        if operator is None or any(tensor.is_complex() for tensor in tensors):
            return None
        called = functools.partial(_called, operator, given)
        plainer = make_fx(called, decomposition_table=table, tracing_mode="fake", _allow_non_fake_inputs=True)(*tensors)
    except Exception:  # a decomposition fails in any way, for instance because it needs values
        return None
    made = [one.target for one in plainer.graph.nodes if one.op == "call_function"]
    if not all(_is_known(_kind(op), converters) for op in made if isinstance(op, torch._ops.OpOverload)):
        return None
    return recorded(plainer, tensors)


def recorded(function: Callable[..., Any], tensors: Sequence[Any]) -> Any:
    """Return a trace of a function of tensors; its graph returns a tuple of all results."""

    class Decomposed(torch.nn.Module):
        def forward(self, *inputs: Any) -> Any:
            results = function(*inputs)
            return tuple(results) if isinstance(results, (list, tuple)) else (results,)

    return torch.jit.trace(Decomposed(), tuple(tensors), check_trace=False)


@functools.cache
def _table() -> dict[Any, Any]:
    """Return torch's decompositions by operator; the primitives of which some consist become operators again."""
    import torch._prims as prims
    from torch._decomp import decomposition_table

    packets = [getattr(torch.ops.prims, name) for name in prims.__all__ if hasattr(torch.ops.prims, name)]
    primitives = (packet.default for packet in packets if hasattr(packet, "default"))
    return {
        **decomposition_table,
        **compositions(),
        **{one: one.impl_aten for one in primitives if hasattr(one, "impl_aten")},
    }


def _kind(operator: Any) -> str:
    return str(operator.name()).partition(".")[0]


class _Place(int):
    """The place of a tensor among the tensors that an operator gets."""


def _argument(value: Any, tensors: list[Any]) -> Any:
    """Return an argument of an operator. A tensor becomes a `_Place`, and one of its shape and strides is added to
    `tensors`.

    Raises:
        ValueError: the argument is known only at run time, or a tensor has no known shape.
    """
    node, kind = value.node(), value.type()
    if node.kind() == "prim::Constant" and kind.kind() != "TensorType":
        return value.toIValue()
    if node.kind() == "prim::ListConstruct":
        return [_argument(one, tensors) for one in node.inputs()]
    sizes = kind.sizes() if kind.kind() == "TensorType" else None
    if sizes is None or kind.dtype() is None:
        raise ValueError(f"{value.debugName()} is not known")
    strides = kind.strides() or torch.zeros(sizes).stride()
    tensors.append(torch.empty_strided(sizes, strides, dtype=kind.dtype()).zero_())
    return _Place(len(tensors) - 1)


def _called(operator: Any, given: Sequence[Any], *tensors: Any) -> Any:
    def filled(argument: Any) -> Any:
        if isinstance(argument, list):
            return [filled(one) for one in argument]
        return tensors[argument] if isinstance(argument, _Place) else argument

    return call(operator, [filled(argument) for argument in given])


def insert_recorded(graph: Any, node: Any, found: Any, inputs: Sequence[Any]) -> list[Any]:
    """Insert the graph `found` of a trace by `recorded` before a node; return the results of the inserted graph.

    Inserted nodes get the location of `node`; `inputs` are the inputs of the inserted graph.
    """
    found.eraseInput(0)  # the module, which has no weights
    copy_location(node, nodes_of(found))
    with graph.insert_point_guard(node):
        (result,) = graph.insertGraph(found, list(inputs))
    made = list(result.node().inputs())
    result.node().destroy()
    return made


def _put_in_place(graph: Any, node: Any, found: Any) -> None:
    made = insert_recorded(graph, node, found, list(_tensors_of(node)))
    with graph.insert_point_guard(node):
        if node.outputsSize() == 1 and node.output().type().kind() == "ListType":
            together = graph.insertNode(graph.create("prim::ListConstruct", made, 1)).output()
            together.setType(node.output().type())
            made = [together]
    for old, new in zip(node.outputs(), made, strict=True):
        old.replaceAllUsesWith(new)
    node.destroy()


def _tensors_of(node: Any) -> Iterator[Any]:
    for value in node.inputs():
        inner = value.node()
        if inner.kind() == "prim::ListConstruct":
            yield from (one for one in inner.inputs() if one.type().kind() == "TensorType")
        elif value.type().kind() == "TensorType":
            yield value
