"""TFLite models, by path."""

from __future__ import annotations

from pathlib import Path

from op_profiler.frontends import _tflite
from op_profiler.frontends._base import Frontend, ModelRequest, RelayModel
from op_profiler.frontends._content import fingerprint


class TfliteFrontend(Frontend):
    """Files of TensorFlow Lite, float or quantized."""

    source = "tflite"
    summary = "a path of a .tflite file"

    def names(self) -> list[str]:
        return []

    def _check(self, request: ModelRequest) -> None:
        _tflite.check_tflite(Path(request.name))

    def fingerprint(self, request: ModelRequest) -> str:
        self.check(request)
        return fingerprint(request, packages=("tflite",), files=[Path(request.name)])

    def load(self, request: ModelRequest) -> RelayModel:
        return _tflite.lower(Path(request.name), request)


FRONTEND = TfliteFrontend()
