"""Lowered models that are kept: read again by the code that made them, and by no other."""

from __future__ import annotations

from pathlib import Path

import pytest

from op_profiler.compilers.compiler import Compiler
from op_profiler.compilers.imported_model import ImportedModel
from op_profiler.frontends import FRONTENDS, lowered_cache
from op_profiler.frontends.frontend import Frontend, ModelRequest


def test_what_other_code_lowered_is_lowered_again(tvm: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lowered: list[str] = []
    usual = Compiler.load_model

    def counted(compiler: Compiler, frontend: Frontend, request: ModelRequest) -> ImportedModel:
        lowered.append(request.name)
        return usual(compiler, frontend, request)

    monkeypatch.setattr(Compiler, "load_model", counted)
    monkeypatch.setattr(lowered_cache, "_WORTH_KEEPING_SECONDS", 0.0)
    monkeypatch.setenv("OP_PROFILER_CACHE", str(tmp_path))
    frontend, request = FRONTENDS.get("local"), ModelRequest(source="local", name="mlp")
    for _ in range(2):
        assert lowered_cache.load_cached(frontend, request).inputs[0].shape == (1, 1, 28, 28)
        assert len(lowered) == 1
    monkeypatch.setattr("op_profiler.cache.code_digest", lambda *parts: "of another commit")
    assert lowered_cache.load_cached(frontend, request).inputs[0].shape == (1, 1, 28, 28)
    assert len(lowered) == 2


def test_a_damaged_one_is_lowered_again_once(tvm: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Path] = []
    written = lowered_cache._write

    def noted(folder: Path, model: ImportedModel) -> None:
        kept.append(folder)
        written(folder, model)

    monkeypatch.setattr(lowered_cache, "_write", noted)
    monkeypatch.setattr(lowered_cache, "_WORTH_KEEPING_SECONDS", 0.0)
    monkeypatch.setenv("OP_PROFILER_CACHE", str(tmp_path))
    frontend, request = FRONTENDS.get("local"), ModelRequest(source="local", name="mlp")
    lowered_cache.load_cached(frontend, request)
    (kept[0] / "module.json").write_text("{")
    for _ in range(2):
        assert lowered_cache.load_cached(frontend, request).inputs[0].shape == (1, 1, 28, 28)
        assert len(kept) == 2


def test_a_copy_of_a_file_has_the_name_that_was_asked_for(
    tvm: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    onnx = pytest.importorskip("onnx")
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    values = [helper.make_tensor_value_info(name, kind, [1, 64]) for name in ("x", "y")]
    weight = helper.make_tensor("w", kind, [64, 64], [0.5] * 4096)
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "net", values[:1], values[1:], [weight])
    monkeypatch.setattr(lowered_cache, "_WORTH_KEEPING_SECONDS", 0.0)
    monkeypatch.setenv("OP_PROFILER_CACHE", str(tmp_path / "cache"))
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        name = str(tmp_path / folder / "net.onnx")
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), name)
        loaded = lowered_cache.load_cached(FRONTENDS.get("file"), ModelRequest(source="file", name=name))
        assert loaded.name == name
    assert len(list((tmp_path / "cache").glob("relay/*/*"))) == 1  # the second one was read
