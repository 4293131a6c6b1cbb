"""Finds the TVM with Relax, and makes a process use it.

Both TVMs have the same module name, so the TVM with Relax is installed in a separate folder, and a process uses only
one of them.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.machinery
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from op_profiler.errors import OpProfilerError
from op_profiler.targets.cuda.tvm_build import driver

FOLDER = "OP_PROFILER_RELAX"
"""Environment variable with the folder, if it is not the default one."""
INSTALL = "source ./env_var.sh relax"
CUDA_RUNTIME = "libcudart.so.13"


def folder() -> Path:
    """Return the folder of the TVM with Relax: ``$OP_PROFILER_RELAX``, else ``relax-tvm`` in Python's environment."""
    named = os.environ.get(FOLDER)
    return Path(named) if named else Path(sys.prefix) / "relax-tvm"


def cuda_folder() -> Path:
    """Return the folder of the CUDA 13 wheels, next to `folder`."""
    return folder() / "nvidia" / "cu13"


def version() -> str | None:
    """Return the version of the TVM with Relax, without importing it; None if it is not installed."""
    found = sorted(folder().glob("apache_tvm-*.dist-info"))
    if not found or not (folder() / "tvm" / "__init__.py").is_file():
        return None
    return found[-1].name.removeprefix("apache_tvm-").removesuffix(".dist-info")


def check() -> None:
    """Raise an error if the TVM with Relax is not installed.

    Raises:
        OpProfilerError: this TVM is not installed; the message has the command that installs it.
    """
    if version() is None:
        raise OpProfilerError(f"there is no TVM with Relax in {folder()}. Install it with: {INSTALL}")


def activate() -> None:
    """Import the TVM with Relax into this process, and make its child processes import it instead of the other TVM.

    Raises:
        OpProfilerError: the TVM with Relax is not installed.
        ImportError, OSError, RuntimeError: the installed TVM cannot be used.
    """
    check()
    ours = str(folder())
    sys.path[:] = [ours, *(entry for entry in sys.path if entry != ours)]
    others = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys([ours, *others]))
    _load_runtime()
    with _without_torch():
        import tvm  # noqa: F401


def _load_runtime() -> None:
    """Load the libraries that TVM's runtime for GPUs is linked against if there is a driver; before TVM's import."""
    if driver() is None:
        return
    for name in (str(cuda_folder() / "lib" / CUDA_RUNTIME), CUDA_RUNTIME):
        with contextlib.suppress(OSError):
            ctypes.CDLL(name, ctypes.RTLD_GLOBAL)
            return


def without(path: str) -> str:
    """Return a ``PYTHONPATH`` without the folder of the TVM with Relax, so that a process uses the other TVM."""
    return os.pathsep.join(entry for entry in path.split(os.pathsep) if entry != str(folder()))


@contextlib.contextmanager
def _without_torch() -> Iterator[None]:
    """Hide torch while tvm_ffi is imported: it would import torch, which takes two seconds and may not be needed."""
    if "torch" in sys.modules:
        yield
        return

    class Hidden:
        def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
            if name == "torch":
                raise ModuleNotFoundError("torch is not imported for tvm_ffi", name="torch")
            return None

    finder = Hidden()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
