"""Element types for which Relay's ONNX importer does not support some operators, although ONNX does."""

from __future__ import annotations

from typing import Any

from onnx import TensorProto, helper

from op_profiler.frontends.importers.onnx_rewriting import Rewriting

_SMALL = ("INT8", "UINT8", "BOOL")
_UNSIGNED = ("UINT8", "UINT16", "UINT32")
_WHOLE = ("INT8", "INT16", "INT32", "INT64", *_UNSIGNED)

_COMPUTED_IN: dict[str, dict[str, str]] = {
    # LLVM ends the process: TVM calls functions of C for halves as if they took them
    **dict.fromkeys(("Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh"), {"FLOAT16": "FLOAT"}),
    # the least number of the type is where TVM begins, and wins beside itself with the place -1
    **dict.fromkeys(("ArgMax", "ArgMin"), {**dict.fromkeys(("INT8", "INT16", "UINT8", "UINT16"), "INT32")}),
    "Erf": dict.fromkeys(_WHOLE, "DOUBLE"),  # an approximation of floats, computed with integers
    **dict.fromkeys(("GridSample", "RoiAlign"), dict.fromkeys(("FLOAT16", "DOUBLE", *_SMALL, *_WHOLE), "FLOAT")),
    **dict.fromkeys(("ReduceL2", "ReduceLogSum", "ReduceLogSumExp"), dict.fromkeys(_WHOLE, "DOUBLE")),
    "Sign": dict.fromkeys(_UNSIGNED, "INT64"),
    "Unique": dict.fromkeys(_SMALL, "INT32"),
}
"""By operator and dtype of its first input: the dtype in which it is computed, with casts around it."""


class TypeRepairs(Rewriting):
    """Inserts casts around those nodes of one model whose element type Relay's importer does not support."""

    def for_relay(self) -> None:
        """Insert casts around all nodes whose element type Relay's importer does not support."""
        nodes = {node.op_type for node in self.model.graph.node}
        if nodes & _COMPUTED_IN.keys():
            self.rewrite(dict.fromkeys(_COMPUTED_IN, self._add_casts))

    def _add_casts(self, graph: Any, node: Any) -> list[Any]:
        table = _COMPUTED_IN[node.op_type]
        own = self._type_of(node.input[0])
        if own not in table:
            return [node]
        computed = table[own]
        before, after = [], []
        for place, name in enumerate(node.input):
            if name and self._type_of(name) == own:
                node.input[place] = f"{node.output[0]}__in_{place}"
                made = helper.make_node("Cast", [name], [node.input[place]], to=TensorProto.DataType.Value(computed))
                before.append(made)
        for place, name in enumerate(node.output):
            if name and self._type_of(name) == own:
                node.output[place] = f"{name}__computed"
                back = helper.make_node("Cast", [node.output[place]], [name], to=TensorProto.DataType.Value(own))
                after.append(back)
        return [*before, node, *after]

    def _type_of(self, name: str) -> str:
        """Return the name of the type of a tensor's elements; empty if unknown."""
        number = self.element_of(name)
        return str(TensorProto.DataType.Name(number)) if number else ""
