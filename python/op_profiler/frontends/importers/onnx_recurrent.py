"""Rewrites LSTM, GRU and RNN of ONNX that TVM's converters mistake for others.

TVM unrolls them step by step, and ignores lengths of sequences, bounds, coupled gates and the reverse direction.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from op_profiler.frontends.importers.onnx_graph import attribute, replace, set_attributes
from op_profiler.frontends.importers.onnx_nodes import NodeWriter, trimmed
from op_profiler.frontends.importers.onnx_rewriting import Rewriting

_USUAL = {"RNN": ("tanh",), "GRU": ("sigmoid", "tanh"), "LSTM": ("sigmoid", "tanh", "tanh")}
_DIRECTIONS = {b"forward": [False], b"reverse": [True], b"bidirectional": [False, True]}  # whether it goes backwards
_STATE, _LENGTHS = 5, 4  # places of the inputs initial_h and sequence_lens
_CELL = 6

_ACTIVATIONS: dict[str, tuple[str, dict[str, float | None]]] = {
    "affine": ("Affine", {"alpha": None, "beta": None}),
    "elu": ("Elu", {"alpha": 1.0}),
    "hardsigmoid": ("HardSigmoid", {"alpha": 0.2, "beta": 0.5}),
    "leakyrelu": ("LeakyRelu", {"alpha": 0.01}),
    "relu": ("Relu", {}),
    "scaledtanh": ("ScaledTanh", {"alpha": None, "beta": None}),
    "sigmoid": ("Sigmoid", {}),
    "softplus": ("Softplus", {}),
    "softsign": ("Softsign", {}),
    "tanh": ("Tanh", {}),
    "thresholdedrelu": ("ThresholdedRelu", {"alpha": None}),
}
"""ONNX's activations with the defaults of their numbers; None where ONNX and onnxruntime differ."""
_PLAIN = {b"Relu", b"Sigmoid", b"Tanh"}  # as TVM's converters name them

Activation = Callable[[str], str]


class RecurrentRepairs(Rewriting):
    """Rewrites the recurrent nodes of one model, for every importer."""

    def for_all(self) -> None:
        """Rewrite all recurrent nodes.

        Raises:
            ModelError: a node cannot be rewritten.
        """
        self.rewrite(dict.fromkeys(_USUAL, self._recurrent))

    def _recurrent(self, graph: Any, node: Any) -> list[Any]:
        if attribute(node, "direction", b"forward") not in _DIRECTIONS:
            raise ValueError("its direction is none of forward, reverse and bidirectional")
        node.input.extend([""] * (8 - len(node.input)))
        node.output.extend([""] * (3 - len(node.output)))
        steps = self.sizes.get(node.input[0], (None, None))[attribute(node, "layout", 0)]
        if node.input[_LENGTHS]:
            lengths = self.constants.value(node.input[_LENGTHS])
            if lengths is not None and (lengths == steps).all():
                node.input[_LENGTHS] = ""  # exporters give the whole length
        unrolled = self._has_no_converter(node)
        backwards = attribute(node, "direction", b"forward") == b"reverse"
        batch_first = attribute(node, "layout", 0) == 1
        if not (unrolled or backwards or batch_first):
            return [trimmed(node)]
        if steps is None:
            raise self.refused(
                node, "has sequences whose length is known only at run time; export it with a fixed length"
            )
        nodes = NodeWriter(graph, node, self.opset, self.kind_of(node.input[1]))
        outputs = list(node.output)
        if batch_first:
            for place in (0, _STATE, _CELL):
                if node.input[place]:
                    node.input[place] = nodes.add("Transpose", node.input[place], perm=[1, 0, 2])
            replace(node.output, [f"{name}__steps_first" if name else "" for name in outputs])
        if unrolled:
            size = attribute(node, "hidden_size", 0) or self.sizes.get(node.input[2], (0,))[-1]
            if not size:
                raise self.refused(node, "has no hidden_size, and the sizes of its weights are known only at run time")
            _UnrolledNode(node, nodes, steps, size).write()
        else:
            self._converted(node, nodes, steps, backwards)
        for place, name in enumerate(outputs if batch_first else ()):
            if name:
                perm = [1, 0, 2] if place else [2, 0, 1, 3]
                nodes.add("Transpose", node.output[place], output=name, perm=perm)
        return nodes.nodes

    def _has_no_converter(self, node: Any) -> bool:
        """Return whether a node computes something that TVM's converters ignore."""
        return bool(
            node.input[_LENGTHS]
            or attribute(node, "clip", None) is not None
            or attribute(node, "input_forget", 0)
            or set(attribute(node, "activations", [])) - _PLAIN
        )

    def _converted(self, node: Any, nodes: NodeWriter, steps: int, backwards: bool) -> None:
        """Write a node of the same kind that starts with the first step, between reversals."""
        outputs, turned = list(node.output), list(range(steps))[::-1]
        if backwards:
            node.input[0] = nodes.take(node.input[0], turned)
            if outputs[0]:
                node.output[0] = f"{outputs[0]}__backwards"
        set_attributes(node, layout=None, **({"direction": None} if backwards else {}))
        nodes.nodes.append(trimmed(node))
        if backwards and outputs[0]:
            nodes.take(node.output[0], turned, output=outputs[0])


