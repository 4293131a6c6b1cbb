"""Machine code of a GPU from the CUDA C++ that TVM generates.

NVIDIA's run-time compiler (NVRTC) creates it within this process. nvcc starts a chain of programs for every source
text, which takes ten times as long for a small one; it is used if NVRTC or its headers are missing.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import functools
import logging
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from op_profiler.targets.cuda import tvm_build

_HEADERS = ("cuda_fp16.h", "crt/mma.h")
"""Headers that kernels in half precision include, and headers for tensor cores; some wheels lack the latter."""
_OWN_NAMES = re.compile(r"\b(hpow|htanh|htan|hatan|herf)\b")
"""Functions that both this TVM and newer headers of CUDA (12.8) define."""
_ERROR = re.compile(r"\berror\s*: (.*)")  # of the compiler, and of its assembler (ptxas)


@dataclasses.dataclass(frozen=True)
class Nvrtc:
    """NVRTC, version 11.1 or newer.

    Attributes:
        path: path of the library.
        include: folder of its headers.

    See https://docs.nvidia.com/cuda/nvrtc.
    """

    path: Path
    include: Path

    @functools.cached_property
    def _library(self) -> Any:
        for builtins in self.path.parent.glob("libnvrtc-builtins.so.*"):  # its own look-up knows no folder of packages
            ctypes.CDLL(str(builtins), ctypes.RTLD_GLOBAL)
        return ctypes.CDLL(str(self.path))

    def compile(self, code: str, architecture: str) -> bytes:
        """Return the machine code (cubin) of a program.

        Args:
            architecture: such as ``sm_90``.

        Raises:
            RuntimeError: the program does not compile; the message has the first error.
        """
        library, program = self._library, ctypes.c_void_p()
        options = [f"--gpu-architecture={architecture}", f"--include-path={self.include}", "--std=c++17"]
        given = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        if library.nvrtcCreateProgram(ctypes.byref(program), code.encode(), b"kernels.cu", 0, None, None):
            raise RuntimeError("NVRTC cannot begin a program")
        try:
            if library.nvrtcCompileProgram(program, len(options), given):
                raise RuntimeError(_refusal(self._fetch(program, "ProgramLog").rstrip(bytes(1)).decode(), architecture))
            return self._fetch(program, "CUBIN")
        finally:
            library.nvrtcDestroyProgram(ctypes.byref(program))

    def _fetch(self, program: ctypes.c_void_p, what: str) -> bytes:
        size = ctypes.c_size_t()
        failed = getattr(self._library, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
        text = ctypes.create_string_buffer(size.value)
        if failed or getattr(self._library, f"nvrtcGet{what}")(program, text):
            raise RuntimeError(f"NVRTC does not hand out its {what}")
        return text.raw


def _refusal(log: str, architecture: str) -> str:
    """Return why a program does not compile, in one line; the log of the process has the rest."""
    logging.getLogger(__name__).info("NVRTC for %s: %s", architecture, log)
    errors = _ERROR.findall(log) or log.splitlines()[-1:]
    more = f" (and {len(errors) - 1} more errors)" if len(errors) > 1 else ""
    return f"NVRTC refuses a kernel for {architecture}: {''.join(errors[:1])}{more}"


def _places() -> Iterator[tuple[Path | None, Path]]:
    """Return libraries of NVRTC with the headers of their version: of wheels for CUDA 12 and 13, and of toolkits."""
    runtime = tvm_build.wheel_folder("cuda_runtime")
    if runtime is not None:
        yield tvm_build.libraries()["libnvrtc.so.12"], runtime / "include"
    for place in tvm_build.wheel_places():
        yield Path(place, "cu13", "lib", "libnvrtc.so.13"), Path(place, "cu13", "include")
    nvcc = shutil.which("nvcc")
    roots = [os.environ.get("CUDA_HOME"), nvcc and str(Path(nvcc).resolve().parents[1]), "/usr/local/cuda"]
    for root in filter(None, roots):
        yield Path(root, "lib64", "libnvrtc.so"), Path(root, "include")


@functools.cache
def nvrtc() -> Nvrtc | None:
    """Return the first complete installation of NVRTC, otherwise the first one with the headers of half precision; None
    if NVRTC is not installed."""
    found = [(library, include) for library, include in _places() if library is not None and library.is_file()]
    for headers in (_HEADERS, _HEADERS[:1]):
        for library, include in found:
            if all((include / header).is_file() for header in headers):
                with contextlib.suppress(OSError):
                    compiler = Nvrtc(library, include)
                    _ = compiler._library
                    return compiler
    return None


def use(tvm: ModuleType) -> None:
    """Make the imported TVM compile for GPUs with `nvrtc`, or with nvcc if there is no NVRTC."""
    from tvm.contrib import nvcc

    def compiled(code: str, target: Any) -> bytearray:
        text = _OWN_NAMES.sub(r"tvm_\1", code)
        found = nvrtc()
        if found is None:
            return bytearray(nvcc.compile_cuda(text, target_format="cubin"))
        return bytearray(found.compile(text, str(target.arch)))

    tvm._ffi.register_func("tvm_callback_cuda_compile", compiled, override=True)
