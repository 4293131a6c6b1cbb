"""The TVM with CUDA: where it is installed, which libraries it loads, and what is missing if it cannot be used.

PyPI has one build of TVM with Relay, AutoTVM and CUDA: the one inside the wheel of bitblas (TVM 0.17.dev0). Its
libtvm.so is linked against the CUDA 12 runtime and compiler, which NVIDIA's wheels contain, and against the driver. A
machine without the driver can still compile for a named GPU (``cuda -arch=sm_90``): `activate` then replaces the driver
by a library in which every function fails.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import os
import sys
import tempfile
import uuid
from pathlib import Path
from typing import Any

from op_profiler.c_compiler import make_library
from op_profiler.errors import MeasureError, OpProfilerError
from op_profiler.files import atomic_file
from op_profiler.lean_imports import package_folder

WHEEL = "bitblas==0.1.0.post1"
_LIBRARIES = {"cuda_runtime": "libcudart.so.12", "cuda_nvrtc": "libnvrtc.so.12"}
_DRIVER = "libcuda.so.1"
# What libtvm.so takes from the driver by name.
_DRIVER_FUNCTIONS = (
    *("cuDeviceGetName", "cuFuncSetAttribute", "cuGetErrorName", "cuLaunchKernel", "cuMemsetD32_v2"),
    *("cuModuleGetFunction", "cuModuleGetGlobal_v2", "cuModuleLoadData", "cuModuleUnload"),
)
_ERROR_STUB_LIBRARY = 34  # what NVIDIA's own stubs answer
_OLDEST_DRIVERS = {12: "525.60.13", 13: "580.65.06"}
"""Oldest driver, by CUDA's major version, on Linux, that runs code of every minor version. See
https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html."""
_OF_THE_SYSTEM = (
    ("libc.so.6", "__libc_start_main", "GLIBC_2.34"),
    ("libstdc++.so.6", "_ZSt21__glibcxx_assert_failPKciS0_S0_", "GLIBCXX_3.4.30"),
)
"""System libraries that the wheel's libtvm.so needs: library, a symbol that the version introduced, the version. The
tag of the wheel (manylinux1) names an older system, so pip also installs it where it cannot be loaded."""


def root() -> Path | None:
    """Return the folder of the TVM with CUDA; None if it is not installed."""
    package = package_folder("bitblas")
    if package is None:
        return None
    folder = package / "3rdparty" / "tvm"
    return folder if (folder / "python" / "tvm" / "__init__.py").is_file() else None


def libraries() -> dict[str, Path | None]:
    """Return the CUDA libraries by name; None if a wheel is not installed (the system's library may still be found)."""
    return {name: _library(package, name) for package, name in _LIBRARIES.items()}


def wheel_places() -> list[Path]:
    """Return the folders with NVIDIA's wheels."""
    try:
        return [Path(place) for place in importlib.import_module("nvidia").__path__]
    except ModuleNotFoundError:
        return []


def wheel_folder(package: str) -> Path | None:
    """Return the folder of a wheel of NVIDIA for CUDA 12; None if it is not installed."""
    return next((place / package for place in wheel_places() if (place / package).is_dir()), None)


def _library(package: str, name: str) -> Path | None:
    folder = wheel_folder(package)
    return folder / "lib" / name if folder is not None and (folder / "lib" / name).is_file() else None


@functools.cache
def driver() -> Any | None:
    """Return the library of NVIDIA's driver; None if no driver is installed."""
    try:
        return ctypes.CDLL(_DRIVER, ctypes.RTLD_GLOBAL)
    except OSError:
        return None


def device_count() -> int:
    """Return the number of GPUs that the driver lets this process use."""
    library = driver()
    count = ctypes.c_int()
    if library is None or library.cuInit(0) or library.cuDeviceGetCount(ctypes.byref(count)):
        return 0
    return count.value


def device_name() -> str | None:
    """Return the name of the first GPU; None if this process can use no GPU."""
    library, name = driver(), ctypes.create_string_buffer(128)
    if not device_count() or library is None or library.cuDeviceGetName(name, len(name), 0):
        return None
    return name.value.decode()


def device_uuid() -> str:
    """Return the UUID of the first GPU as ``nvidia-smi -L`` prints it; for a part of a GPU (MIG), that of the part.

    The driver reports it for the device that this process uses, whatever ``CUDA_VISIBLE_DEVICES`` contains, and without
    NVML, which containers often lack.

    Raises:
        MeasureError: the driver does not report it.
    """
    library, raw, handle = driver(), (ctypes.c_ubyte * 16)(), ctypes.c_int()
    if library is None or not device_count() or library.cuDeviceGet(ctypes.byref(handle), 0):
        raise MeasureError("there is no GPU that NVIDIA's driver lets this process use")
    ask = getattr(library, "cuDeviceGetUuid_v2", None) or library.cuDeviceGetUuid  # before CUDA 11.4 there was no MIG
    if ask(ctypes.byref(raw), handle):
        raise MeasureError("NVIDIA's driver does not report the UUID of the GPU, so its times could be another one's")
    return f"GPU-{uuid.UUID(bytes=bytes(raw))}"


def missing() -> list[str]:
    """Return what is missing for the TVM with CUDA to compile, which works without a GPU; TVM is not imported."""
    lacking = []
    if root() is None and not os.environ.get("TVM_HOME"):
        lacking.append(f"the build of TVM with CUDA (source ./env_var.sh cuda, or pip install --no-deps {WHEEL})")
    if root() is not None:
        for package, name in _LIBRARIES.items():
            if _library(package, name) is None and not _loads(name):
                lacking.append(f"{name} (source ./env_var.sh cuda)")
        lacking += [
            f"{version} of {library}, which Ubuntu 22.04 and Debian 12 have and older systems have not"
            for library, symbol, version in _OF_THE_SYSTEM
            if not _provides(library, symbol, version)
        ]
    return lacking


def missing_gpu(runtime: str = _LIBRARIES["cuda_runtime"]) -> list[str]:
    """Return what prevents running kernels on this machine's GPU.

    Args:
        runtime: CUDA library that runs the kernels, such as ``libcudart.so.13``. Default: the oldest library that any
            compiler uses.
    """
    library, version, major = driver(), ctypes.c_int(), int(runtime.rpartition(".")[2])
    if library is None:
        return [f"NVIDIA's driver ({_DRIVER})"]
    if not library.cuDriverGetVersion(ctypes.byref(version)) and version.value < major * 1000:
        supported = f"{version.value // 1000}.{version.value % 1000 // 10}"
        return [
            f"NVIDIA's driver {_OLDEST_DRIVERS[major]} or newer for CUDA {major}: this one supports CUDA {supported}"
        ]
    if not device_count():
        return ["a device: the driver is there but lists no GPU for this process (see nvidia-smi)"]
    return []


def _provides(library: str, symbol: str, version: str) -> bool:
    """Return whether a library has a symbol in a version."""
    try:
        find, handle = ctypes.CDLL(None).dlvsym, ctypes.CDLL(library)._handle
    except (OSError, AttributeError):  # no such library, or a system without glibc
        return False
    find.restype, find.argtypes = ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p)
    return find(handle, symbol.encode(), version.encode()) is not None


