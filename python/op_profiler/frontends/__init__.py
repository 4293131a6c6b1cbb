"""Sources of models. Nothing heavy is imported until a model is loaded."""

from __future__ import annotations

import importlib

from op_profiler.errors import UnknownNameError
from op_profiler.frontends.frontend import Frontend

SOURCES = ("local", "transformers", "remoteonnx", "simple", "tflite", "file")
_INTERNAL = ("sample",)


def get_frontend(source: str) -> Frontend:
    """The frontend of a source.

    Raises:
        UnknownNameError: no such source.
    """
    if source not in (*SOURCES, *_INTERNAL):
        raise UnknownNameError("model source", source, SOURCES)
    module = importlib.import_module(f"op_profiler.frontends.{source}")
    frontend: Frontend = module.FRONTEND
    return frontend
