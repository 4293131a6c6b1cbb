"""Runs an ONNX model in onnxruntime or, if onnxruntime is not installed, in onnx's own evaluator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx

from op_profiler.compilers.imported_model import ImportedModel, InputSpec, Opened
from op_profiler.frontends.references.other_process import FileReference
from op_profiler.frontends.references.values import varying

if TYPE_CHECKING:
    import numpy as np


class OnnxReference(FileReference):
    """The reference of an imported ONNX model: the model's file, run by onnxruntime or by onnx.

    Args:
        path: path of the file.
        resized: function that returns the model with the input sizes of the import; None if the file has these sizes.
        lower: imports the model with the named values as outputs instead of its own outputs.
    """

    framework = "onnxruntime"
    form = "onnx"

    def __init__(
        self,
        path: Path,
        inputs: Sequence[InputSpec],
        resized: Callable[[], Any] | None,
        lower: Callable[[Sequence[str]], ImportedModel],
    ) -> None:
        super().__init__(path, inputs)
        self._resized = resized
        self._lower = lower

    def opened(self, batches: Sequence[Mapping[str, np.ndarray]]) -> Opened | None:
        """Run the model with the results of all nodes as outputs, then import it with only the outputs that depend on
        the inputs."""
        ran = self._run(batches, nodes=True)
        kept = varying(ran.outputs)
        names = [ran.names[place] for place in kept]
        nodes = _nodes(self._path)
        values = [[values[place] for place in kept] for values in ran.outputs]
        return Opened(self._lower(names), tuple(nodes.get(name, name) for name in names), values)

    def _file(self, folder: Path) -> Path:
        """Return the model with the input sizes of the import; written to the folder if its own sizes differ."""
        if self._resized is None:
            return super()._file(folder)

        path = folder / "model.onnx"
        onnx.save(self._resized(), str(path), save_as_external_data=True, location="model.data")
        return path


def _nodes(path: Path) -> dict[str, str]:
    """Return the name of the node that computes each value."""
    graph = onnx.load(str(path), load_external_data=False).graph
    return {name: f"{node.op_type} {node.name or name}" for node in graph.node for name in node.output}
