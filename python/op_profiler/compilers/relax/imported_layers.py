"""Records the layers of modules that Relax's own importers create: modules of torch, nodes of ONNX, and tensors of
TFLite, with the same names as from Relay's importers.

These importers do not name layers. Each converts the operators of its source one by one, so everything emitted
meanwhile belongs to the current operator.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from op_profiler.compilers.relax.layers import LayerVariables
from op_profiler.compilers.tvm_build import load_tvm, replaced
from op_profiler.operators.locations import Location


class NotedLayers:
    """Records the layer of each variable that an importer emits into a module.

    Attributes:
        current: text of the location of the operator that is being imported, such as its layer; empty if unknown.
        variables: creates the names of emitted variables, and records their layers.
    """

    def __init__(self) -> None:
        self.current = ""
        self.variables = LayerVariables()

    @contextlib.contextmanager
    def emitting(self) -> Iterator[None]:
        """Inside the block, name each emitted variable by `variables`, so that its name identifies its layer.

        For ONNX and TFLite, Relax would emit the last call of an operator only when another call reads it; here it is
        emitted at once.
        """
        relax = load_tvm().relax
        builder = relax.BlockBuilder
        emit, normalize = builder.emit, builder.normalize

        def named(self_: Any, value: Any, name_hint: str = "") -> Any:
            layers = (self.current,) if self.current else ()
            return emit(self_, value, name_hint or self.variables.name(layers))

        def emitted(self_: Any, value: Any) -> Any:
            made = normalize(self_, _with_calls(value, lambda call: named(self_, call)) if self.current else value)
            tensors = isinstance(made, relax.Call) and isinstance(made.ty, relax.TensorType)
            return named(self_, made) if tensors and self.current else made

        with replaced(builder, "emit", named), replaced(builder, "normalize", emitted):
            yield

    @contextlib.contextmanager
    def of_torch(self, location_of: Callable[[Any], Location]) -> Iterator[None]:
        """Record layers while an exported program is imported.

        Args:
            location_of: returns the location of a ``torch.fx.Node``.
        """
        from tvm.relax.frontend.torch import exported_program_translator

        usual = exported_program_translator.ExportedProgramImporter
        noted = self

        class Importer(usual):  # type: ignore[misc, valid-type]  # TVM has no types
            def create_convert_map(self) -> dict[str, Any]:
                return {name: self._noting(convert) for name, convert in super().create_convert_map().items()}

            def _noting(self, convert: Callable[..., Any]) -> Callable[..., Any]:
                def converted(node: Any, *rest: Any) -> Any:
                    noted.current = location_of(node).text
                    return convert(node, *rest)

                return converted

        with replaced(exported_program_translator, "ExportedProgramImporter", Importer), self.emitting():
            yield

    @contextlib.contextmanager
    def of_onnx(self) -> Iterator[None]:
        """Record layers while an ONNX graph with named nodes is imported."""
        from tvm.relax.frontend.onnx import onnx_frontend

        importer = onnx_frontend.ONNXGraphImporter
        convert = importer._convert_operator

        def converted(self_: Any, name: str, inputs: Any, attrs: Any, opset: int) -> Any:
            self.current = str(attrs["tvm_custom"]["name"])
            return convert(self_, name, inputs, attrs, opset)

        with replaced(importer, "_convert_operator", converted), self.emitting():
            yield

    def tflite_converter(self) -> Any:
        """Return a class that converts operators for ``from_tflite`` and records their layers."""
        from tvm.relax.frontend.tflite import tflite_frontend

        from op_profiler.frontends.importers.tflite_names import custom_name

        noted = self

        class Converter(tflite_frontend.OperatorConverter):
            def __init__(self, *arguments: Any) -> None:
                super().__init__(*arguments)
                converts: dict[str, Any] = vars(self)["convert_map"]
                self.convert_map = {name: self._noting(convert) for name, convert in converts.items()}

            def get_op_code_str(self, op: Any) -> str:
                return custom_name(self.model, op) or str(super().get_op_code_str(op))

            def _noting(self, convert: Callable[..., Any]) -> Callable[..., Any]:
                def converted(op: Any) -> Any:
                    tensors = [one.tensor_idx for one in self.get_output_tensors(op)]
                    name_of = tflite_frontend.get_tensor_name
                    noted.current = ", ".join(name_of(self.subgraph, number) for number in tensors)
                    return convert(op=op)

                return converted

        return Converter


def _with_calls(value: Any, emit: Callable[[Any], Any]) -> Any:
    """Return a tuple of fields of calls, such as the result of a batch norm, with each of these calls emitted once."""
    relax = load_tvm().relax
    emitted: dict[Any, Any] = {}

    def replaced(part: Any) -> Any:
        if isinstance(part, relax.Tuple):
            return relax.Tuple([replaced(field) for field in part.fields])
        if not isinstance(part, relax.TupleGetItem) or not isinstance(part.tuple_value, relax.Call):
            return part
        call = part.tuple_value
        if call not in emitted:
            emitted[call] = emit(call)
        return relax.TupleGetItem(emitted[call], part.index)

    return replaced(value)


def name_nodes(graph: Any) -> None:
    """Name the unnamed nodes of an ONNX graph as Relay's importer does."""
    counts: dict[str, int] = {}
    for node in graph.node:
        if not node.name:
            node.name = f"{node.op_type}_{counts.setdefault(node.op_type, 0)}"
            counts[node.op_type] += 1
