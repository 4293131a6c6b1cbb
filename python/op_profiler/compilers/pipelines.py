"""Pipelines, the passes that lower a model to kernels: a compiler's own, another registered one, or the user's.

A user's pipeline is ``MODULE:FUNCTION``: the function gets the ``tvm.target.Target`` and returns a
``tvm.transform.Pass``. Nothing is imported before it is used, so that a request can be checked and looked up in the
dataset without TVM.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.machinery
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from op_profiler.errors import UsageError

if TYPE_CHECKING:
    from op_profiler.compilers.tvm_types import IRModule, Target

DEFAULT_PIPELINE = "default"
STOCK = "stock"
"""TVM's own pipeline for Relax."""


def pipeline_identity(name: str) -> str:
    """Return what identifies a pipeline: its name, and for a user's pipeline the content of its module."""
    if ":" not in name:
        return name
    return f"{name} {hashlib.sha256(file_of(name).read_bytes()).hexdigest()[:16]}"


def load_function(name: str) -> Callable[[Target], Callable[[IRModule], IRModule]]:
    """Return the function ``MODULE:FUNCTION``; its module may be in the working directory.

    Raises:
        UsageError: the module does not exist or has no function of this name.
    """
    module, _, function = name.partition(":")
    file_of(name)
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    found = getattr(importlib.import_module(module), function, None)
    if not callable(found):
        raise UsageError(f"--pipeline {name}: {module} has no function {function}")
    given: Callable[[Target], Callable[[IRModule], IRModule]] = found
    return given


def file_of(name: str) -> Path:
    """Return the file of the module of ``MODULE:FUNCTION`` without importing its package.

    Raises:
        UsageError: the module is not found, or the name contains no function.
    """
    module, _, function = name.partition(":")
    path: list[str] | None = [*sys.path, os.getcwd()]
    spec = None
    for count in range(1, module.count(".") + 2):
        of_package = ".".join(module.split(".")[:count])
        spec = importlib.machinery.PathFinder.find_spec(of_package, path) if path else None
        path = list(spec.submodule_search_locations or ()) if spec is not None else None
    if not function or spec is None or spec.origin is None:
        raise UsageError(
            f"--pipeline {name}: there is no module {module!r} here or on PYTHONPATH; give MODULE:FUNCTION"
        )
    return Path(spec.origin)
