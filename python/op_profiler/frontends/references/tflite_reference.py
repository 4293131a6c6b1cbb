"""Runs a TFLite model in LiteRT."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from op_profiler.compilers.imported_model import Form, FrameworkReference, ImportedModel, InputSpec, Opened
from op_profiler.frontends.references import other_process
from op_profiler.frontends.references.values import varying

if TYPE_CHECKING:
    import numpy as np


class TfliteReference(FrameworkReference):
    """The reference of an imported TFLite model: the model's file, run by LiteRT.

    Args:
        path: path of the file.
        lower: imports the model with the tensors of these numbers as outputs instead of its own outputs; also returns
            their names.
    """

    framework = "LiteRT"

    def __init__(
        self, path: Path, inputs: Sequence[InputSpec], lower: Callable[[Sequence[int]], tuple[ImportedModel, list[str]]]
    ) -> None:
        self.inputs = tuple(inputs)
        self._path = path
        self._lower = lower

    def outputs(self, batches: Sequence[Mapping[str, np.ndarray]]) -> list[list[np.ndarray]]:
        """Run the model in LiteRT, in a separate process."""
        return self._run(batches).outputs

    def opened(self, batches: Sequence[Mapping[str, np.ndarray]]) -> Opened | None:
        """Run the model with all tensors as outputs, then import it with only the outputs that depend on the inputs."""
        ran = self._run(batches, nodes=True)
        kept = varying(ran.outputs)
        model, names = self._lower([int(ran.names[place]) for place in kept])
        return Opened(model, tuple(names), [[values[place] for place in kept] for values in ran.outputs])

    def write(self, form: Form, folder: Path, inputs: Sequence[np.ndarray]) -> Path:
        """Return the model file itself as TFLite; other forms are rejected."""
        return self._path.resolve() if form == "tflite" else super().write(form, folder, inputs)

    def _run(self, batches: Sequence[Mapping[str, np.ndarray]], *, nodes: bool = False) -> other_process.Ran:
        names = tuple(spec.name for spec in self.inputs)
        what = other_process.ReferenceRun(
            form="tflite", model=str(self._path), data="", inputs=names, batches=len(batches), nodes=nodes
        )
        ran = other_process.run(what, batches)
        self.framework = ran.framework
        return ran
