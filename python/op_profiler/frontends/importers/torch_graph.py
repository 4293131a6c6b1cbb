"""Rewrites the graph of a trace for TVM's importer.

- Weights: a layer that is called twice (all of ALBERT's) has its weights read once per call, and the importer would
  copy them for each call. Here each weight is read once.
- Functions: a trace contains a user's ``torch.autograd.Function`` as a single node with the computation inside, which
  no importer supports.
- Names: scripts and exported programs call conv2d where a trace has _convolution, which the importer supports; they
  also check their inputs, which the example has already passed.
- Integers that torch can compute: see `torch_numbers`.
- Complex numbers: see `torch_complex`.
- Operators without a converter: see `torch_decompositions`.
- Number types, options of operators and in-place writes, which the importer would ignore: see `torch_types`,
  `torch_options` and `torch_writes`.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from op_profiler.frontends.importers.torch_complex import say_without_complex_numbers
from op_profiler.frontends.importers.torch_decompositions import decompose
from op_profiler.frontends.importers.torch_layers import inline, note_location
from op_profiler.frontends.importers.torch_library import torch
from op_profiler.frontends.importers.torch_nodes import known_tensor, replace, substitute
from op_profiler.frontends.importers.torch_numbers import fold_integers
from op_profiler.frontends.importers.torch_options import spell_out_options
from op_profiler.frontends.importers.torch_types import spell_out_types
from op_profiler.frontends.importers.torch_writes import say_without_writing

_FUNCTION = "prim::PythonOp"
_ASSERTIONS = ("aten::_assert_tensor_metadata", "aten::_assert_async")
_SAME = {
    "aten::clip": "aten::clamp",
    "aten::concat": "aten::cat",
    "aten::concatenate": "aten::cat",
    "aten::divide": "aten::div",
    "aten::multiply": "aten::mul",
    "aten::negative": "aten::neg",
    "aten::subtract": "aten::sub",
    "aten::true_divide": "aten::div",
}
"""Second names of operators; the importer supports the first ones."""
_CONVOLUTIONS = {"aten::conv1d": 1, "aten::conv2d": 2, "aten::conv3d": 3}


def prepare(traced: Any, model: Any, converters: Container[str]) -> None:
    """Rewrite the graph of a trace of a model, in place, into a form that TVM's importer converts correctly. Nodes get
    their locations as `inline` describes.

    Args:
        converters: operators for which this package has a converter, in addition to TVM's own converters.
    """
    graph = traced.graph
    inline(traced, model)
    _open_functions(graph, model)
    _read_weights_once(traced)
    _spell_out_all(traced)
    decompose(graph, converters, _spell_out_all)


def _spell_out_all(traced: Any) -> None:
    graph = traced.graph
    fold_integers(traced)
    _name_as_traces_do(graph)
    say_without_complex_numbers(traced)
    spell_out_types(graph)
    spell_out_options(traced)
    say_without_writing(graph)


def _open_functions(graph: Any, model: Any) -> None:
    """Replace each ``torch.autograd.Function`` by its traced operators; functions may call other functions."""
    if not any(node.kind() == _FUNCTION for node in graph.nodes()):
        return
    torch._C._jit_pass_onnx_autograd_function_process(graph)  # what each did becomes a block of its node; only once
    while functions := [node for node in graph.nodes() if node.kind() == _FUNCTION and len(list(node.blocks())) == 1]:
        for node in functions:
            _open(graph, node, model)


def _open(graph: Any, node: Any, model: Any) -> None:
    (block,) = node.blocks()
    for inside, given in zip(block.inputs(), node.inputs(), strict=True):
        inside.replaceAllUsesWith(given)
    for step in list(block.nodes()):
        step.moveBefore(node)
        if not step.kind().startswith("prim::"):
            note_location(step, node, model)
    results = list(block.outputs())
    if node.output().type().kind() == "TupleType":
        replace(graph, node, "prim::TupleConstruct", results)
    else:
        substitute(node, results[0])


def _read_weights_once(traced: Any) -> None:
    """Read each weight and buffer by one node, whose output has the shape and type of the tensor."""
    first: dict[tuple[str, str], Any] = {}
    for node in list(traced.graph.nodes()):
        if node.kind() == "prim::GetAttr":
            value = first.setdefault((node.inputsAt(0).debugName(), node.s("name")), node.output())
            if value is not node.output():
                substitute(node, value)
            elif (tensor := known_tensor(traced, value)) is not None:
                value.inferTypeFrom(tensor)


def _name_as_traces_do(graph: Any) -> None:
    for node in list(graph.nodes()):
        if node.kind() in _ASSERTIONS or _only_raises(node):
            node.destroy()
        elif node.kind() == "prim::Constant" and node.output().type().kind() == "ListType":
            _spell_out(graph, node)
        elif node.kind() in _SAME:
            replace(graph, node, _SAME[node.kind()], list(node.inputs()))
        elif node.kind() in _CONVOLUTIONS and not any(i.type().kind() == "StringType" for i in node.inputs()):
            data, weight, bias, stride, padding, dilation, groups = node.inputs()
            with graph.insert_point_guard(node):
                no, zero = graph.insertConstant(False), graph.insertConstant(0)
                zeros = graph.create("prim::ListConstruct", [zero] * _CONVOLUTIONS[node.kind()], 1)
                graph.insertNode(zeros).output().setType(stride.type())
            inputs = [data, weight, bias, stride, padding, dilation, no, zeros.output(), groups, no, no, no, no]
            replace(graph, node, "aten::_convolution", inputs)
    torch._C._jit_pass_dce(graph)


def _only_raises(node: Any) -> bool:
    """Return whether an if has no outputs and contains only an exception."""
    if node.kind() != "prim::If" or node.outputsSize():
        return False
    return all(n.kind() in ("prim::RaiseException", "prim::Constant") for b in node.blocks() for n in b.nodes())


def _spell_out(graph: Any, node: Any) -> None:
    """Replace a constant list by a list of constants."""
    values = node.output().toIValue()
    with graph.insert_point_guard(node):
        made = graph.create("prim::ListConstruct", [graph.insertConstant(value) for value in values], 1)
        graph.insertNode(made)
    made.output().setType(node.output().type())
    substitute(node, made.output())
