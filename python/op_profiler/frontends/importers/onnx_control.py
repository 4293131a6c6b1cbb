"""Evaluates branches and loops of ONNX graphs that do not depend on inputs, because the graph executor supports
neither.

An If on a constant is replaced by its branch. A Loop with a known number of steps and a Scan are unrolled, unless the
graph becomes too large. Remaining loops and branches need the virtual machine.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from onnx import NodeProto, TensorProto, helper, numpy_helper

from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.frontends.importers.onnx_graph import attribute, bodies_of, replace
from op_profiler.frontends.importers.onnx_nodes import NodeWriter
from op_profiler.frontends.importers.onnx_rewriting import Rewriting

_MOST_NODES = 3000
"""Largest number of nodes of an unrolled loop: as many kernels as the largest networks have."""
_DEEPEST = 16


class KnownControl(Rewriting):
    """Resolves those branches and unrolls those loops of one model that do not depend on its inputs.

    Attributes:
        unrolled: number of steps of each unrolled loop.
    """

    def spell_out(self) -> tuple[str, ...]:
        """Resolve branches and unroll loops until those that remain depend on inputs; return notes for the user."""
        self.unrolled: list[int] = []
        for depth in range(_DEEPEST):
            one = KnownControl(self.model, self.shapes, self.name)
            one.unrolled, one.place = self.unrolled, depth
            if not one.spell_out_once():
                break
        steps = ", ".join(map(str, self.unrolled))
        return (f"loops of {steps} steps are written out step by step",) if self.unrolled else ()

    place = 0

    def spell_out_once(self) -> bool:
        """Resolve branches and unroll loops of the outermost graph once; return whether the graph was changed."""
        graph, nodes, changed = self.model.graph, [], False
        for number, node in enumerate(graph.node):
            self._prefix = f"__{node.op_type.lower()}{self.place}_{number}_"
            made = None
            if node.domain in ("", "ai.onnx") and node.op_type in ("If", "Loop", "Scan"):
                made = {"If": self._branch, "Loop": self._loop, "Scan": self._scan}[node.op_type](graph, node)
            nodes += [node] if made is None else made
            changed |= made is not None
        replace(graph.node, nodes)
        return changed

    def _branch(self, graph: Any, node: Any) -> list[Any] | None:
        condition = self.constants.value(node.input[0])
        if condition is None:
            return None
        body = attribute(node, "then_branch" if bool(condition.reshape(-1)[0]) else "else_branch", None)
        nodes, outputs = _inlined(graph, body, {}, self._prefix)
        return _named(nodes, outputs, node.output)

    def _loop(self, graph: Any, node: Any) -> list[Any] | None:
        body = attribute(node, "body", None)
        most = self.constants.value(node.input[0]) if node.input[0] else None
        begins = self.constants.value(node.input[1]) if len(node.input) > 1 and node.input[1] else True
        count = None if most is None else max(int(most.reshape(-1)[0]), 0)
        if begins is not None and not bool(begins):
            count = 0
        if count is None or begins is None or (count and not _goes_on(body)) or not self._fits(count, body):
            return None
        states = list(node.input[2:])
        stacks: list[list[str]] = [[] for _ in body.output[1 + len(states) :]]
        if stacks and not count:
            return None  # an empty tensor, whose other sizes only the body tells
        writer = NodeWriter(graph, node, self.opset)
        nodes: list[Any] = []
        for step in range(count):
            given = [writer.constant(step, "int64"), writer.constant(True, "bool"), *states]
            made, outputs = _inlined(graph, body, _mapped(body, given), f"{self._prefix}{step}_")
            nodes += made
            states = outputs[1 : 1 + len(states)]
            for stack, name in zip(stacks, outputs[1 + len(states) :], strict=True):
                stack.append(name)
        self.unrolled.append(count)
        stacked = [_stacked(writer, stack, 0) for stack in stacks]
        return _named(nodes + writer.nodes, [*states, *stacked], node.output)

    def _scan(self, graph: Any, node: Any) -> list[Any] | None:
        if self.opset < 9:
            return None  # it has lengths of sequences, and a batch
        body, scanned = attribute(node, "body", None), attribute(node, "num_scan_inputs", 1)
        states, inputs = list(node.input[:-scanned]), list(node.input[-scanned:])
        axes = attribute(node, "scan_input_axes", [0] * scanned)
        backward = attribute(node, "scan_input_directions", [0] * scanned)
        outs = len(body.output) - len(states)
        out_axes = attribute(node, "scan_output_axes", [0] * outs)
        out_backward = attribute(node, "scan_output_directions", [0] * outs)
        dims = self.sizes.get(inputs[0])
        count = dims[axes[0]] if dims else None
        if not count or not self._fits(count, body):
            return None
        writer = NodeWriter(graph, node, self.opset)
        nodes: list[Any] = []
        stacks: list[list[str]] = [[] for _ in range(outs)]
        for step in range(count):
            taken = NodeWriter(graph, node, self.opset)
            taken.prefix(f"{self._prefix}{step}_given")
            places = [count - 1 - step if back else step for back in backward]
            parts = [taken.take(data, at, axis) for data, at, axis in zip(inputs, places, axes, strict=True)]
            made, outputs = _inlined(graph, body, _mapped(body, [*states, *parts]), f"{self._prefix}{step}_")
            nodes += taken.nodes + made
            states = outputs[: len(states)]
            for stack, name in zip(stacks, outputs[len(states) :], strict=True):
                stack.append(name)
        self.unrolled.append(count)
        ordered = [stack[::-1] if back else stack for stack, back in zip(stacks, out_backward, strict=True)]
        stacked = [_stacked(writer, stack, axis) for stack, axis in zip(ordered, out_axes, strict=True)]
        return _named(nodes + writer.nodes, [*states, *stacked], node.output)

    def _fits(self, count: int, body: Any) -> bool:
        return count * len(body.node) <= _MOST_NODES


def _goes_on(body: Any) -> bool:
    """Return whether a loop never ends by its condition: its body returns true, or the condition that it received."""
    makers = {name: node for node in body.node for name in node.output}
    constants = {t.name: t for t in body.initializer}
    name = body.output[0].name
    while name in makers and makers[name].op_type in ("Identity", "Cast"):
        name = makers[name].input[0]
    if name in makers and makers[name].op_type == "Constant":
        constants[name] = attribute(makers[name], "value", None)
    if constants.get(name) is not None:
        return bool(numpy_helper.to_array(constants[name]).reshape(-1)[0])
    return bool(name == body.input[1].name)


def _mapped(body: Any, given: Sequence[str]) -> dict[str, str]:
    return {one.name: name for one, name in zip(body.input, given, strict=True)}


def _inlined(graph: Any, body: Any, given: Mapping[str, str], prefix: str) -> tuple[list[Any], list[str]]:
    """Return the nodes of a body with new names, and the names of its outputs.

    Args:
        graph: graph to which the constants of the body are added.
        given: names outside of the body for its inputs.
    """
    names = {**{t.name: prefix + t.name for t in body.initializer}, **given}
    names |= {name: prefix + name for node in body.node for name in node.output if name}
    for tensor in body.initializer:
        copy = TensorProto()
        copy.CopyFrom(tensor)
        copy.name = names[tensor.name]
        graph.initializer.append(copy)
    nodes = [_renamed(node, names, prefix) for node in body.node]
    return nodes, [names.get(one.name, one.name) for one in body.output]


def _renamed(node: Any, names: Mapping[str, str], prefix: str) -> Any:
    """Return a copy of a node with other names outside of its own bodies."""
    copy = NodeProto()
    copy.CopyFrom(node)
    replace(copy.input, [names.get(name, name) for name in node.input])
    replace(copy.output, [names.get(name, name) for name in node.output])
    copy.name = f"{prefix}{node.name}" if node.name else ""
    for inner in bodies_of(copy):
        own = {t.name for t in inner.initializer} | {one.name for one in inner.input}
        own |= {name for one in inner.node for name in one.output}
        outside = {name: other for name, other in names.items() if name not in own}
        replace(inner.node, [_renamed(one, outside, "") for one in inner.node])
        for output in inner.output:
            output.name = outside.get(output.name, output.name)
    return copy


def _stacked(writer: NodeWriter, names: Sequence[str], axis: int) -> str:
    """Stack the tensors of all steps along a new axis."""
    rows = [writer.unsqueeze(name, [axis]) for name in names]
    return writer.add("Concat", *rows, axis=axis)


def _named(nodes: Sequence[Any], made: Sequence[str], names: Sequence[str]) -> list[Any]:
    """Return the nodes with the names of their outputs in the rest of the graph; outputs that are inputs are copied."""
    own = {name for node in nodes for name in node.output}
    new: dict[str, str] = {}
    copies = []
    for value, name in zip(made, names):
        if not name:
            continue
        if value in own and value not in new:
            new[value] = name
        else:
            copies.append(helper.make_node("Identity", [new.get(value, value)], [name]))
    return [_renamed(node, new, "") for node in nodes] + copies


@contextlib.contextmanager
def one_variable_an_input(frontend: Any) -> Iterator[None]:
    """Keep one variable for each input that branches read, while TVM converts a graph. TVM types each branch
    separately and thereby creates a new variable, which TVM cannot find by name later.

    Args:
        frontend: TVM's importer of ONNX, a module.
    """
    usual = {kind: kind.get_converter for kind in (frontend.If, frontend.Loop, frontend.Scan)}

    def converter_of(kind: Any, opset: int) -> Any:
        convert = usual[kind](opset)

        def converted(inputs: Any, attributes: Any, params: Any) -> Any:
            scope = frontend.GraphProto.current
            before = {name: one for name, one in scope._nodes.items() if isinstance(one, relay.Var)}
            named = dict(scope._inputs)
            made = convert(inputs, attributes, params)
            scope._nodes.update(before)
            scope._inputs.update(named)
            whole = made.astuple() if isinstance(made, relay.TupleWrapper) else made
            free = relay.analysis.free_vars(whole)
            others = {v: before[v.name_hint] for v in free if v.name_hint in before and v is not before[v.name_hint]}
            if not others:
                return made
            bound = relay.bind(whole, others)
            return relay.TupleWrapper(bound, len(made)) if isinstance(made, relay.TupleWrapper) else bound

        return converted

    relay = load_tvm().relay
    for kind in usual:
        kind.get_converter = classmethod(converter_of)
    try:
        yield
    finally:
        for kind in usual:
            del kind.get_converter
