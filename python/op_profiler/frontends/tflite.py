"""TFLite models by path."""

from __future__ import annotations

from pathlib import Path

from op_profiler.errors import MissingPackageError, UsageError
from op_profiler.frontends import _tflite, _zoo
from op_profiler.frontends._base import Frontend, ModelRequest, RelayModel
from op_profiler.frontends._content import check_file, fingerprint


class TfliteFrontend(Frontend):
    """``--modelname`` is the path of a .tflite file."""

    source = "tflite"
    summary = "a .tflite file by path"

    def names(self) -> list[str]:
        return []

    def check(self, request: ModelRequest) -> None:
        if not _zoo.installed("tflite"):
            raise MissingPackageError("tflite", "TFLite models")
        check_file(Path(request.name))
        if request.input_shapes:
            raise UsageError("a TFLite model carries its shapes; --inputshape does not apply, --batchsize does")

    def fingerprint(self, request: ModelRequest) -> str:
        return fingerprint(request, packages=("tflite",), files=[Path(request.name)])

    def load(self, request: ModelRequest) -> RelayModel:
        self.check(request)
        return _tflite.lower(Path(request.name), request)


FRONTEND = TfliteFrontend()