def _loads(name: str) -> bool:
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


def activate(stub_folder: Path) -> None:
    """Put the build in front of any other TVM on this process's path, and load what it is linked against.

    Args:
        stub_folder: folder for the stand-in of a missing driver.

    Raises:
        OpProfilerError: a package or a library is missing; the message names it.
    """
    lacking = missing()
    folder = root()
    if lacking or folder is None:
        raise OpProfilerError(f"target cuda needs {' and '.join(lacking)}")
    if driver() is None:
        ctypes.CDLL(str(_stub(stub_folder)), ctypes.RTLD_GLOBAL)
    for name, path in libraries().items():
        ctypes.CDLL(str(path or name), ctypes.RTLD_GLOBAL)
    os.environ["TVM_LIBRARY_PATH"] = str(folder / "build")
    sys.path.insert(0, str(folder / "python"))


def _stub(folder: Path) -> Path:
    """Return a library that replaces the driver, compiled once."""
    path = folder / _DRIVER
    if path.is_file():
        return path
    source = "\n".join(f"int {name}(void) {{ return {_ERROR_STUB_LIBRARY}; }}" for name in _DRIVER_FUNCTIONS)
    with atomic_file(path) as made, tempfile.TemporaryDirectory() as scratch:
        text = Path(scratch, "driver.c")
        text.write_text(source)
        options = [f"-Wl,-soname,{_DRIVER}"]
        make_library(str(made), [str(text)], options, needed_for=f"compiling for cuda without {_DRIVER}")
    return path
