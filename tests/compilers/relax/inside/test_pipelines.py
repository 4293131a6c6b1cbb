"""TVM's own pipeline and one of the user's, in place of ours."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from networks import small_network

from op_profiler.compilers.compiler import compiler_in_use
from op_profiler.compilers.imported_model import ImportedModel, InputSpec
from op_profiler.compilers.pipelines import DEFAULT_PIPELINE
from op_profiler.compilers.tvm_build import load_tvm, runtime_device
from op_profiler.errors import ModelError
from op_profiler.targets.target import resolve_target
from op_profiler.testing.compiler import NO_RECORDS

INPUTS = {"data": np.random.default_rng(1).standard_normal((1, 16, 12, 12)).astype("float32")}
OWN = """
import tvm
from tvm import relax

def plain(target):
    return tvm.transform.Sequential([
        relax.transform.LegalizeOps(),
        relax.transform.RewriteDataflowReshape(),
        relax.transform.ToNonDataflow(),
        relax.transform.RemovePurityChecking(),
        relax.transform.CallTIRRewrite(),
        *relax.backend.cpu_generic.finalize_passes(target),
    ])

def unfinished(target):
    return relax.transform.LegalizeOps()
"""


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_passes.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)


def _model(pipeline: str) -> ImportedModel:
    load_tvm()
    inputs = (InputSpec("data", (1, 16, 12, 12)),)
    return ImportedModel("small", "test", small_network(), {}, inputs, pipeline=pipeline)


def test_every_pipeline_gives_the_same_outputs_and_kernels_that_are_called_one_by_one() -> None:
    target = resolve_target("llvm")
    outputs, kernels = [], {}
    for name in (DEFAULT_PIPELINE, "stock", "own_passes:plain"):
        built = compiler_in_use().build(_model(name), target, NO_RECORDS)
        loaded: Any = compiler_in_use().load(built.compiled, runtime_device(target), INPUTS)
        outputs.append(loaded.output_arrays()[0])
        kernels[name] = loaded.labels
        assert loaded.labels == [call.label for call in built.compiled.calls]
        operators = [built.compiled.by_label[label].operator for label in loaded.labels]
        lowered = compiler_in_use().operators(_model(name), target)
        assert [occurrence.operator.key for occurrence in lowered] == [operator.key for operator in operators]
        assert min(loaded.walk("model", [True] * len(loaded.labels))) > 0
        if name != DEFAULT_PIPELINE:
            assert {schedule.template for schedule in built.schedules.values()} == {f"{name}.relax"}
            assert any("conv2d" in operator.anchor and operator.flops > 0 for operator in operators)
            assert any(name in note for note in built.compiled.notes)
            fused = compiler_in_use().fuse(partial(tuple, built.compiled.occurrences), target, NO_RECORDS)
            assert fused.asked == built.asked == frozenset()  # it takes no records
            occurrence = built.compiled.occurrences[0]
            alone = compiler_in_use().build_operator(occurrence, target, NO_RECORDS)
            assert [call.label for call in alone.compiled.calls] == [occurrence.label]
    for other in outputs[1:]:
        np.testing.assert_allclose(other, outputs[0], rtol=2e-4, atol=2e-5)
    assert len(kernels["own_passes:plain"]) > len(kernels["stock"])  # it fuses nothing


def test_a_pipeline_that_never_comes_to_kernels_is_refused() -> None:
    with pytest.raises(ModelError, match="CallTIRRewrite"):
        compiler_in_use().build(_model("own_passes:unfinished"), resolve_target("llvm"), NO_RECORDS)
