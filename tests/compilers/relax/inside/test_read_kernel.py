"""Kernels, as their default schedules make them."""

from __future__ import annotations

import numpy as np
import pytest
from networks import small_network

from op_profiler.compilers.imported_model import ImportedModel, InputSpec
from op_profiler.compilers.relax.relax_compiler import RELAX
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.errors import ModelError
from op_profiler.prediction.latency.loops import keep_loops, loops_of
from op_profiler.prediction.latency.traffic import NAMES
from op_profiler.targets.target import resolve_target

TARGET = "llvm -mcpu=skylake-avx512"


def test_the_loops_of_a_model_are_told_and_kept(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OP_PROFILER_CACHE", str(tmp_path))
    load_tvm()
    model = ImportedModel("small", "test", small_network(), {}, (InputSpec("data", (1, 16, 12, 12)),))
    target = resolve_target(TARGET)
    occurrences = RELAX.operators(model, target)
    convolution = next(one for one in occurrences if "conv2d" in one.operator.anchor)
    kernel = RELAX.read_call(convolution, target)
    (summed,) = [nest for nest in kernel.nests if nest.operations.get("fma")]
    iterations = 2 * np.prod([loop.extent for loop in summed.loops])
    assert iterations == pytest.approx(convolution.operator.flops, rel=0.02)  # bias and relu are not in it
    assert kernel.executed is not None
    multiply_adds = kernel.executed.parallel["arithmetic"] + kernel.executed.serial["arithmetic"]
    assert multiply_adds == pytest.approx(iterations / 2 / 16, rel=0.02)  # in vectors of 16
    assert [loop.kind for loop in summed.loops][0::6] == ["parallel", "vectorized"]
    image, weight, result = summed.accesses[1:]
    assert image.strides[-1] == 0 and weight.strides[-1] == 1 and weight.argument and result.written
    operators = [one.operator for one in occurrences]
    assert np.isnan(loops_of(operators[:1], TARGET)).all()
    with pytest.raises(ModelError):
        RELAX.read_kernel(operators[0], target)
    keep_loops(occurrences, TARGET)
    found = loops_of(operators, TARGET)
    assert found.shape == (len(operators), len(NAMES)) and np.isfinite(found).all()
    assert len(np.unique(found, axis=0)) == len({one.key for one in operators})
