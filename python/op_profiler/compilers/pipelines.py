"""Which passes take a model to kernels: a compiler's own, another that it knows by name, or the user's.

A user's pipeline is ``MODULE:FUNCTION``: called with the ``tvm.target.Target``, the function gives a
``tvm.transform.Pass``. Nothing is imported here before it is used, so that a request is checked, and known in the
dataset, without TVM.
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
"""The way that TVM itself goes with Relax."""


def pipeline_identity(name: str) -> str:
    """What decides what a pipeline does: its name, and of a user's the content of its module."""
    if ":" not in name:
        return name
    return f"{name} {hashlib.sha256(file_of(name).read_bytes()).hexdigest()[:16]}"


def load_function(name: str) -> Callable[[Target], Callable[[IRModule], IRModule]]:
    """The function ``MODULE:FUNCTION``; its module may lie in the working directory.

    Raises:
        UsageError: there is none.
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
    """The file of the module of ``MODULE:FUNCTION``, found without importing what it lies in.

    Raises:
        UsageError: there is none.
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
