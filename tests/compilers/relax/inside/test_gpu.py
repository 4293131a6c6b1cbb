"""Kernels for a GPU that is not here: their schedules and launches, before any code is made."""

from __future__ import annotations

from math import prod
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from networks import constant, module, small_network

from op_profiler.compilers.imported_model import ImportedModel, InputSpec
from op_profiler.compilers.relax.gpu import launches_of
from op_profiler.compilers.relax.pipeline import lower, scheduled
from op_profiler.compilers.relax.relax_compiler import RELAX
from op_profiler.compilers.tvm_build import load_tvm, runtime_device
from op_profiler.errors import ModelError
from op_profiler.targets.cuda.gpu import GpuKernels
from op_profiler.targets.target import resolve_target
from op_profiler.testing.compiler import NO_RECORDS

from ....gpu_events import Clock

TARGET = "cuda -arch=sm_90"


def _model() -> ImportedModel:
    load_tvm()
    return ImportedModel("small", "test", small_network(), {}, (InputSpec("data", (1, 16, 12, 12)),))


def _scheduled(network: Any) -> tuple[dict[str, str], dict[str, Any]]:
    """Templates and launches by the kernels' names."""
    target = resolve_target(TARGET)
    kernels, schedules = scheduled(lower(network, target).kernels, target)
    return {name: schedule.template for name, schedule in schedules.items()}, launches_of(kernels)


def test_every_kernel_has_a_rule_of_dlight_and_is_launched() -> None:
    load_tvm()
    templates, launches = _scheduled(small_network())
    assert set(templates.values()) <= {
        f"{rule}.dlight" for rule in ("Matmul", "GEMV", "Reduction", "GeneralReduction", "Fallback")
    }
    assert set(launches) >= {name for name in templates if "reshape" not in name} and len(launches) >= 4
    for launch in (one for of_kernel in launches.values() for one in of_kernel):
        assert 1 <= prod(launch["block"]) <= 1024 and prod(launch["grid"]) >= 1


def test_a_product_and_a_sum_of_images_keep_the_layouts_of_the_model() -> None:
    load_tvm()
    templates, launches = _scheduled(
        module((256, 128), lambda builder, relax, data: relax.op.matmul(data, constant(128, 64)))
    )
    assert list(templates.values()) == ["Matmul.dlight"] and "pack" not in str(templates)
    (of_product,) = launches.values()
    assert prod(of_product[0]["grid"]) * prod(of_product[0]["block"]) >= 64


def test_an_elementwise_kernel_has_a_thread_for_each_element() -> None:
    load_tvm()
    templates, launches = _scheduled(module((4, 1000), lambda builder, relax, data: relax.op.tanh(data)))
    assert list(templates.values()) == ["Fallback.dlight"]
    assert list(launches.values()) == [[{"grid": [4, 1, 1], "block": [1024, 1, 1]}]]


def test_loops_of_a_gpu_s_kernels_are_not_told() -> None:
    model, target = _model(), resolve_target(TARGET)
    with pytest.raises(ModelError, match="cannot describe the loops"):
        RELAX.read_call(RELAX.operators(model, target)[0], target)


class Runtime:
    """In place of a GPU's device."""

    def sync(self) -> None:
        return


def test_kernels_of_the_virtual_machine_stand_between_two_events_each() -> None:
    target = resolve_target("llvm")
    compiled = RELAX.build(_model(), target, NO_RECORDS).compiled
    graph = RELAX.load(compiled, runtime_device(target), {"data": np.ones((1, 16, 12, 12), "float32")})
    flush: Any = SimpleNamespace(run=lambda: None)
    kernels = GpuKernels(graph, Runtime(), Clock(), flush, (1,) * len(graph.labels))  # type: ignore[arg-type]
    count = len(kernels.labels)
    assert count >= 4 and kernels.walk("model", [True] * count) == [1e3] * count
    assert kernels.walk("cold", [True] + [False] * (count - 1))[0] == 1e3
    assert kernels.time_model() == 1e3 and np.isfinite(kernels.output_arrays()[0]).all()
