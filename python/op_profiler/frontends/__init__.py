"""Sources of models. Nothing heavy is imported until a model is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from op_profiler.registry import Entry, Registry

if TYPE_CHECKING:
    from op_profiler.frontends.frontend import Frontend

_HERE = "op_profiler.frontends"
_FILES = (".onnx", ".tflite", ".pt", ".pt2")
"""Suffixes of model files; a name with such a suffix is a path, even if the file is missing."""

FRONTENDS: Registry[Frontend] = Registry(
    "frontends",
    "model source",
    f"{_HERE}.frontend:Frontend",
    {
        "local": Entry(
            f"{_HERE}.local:FRONTEND",
            "TVM's zoo, recurrent and randomly wired networks; with the extra 'models', also torchvision and "
            "pretrainedmodels",
        ),
        "transformers": Entry(
            f"{_HERE}.transformers:FRONTEND",
            "transformers' architectures with random weights, or a local checkpoint folder",
        ),
        "remoteonnx": Entry(
            f"{_HERE}.remoteonnx:FRONTEND",
            "an http(s) address or a path of an .onnx or .tar.gz, or a graph of the onnx package",
        ),
        "simple": Entry(f"{_HERE}.simple:FRONTEND", "single operators with usual sizes; set them with --inputshape"),
        "tflite": Entry(f"{_HERE}.tflite:FRONTEND", "a path of a .tflite file"),
        "file": Entry(
            f"{_HERE}.file:FRONTEND",
            "a TorchScript, torch.export, ONNX or TFLite file, or package.module:function that returns a torch module, "
            "and its example inputs unless --inputshape gives their shapes",
        ),
    },
    unlisted={"sample": Entry(f"{_HERE}.sample:FRONTEND", "batches of sampled operators, made by op-profiler sample")},
)


def source_and_name(model: str, default: str = "local") -> tuple[str, str]:
    """Return the source and the name of a model.

    Args:
        model: ``source:name``, an address, a file, ``package.module:function``, or a name of the source `default`.
    """
    source, colon, name = model.partition(":")
    if colon and source in FRONTENDS:
        return source, name
    if Path(model).is_file():
        return "file", model
    if default == "local" and "://" in model:
        return "remoteonnx", model
    if default == "local" and (colon or model.endswith(_FILES)):
        return "file", model
    return default, model
