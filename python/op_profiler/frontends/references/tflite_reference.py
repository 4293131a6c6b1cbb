"""Runs a TFLite model in LiteRT."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from op_profiler.compilers.imported_model import ImportedModel, InputSpec, Opened
from op_profiler.frontends.references.other_process import FileReference
from op_profiler.frontends.references.values import varying

if TYPE_CHECKING:
    import numpy as np


class TfliteReference(FileReference):
    """The reference of an imported TFLite model: the model's file, run by LiteRT.

    Args:
        path: path of the file.
        lower: imports the model with the tensors of these numbers as outputs instead of its own outputs; also returns
            their names.
    """

    framework = "LiteRT"
    form = "tflite"

    def __init__(
        self, path: Path, inputs: Sequence[InputSpec], lower: Callable[[Sequence[int]], tuple[ImportedModel, list[str]]]
    ) -> None:
        super().__init__(path, inputs)
        self._lower = lower

    def opened(self, batches: Sequence[Mapping[str, np.ndarray]]) -> Opened | None:
        """Run the model with all tensors as outputs, then import it with only the outputs that depend on the inputs."""
        ran = self._run(batches, nodes=True)
        kept = varying(ran.outputs)
        model, names = self._lower([int(ran.names[place]) for place in kept])
        return Opened(model, tuple(names), [[values[place] for place in kept] for values in ran.outputs])
