"""Libraries that the TVM with Relax loads for NVIDIA's GPUs: CUDA 13, from wheels or from the system.

TVM generates code for a GPU without a driver. NVIDIA's compiler translates the code to machine code: ``nvrtc``
of the wheels, or ``nvcc``.
"""

from __future__ import annotations

import ctypes
import os
import shutil
from typing import Any

from op_profiler.compilers.relax import tvm_package
from op_profiler.compilers.tvm_build import load_tvm

_COMPILER = "libnvrtc.so.13"
_INSTALL = "source ./env_var.sh relax cuda"
_HEADERS = ("include/cuda_runtime.h", "include/cccl/cuda/std/cstdint")


def missing() -> list[str]:
    """Return a list with one text about the files that are missing for compiling for a GPU; empty if nothing is
    missing. Imports nothing."""
    if shutil.which("nvcc") is not None:
        return []
    places = [tvm_package.cuda_folder() / "lib" / _COMPILER, *(tvm_package.cuda_folder() / name for name in _HEADERS)]
    lacking = [place.name for place in places if not place.is_file()]
    if not (tvm_package.folder() / "cuda" / "bindings").is_dir():
        lacking.append("cuda-bindings")
    return [f"{', '.join(lacking)} of CUDA 13, and nvcc too ({_INSTALL})"] if lacking else []


def prepare_compiling() -> None:
    """Make TVM find NVIDIA's compiler; settings in the user's environment are kept."""
    library = tvm_package.cuda_folder() / "lib" / _COMPILER
    if not library.is_file():
        os.environ.setdefault("TVM_CUDA_COMPILE_MODE", "nvcc")
        return
    for path in (*library.parent.glob("libnvrtc-builtins.so.*"), library):
        ctypes.CDLL(str(path), ctypes.RTLD_GLOBAL)  # its own look-up knows no folder of packages
    os.environ.setdefault("CUDA_PATH", str(tvm_package.cuda_folder()))
    os.environ.setdefault("TVM_CUDA_NVRTC_EXTRA_OPTS", f"-I{tvm_package.cuda_folder() / 'include' / 'cccl'}")


def compile_left(executable: Any) -> None:
    """Compile the programs that TVM leaves as source if it has no runtime for GPUs, so that kernels that do not compile
    are found without a GPU too.

    Args:
        executable: ``relax.VMExecutable``, built for the current target.

    Raises:
        RuntimeError: the compiler rejects a kernel.
    """
    tvm = load_tvm()
    tvm_callback_cuda_compile = tvm.support.nvcc.tvm_callback_cuda_compile
    if tvm.get_global_func("ffi.Module.create.cuda", allow_missing=True) is None:
        for module in (module for one in executable.mod.imports for module in one.imports):
            tvm_callback_cuda_compile(module.inspect_source("cuda"))