class _UnrolledNode:
    """One node, written step by step.

    Args:
        steps: number of steps of the longest sequence.
        size: size of the state.
    """

    def __init__(self, node: Any, nodes: NodeWriter, steps: int, size: int) -> None:
        self.node, self.nodes, self.steps, self.size = node, nodes, steps, size
        self.x, self.w, self.r, self.b, self.lengths, self.state, self.cell, self.peepholes = node.input[:8]
        self.bound = attribute(node, "clip", None)
        self.backwards = _DIRECTIONS[attribute(node, "direction", b"forward")]
        self.inside = [self._inside(step) for step in range(steps)] if self.lengths else []

    def write(self) -> None:
        """Write the nodes of all steps."""
        activations = self._activations()
        each = len(activations) // len(self.backwards)
        outputs: list[list[str]] = [[], [], []]
        for index, backwards in enumerate(self.backwards):
            taken = activations[index * each : (index + 1) * each]
            steps, state, cell = self._direction(index, backwards, taken)
            if self.node.output[0]:
                shaped = [self.nodes.reshape(step, [1, 1, -1, self.size]) for step in steps]
                outputs[0].append(self.nodes.add("Concat", *shaped, axis=0))
            for place, value in ((1, state), (2, cell)):
                if self.node.output[place]:
                    outputs[place].append(self.nodes.reshape(value, [1, -1, self.size]))
        for place, name in enumerate(self.node.output):
            if name:
                self.nodes.add("Concat", *outputs[place], axis=0 if place else 1, output=name)

    def _direction(self, index: int, backwards: bool, activations: list[Activation]) -> tuple[list[str], str, str]:
        """Return the state after every step in the order of the input, the last state, and the last cell."""
        nodes = self.nodes
        self.gates = [nodes.take(one, index) for one in (self.w, self.r)]
        self.biases = nodes.split(nodes.take(self.b, index), 2, 0) if self.b else ["", ""]
        self.peeps = nodes.split(nodes.take(self.peepholes, index), 3, 0) if self.peepholes else []
        state, cell = (
            nodes.take(one, index) if one else nodes.constant([[0.0] * self.size]) for one in (self.state, self.cell)
        )
        advance = {"RNN": self._rnn, "GRU": self._gru, "LSTM": self._lstm}[self.node.op_type]
        made = [""] * self.steps
        for step in range(self.steps)[::-1] if backwards else range(self.steps):
            later, later_cell = advance(nodes.take(self.x, step), state, cell, activations)
            made[step] = later
            if self.lengths:  # behind the end of a sequence the output is 0, and the state stays
                inside = self.inside[step]
                made[step] = nodes.add("Where", inside, later, nodes.constant(0.0))
                later = nodes.add("Where", inside, later, state)
                later_cell = nodes.add("Where", inside, later_cell, cell) if later_cell != cell else cell
            state, cell = later, later_cell
        return made, state, cell

    def _inside(self, step: int) -> str:
        """Return the name of a Boolean tensor (batch, 1): which sequences of the batch have this step."""
        lengths = self.nodes.reshape(self.lengths, [-1, 1])
        return self.nodes.add("Less", self.nodes.constant(step, "int32"), lengths)

    def _project(self, which: int, data: str, gates: str = "", bias: str = "") -> str:
        """Return the product with the weights of the input (0) or of the state (1), plus their bias."""
        added = bias or self.biases[which]
        return self.nodes.add("Gemm", data, gates or self.gates[which], *([added] if added else []), transB=1)

    def _rnn(self, x: str, state: str, cell: str, activations: list[Activation]) -> tuple[str, str]:
        total = self.nodes.add("Add", self._project(0, x), self._project(1, state))
        return activations[0](self._bounded(total)), cell

    def _gru(self, x: str, state: str, cell: str, activations: list[Activation]) -> tuple[str, str]:
        nodes = self.nodes
        gate, candidate = activations
        of_x = nodes.split(self._project(0, x), 3, 1)
        if attribute(self.node, "linear_before_reset", 0):
            of_state = nodes.split(self._project(1, state), 3, 1)
        else:
            weights = nodes.split(self.gates[1], 3, 0)
            biases = nodes.split(self.biases[1], 3, 0) if self.b else [""] * 3
            of_state = [self._project(1, state, weights[at], biases[at]) for at in range(2)]
        update, reset = (gate(self._bounded(nodes.add("Add", of_x[at], of_state[at]))) for at in range(2))
        if attribute(self.node, "linear_before_reset", 0):
            remembered = nodes.add("Mul", reset, of_state[2])
        else:
            remembered = self._project(1, nodes.add("Mul", reset, state), weights[2], biases[2])
        new = candidate(self._bounded(nodes.add("Add", of_x[2], remembered)))
        kept = nodes.add("Mul", update, nodes.add("Sub", state, new))
        return nodes.add("Add", kept, new), cell

    def _lstm(self, x: str, state: str, cell: str, activations: list[Activation]) -> tuple[str, str]:
        nodes = self.nodes
        gate, candidate, shown = activations
        total = nodes.add("Add", self._project(0, x), self._project(1, state))
        enter, leave, forget, new = nodes.split(total, 4, 1)
        entered = gate(self._bounded(self._peep(enter, 0, cell)))
        if attribute(self.node, "input_forget", 0):
            kept = nodes.add("Sub", nodes.constant(1.0), entered)
        else:
            kept = gate(self._bounded(self._peep(forget, 2, cell)))
        added = nodes.add("Mul", entered, candidate(self._bounded(new)))
        later = nodes.add("Add", nodes.add("Mul", kept, cell), added)
        left = gate(self._bounded(self._peep(leave, 1, later)))
        return nodes.add("Mul", left, shown(later)), later

    def _peep(self, data: str, which: int, cell: str) -> str:
        """Add the cell, weighted by the peephole of that gate."""
        if not self.peeps:
            return data
        return self.nodes.add("Add", data, self.nodes.add("Mul", self.peeps[which], cell))

    def _bounded(self, data: str) -> str:
        return data if self.bound is None else self.nodes.clip(data, self.bound)

    def _activations(self) -> list[Activation]:
        """Return the activations of all directions, in order; activations with parameters consume the given values."""
        usual = [one.encode() for one in _USUAL[self.node.op_type]] * len(self.backwards)
        given = {which: list(attribute(self.node, f"activation_{which}", [])) for which in ("alpha", "beta")}
        made = []
        for named in (one.decode() for one in attribute(self.node, "activations", usual)):
            if named.lower() not in _ACTIVATIONS:
                raise ValueError(f"ONNX has no activation {named}")
            operator, numbers = _ACTIVATIONS[named.lower()]
            values = {which: given[which].pop(0) if given[which] else default for which, default in numbers.items()}
            if None in values.values():
                raise ValueError(f"its activation {named} has no defaults: give activation_alpha and activation_beta")
            made.append(self._activation(operator, values))
        return made

    def _activation(self, operator: str, values: dict[str, Any]) -> Activation:
        nodes = self.nodes
        if operator not in ("Affine", "ScaledTanh"):  # which are no operators of ONNX any more
            return lambda data: nodes.add(operator, data, **values)
        alpha, beta = (nodes.constant(values[which]) for which in ("alpha", "beta"))
        if operator == "Affine":
            return lambda data: nodes.add("Add", nodes.add("Mul", data, alpha), beta)
        return lambda data: nodes.add("Mul", nodes.add("Tanh", nodes.add("Mul", data, beta)), alpha)
