"""Built models as files: what is read back is what was built."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from networks import small_network

from op_profiler.building.build import build_model
from op_profiler.building.request import BuildRequest
from op_profiler.compilers.compiler import NotKept
from op_profiler.compilers.imported_model import ImportedModel, InputSpec
from op_profiler.compilers.relax.decoder.model import load_step
from op_profiler.compilers.relax.relax_compiler import RELAX
from op_profiler.compilers.tvm_build import load_tvm, runtime_device
from op_profiler.errors import ModelError
from op_profiler.frontends.frontend import ModelRequest
from op_profiler.targets.target import resolve_target

REQUEST = BuildRequest(model=ModelRequest(source="test", name="small"), compiler="relax", schedules="none")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OP_PROFILER_CACHE", str(tmp_path / "cache"))
    load_tvm()


def forbidden(*_: object, **__: object) -> Any:
    raise ModelError("it was built again")


def built_and_read(model: ImportedModel, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    target = resolve_target("llvm")
    made = build_model(REQUEST, model, target)
    monkeypatch.setattr(type(RELAX), "build", forbidden)
    return made, build_model(REQUEST, model, target)


def assert_same(made: Any, read: Any, inputs: dict[str, np.ndarray], tmp_path: Path) -> None:
    assert (read.schedules, read.asked) == (made.schedules, made.asked)
    for name in ("calls", "tensors", "outputs", "build_seconds", "notes"):
        assert getattr(read.compiled, name) == getattr(made.compiled, name), name
    assert list(read.compiled.by_label) == list(made.compiled.by_label)
    for one, other in zip(read.compiled.occurrences, made.compiled.occurrences, strict=True):
        assert (one.operator, one.operator.key, one.label) == (other.operator, other.operator.key, other.label)
    code = []
    for built in (made, read):
        (kernels,) = built.compiled.library.executable.mod.imports
        kernels.write_to_file(str(tmp_path / "kernels.o"), "o")
        code.append((tmp_path / "kernels.o").read_bytes())
    assert code[0] == code[1]
    device = runtime_device(resolve_target("llvm"))
    ours, theirs = (RELAX.load(one.compiled, device, inputs).output_arrays()[0] for one in (made, read))
    np.testing.assert_array_equal(ours, theirs)
    for name, weight in RELAX.weights(made.compiled).items():
        np.testing.assert_array_equal(weight.numpy(), RELAX.weights(read.compiled)[name].numpy())


def test_a_model_is_read_back(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    inputs = (InputSpec("data", (1, 16, 12, 12)),)
    model = ImportedModel("small", "test", small_network(), {}, inputs, content="small")
    made, read = built_and_read(model, monkeypatch)
    assert_same(made, read, {"data": np.ones((1, 16, 12, 12), "float32")}, tmp_path)
    occurrence = read.compiled.occurrences[0]
    assert RELAX.single_operator(occurrence).inputs == RELAX.single_operator(made.compiled.occurrences[0]).inputs
    other = dataclasses.replace(REQUEST, pipeline="stock")
    with pytest.raises(ModelError, match="built again"):
        build_model(other, model, resolve_target("llvm"))


def test_a_build_of_another_version_is_none(tmp_path: Path) -> None:
    (tmp_path / "build.json").write_text("{}")
    with pytest.raises(NotKept, match="occurrences"):
        RELAX.read(tmp_path)


@pytest.mark.slow  # kernels of attention are files as those of the model above are
def test_a_step_of_a_decoder_is_read_back_with_its_attention(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    sizes = dict.fromkeys(("hidden_size", "intermediate_size", "vocab_size"), 32)
    config = {"model_type": "llama", "num_hidden_layers": 1, "num_attention_heads": 2, **sizes}
    (tmp_path / "config.json").write_text(json.dumps(config))
    request = ModelRequest(source="transformers", name=str(tmp_path), sequence_length=1, past=20)
    model = dataclasses.replace(load_step(request), content="step")
    made, read = built_and_read(model, monkeypatch)
    assert_same(made, read, {"tokens": np.zeros(1, "int32")}, tmp_path)
