"""The suite of the contract, and kernels called in place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from networks import small_network

from op_profiler.compilers import COMPILERS
from op_profiler.compilers.compiled_model import BuiltModel
from op_profiler.compilers.compiler import Compiler
from op_profiler.compilers.imported_model import ImportedModel, InputSpec
from op_profiler.compilers.tvm_build import load_tvm, runtime_device
from op_profiler.measure.threads import ThreadPool
from op_profiler.report.page.operators import loops_of
from op_profiler.targets.target import resolve_target
from op_profiler.testing import CompilerSuite

INPUTS = {"data": np.random.default_rng(1).standard_normal((1, 16, 12, 12)).astype("float32")}


class TestRelax(CompilerSuite):
    @pytest.fixture(scope="class")
    @classmethod
    def compiler(cls) -> Compiler:
        return COMPILERS.get("relax")

    @pytest.fixture(scope="class")
    @classmethod
    def target(cls) -> Any:
        load_tvm()
        return resolve_target("llvm")

    @pytest.fixture(scope="class")
    @classmethod
    def model(cls, target: Any) -> ImportedModel:
        return ImportedModel("small", "test", small_network(), {}, (InputSpec("data", (1, 16, 12, 12)),))

    @pytest.mark.parametrize("threads", [1, 2])
    def test_kernels_called_in_order_give_the_output_of_the_whole_model(
        self, compiler: Compiler, built: BuiltModel, target: Any, threads: int
    ) -> None:
        loaded: Any = compiler.load(built.compiled, runtime_device(target), INPUTS)
        assert loaded.labels == [call.label for call in built.compiled.calls]
        cores = ThreadPool().core_set()
        ThreadPool().use(min(threads, len(cores or (0,))))
        (whole,) = loaded.output_arrays()
        loaded.kernels[-1].arrays[-1].copyfrom(np.zeros_like(whole))
        for cache in ("model", "hot", "cold"):
            times = loaded.walk(cache, [True] * len(loaded.labels))
            assert len(times) == len(loaded.labels) and min(times) > 0
            assert np.array_equal(loaded.kernels[-1].arrays[-1].numpy(), whole)
        assert np.isnan(loaded.walk("model", [False] * len(loaded.labels))).all()
        assert loaded.time_model() > 0 and np.isfinite(loaded.call_overhead_us())
        assert [loaded.kernel_error(i) for i in range(len(loaded.labels))] == [None] * len(loaded.labels)

    def test_code_and_parallel_loops_are_told_of_every_kernel_that_is_scheduled(self, built: BuiltModel) -> None:
        compiled = built.compiled
        assert {call.label for call in compiled.calls} <= compiled.code.keys() and compiled.loops
        for label, code in compiled.code.items():
            parallel = [int(loop.extent) for loop in loops_of(code) if loop.kind == "parallel"]
            assert parallel == compiled.loops.get(label, [])
