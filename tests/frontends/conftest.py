"""Running a lowered model, to compare it with the framework that it comes from."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., list[Any]]


@pytest.fixture(scope="session")
def run(tvm: Any) -> Run:
    """Build a model and run it on arrays given by the name of the input; its outputs."""

    def build_and_run(model: Any, arrays: dict[str, Any]) -> list[Any]:
        from tvm.contrib import graph_executor

        # What the importers make is asked here, not what becomes of it: no optimization, which takes most of a build.
        # LLVM 22 refuses the debug information that TVM writes for the shared expressions of some kernels
        config = {"tir.disable_cse_tir": True}
        with tvm.transform.PassContext(opt_level=1, config=config):
            library = tvm.relay.build(model.mod, target="llvm -opt-level=0", params=model.params)
        executor = graph_executor.GraphModule(library["default"](tvm.cpu()))
        for name, array in arrays.items():
            executor.set_input(name, array)
        executor.run()
        return [executor.get_output(i).numpy() for i in range(executor.get_num_outputs())]

    return build_and_run


@pytest.fixture(scope="session")
def torch() -> Any:
    pytest.importorskip("torch", reason="torch is not installed")
    from op_profiler.frontends.importers import torch as torch_importer

    return torch_importer.load_torch()


def mediapipe_models() -> dict[str, Path]:
    """The .tflite files of the installed mediapipe by name; empty where it is not installed."""
    spec = importlib.util.find_spec("mediapipe")
    if spec is None or not spec.origin:
        return {}
    return {f.stem: f for f in sorted(Path(spec.origin).parent.glob("modules/*/*.tflite"))}


@pytest.fixture(scope="session")
def mediapipe() -> dict[str, Path]:
    models = mediapipe_models()
    if not models:
        pytest.skip("mediapipe, whose .tflite files this test reads, is not installed")
    return models
