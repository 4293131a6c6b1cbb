"""The source ``tflite``: TFLite models by path."""

from __future__ import annotations

from pathlib import Path

from op_profiler.compilers.imported_model import ImportedModel
from op_profiler.frontends.fingerprints import fingerprint
from op_profiler.frontends.frontend import Frontend, ModelRequest
from op_profiler.frontends.importers import tflite as tflite_importer


class TfliteFrontend(Frontend):
    """The source ``tflite``: files of TensorFlow Lite, float or quantized."""

    source = "tflite"

    def names(self) -> list[str]:
        """Return an empty list: models are given by path."""
        return []

    def _check(self, request: ModelRequest) -> None:
        tflite_importer.check_tflite(Path(request.name))

    def fingerprint(self, request: ModelRequest) -> str:
        """Hash the file and the version of the package tflite."""
        self.check(request)
        return fingerprint(request, packages=("tflite",), files=[Path(request.name)])

    def load(self, request: ModelRequest) -> ImportedModel:
        """Import the TFLite file.

        Raises:
            ModelError: the file is not a TFLite model, or an operator is not supported.
        """
        return tflite_importer.lower(Path(request.name), request)


FRONTEND = TfliteFrontend()
