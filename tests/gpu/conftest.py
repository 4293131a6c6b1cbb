"""A GPU that is not there, for the code around one: `stand_in/cuda.c`."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from op_profiler.c_compiler import make_library
from op_profiler.targets.cuda import tvm_build

from ..hurry import hurried_path

SOURCES = Path(__file__).parent / "stand_in"


@pytest.fixture(scope="session")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a process that is to find it in place of NVIDIA's libraries.

    Its kernels take time, and compute nothing: what asks for numbers needs a GPU.
    """
    lacking = tvm_build.missing()
    if lacking or shutil.which("cc") is None:
        pytest.skip(f"needs {'; '.join(lacking) or 'a C compiler'}")
    site, libraries = tmp_path_factory.mktemp("site"), tmp_path_factory.mktemp("libraries")
    folder = site / "nvidia" / "cuda_runtime"
    (folder / "lib").mkdir(parents=True)
    (site / "nvidia" / "__init__.py").write_text('__path__ = __import__("pkgutil").extend_path(__path__, __name__)\n')
    (folder / "__init__.py").touch()
    runtime = tvm_build.wheel_folder("cuda_runtime")
    if runtime is not None:
        (folder / "include").symlink_to(runtime / "include")
    made = folder / "lib" / "libcudart.so.12"
    options = ["-w", "-Wl,-soname,libcudart.so.12", f"-Wl,--version-script={SOURCES / 'cuda.map'}"]
    make_library(str(made), [str(SOURCES / "cuda.c")], options)
    (libraries / "libcuda.so.1").symlink_to(made)  # one library under both names, so that both see the same streams
    (libraries / "ncu").symlink_to(SOURCES / "ncu")
    return {
        "PYTHONPATH": hurried_path(site, Path(__file__).parents[2] / "python"),
        "PATH": os.pathsep.join([str(libraries), os.environ["PATH"]]),
        "LD_LIBRARY_PATH": os.pathsep.join(filter(None, [str(libraries), os.environ.get("LD_LIBRARY_PATH", "")])),
    }
