"""Models that a process with Relay imports for this one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from op_profiler.building.request import BuildRequest
from op_profiler.building.requested_model import load_model
from op_profiler.compilers import tvm_build
from op_profiler.compilers.relax import relay_models
from op_profiler.frontends.frontend import ModelRequest


def test_one_process_imports_a_model_and_begins_before_tvm_is_loaded_here(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[str] = []
    load_tvm = tvm_build.load_tvm

    class Counted(relay_models._Import):
        def __init__(self, request: ModelRequest, *more: Any) -> None:
            begun.append("import")
            super().__init__(request, *more)

    def counted() -> Any:
        begun.append("tvm")
        return load_tvm()

    monkeypatch.setattr(relay_models, "_Import", Counted)
    for module in [module for module in sys.modules.values() if getattr(module, "load_tvm", None) is load_tvm]:
        monkeypatch.setattr(module, "load_tvm", counted)
    model = ModelRequest(source="simple", name="conv2d", input_shapes=((1, 16, 8, 8),))
    loaded, _, _ = load_model(BuildRequest(model=model, compiler="relax"))
    assert loaded.inputs and begun[:2] == ["import", "tvm"] and begun.count("import") == 1
    assert not relay_models._begun


def test_an_import_that_nobody_took_is_not_given_to_a_later_call() -> None:
    model = ModelRequest(source="simple", name="conv2d", input_shapes=((1, 16, 8, 8),))
    relay_models.begin(model)
    stale = relay_models._begun[model]
    relay_models.begin(model)
    begun = relay_models._begun.pop(model)
    begun.close()
    assert begun is not stale
    assert not any(Path(one.folder.name).exists() for one in (stale, begun))
