"""Files of torch programs and functions that return models: what they may hold, and what is said of the rest."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from op_profiler.errors import MissingPackageError, ModelError
from op_profiler.frontends.file import FRONTEND
from op_profiler.frontends.frontend import ModelRequest
from op_profiler.frontends.importers.torch import prepare_torchvision

from ..command_line import op_profiler
from ..installed import needs


def load(path: Path | str, *shapes: tuple[int, ...], batch: int = 1) -> Any:
    return FRONTEND.load(ModelRequest(source="file", name=str(path), batch_size=batch, input_shapes=shapes))


def test_a_table_that_is_a_constant_or_is_computed(torch: Any, run: Any, tmp_path: Path) -> None:
    class Computed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = torch.nn.Parameter(torch.randn(4, 10))

        def forward(self, x: Any) -> Any:
            return torch.nn.functional.embedding(x, self.table.t())

    example = torch.zeros(2, 3, dtype=torch.long)
    computed = torch.jit.trace(Computed().eval(), example)
    frozen = torch.jit.freeze(torch.jit.trace(torch.nn.Embedding(10, 4).eval(), example))
    for model, high in ((computed, 2), (frozen, 10)):
        model.save(str(tmp_path / "m.pt"))
        loaded = load(tmp_path / "m.pt", (2, 3))
        (given,) = loaded.inputs
        assert (given.dtype, given.high) == ("int64", high)
        ones = np.ones((2, 3), "int64")
        np.testing.assert_allclose(run(loaded, {given.name: ones})[0], model(torch.from_numpy(ones)).detach())


def test_a_script_without_forward(torch: Any, tmp_path: Path) -> None:
    class Script(torch.jit.ScriptModule):
        pass

    script = Script()
    script.define("def run(self, x):\n    return x\n")
    script.save(str(tmp_path / "m.pt"))
    with pytest.raises(ModelError, match="has no forward"):
        load(tmp_path / "m.pt", (2, 3))


class TestBatchOfExported:
    def export(self, torch: Any, path: Path, sizes: Any) -> Path:
        class Product(torch.nn.Module):
            def forward(self, x: Any, y: Any) -> Any:
                return x @ y

        example = (torch.randn(3, 10), torch.randn(10, 10))
        torch.export.save(torch.export.export(Product(), example, dynamic_shapes=sizes), str(path))
        return path

    @pytest.mark.parametrize("given", [{"batch": 4}, {"shapes": ((4, 10),)}, {"shapes": ((4, 10), (10, 10))}])
    def test_inputs_of_fixed_size_stay(self, torch: Any, tmp_path: Path, given: dict[str, Any]) -> None:
        path = self.export(torch, tmp_path / "m.pt2", ({0: torch.export.Dim("batch")}, None))
        model = load(path, *given.get("shapes", ()), batch=given.get("batch", 1))
        assert (model.batch_size, [i.shape for i in model.inputs]) == (4, [(4, 10), (10, 10)])

    def test_another_batch_where_none_is_open(self, torch: Any, tmp_path: Path) -> None:
        path = self.export(torch, tmp_path / "m.pt2", None)
        assert load(path, batch=3).batch_size == 3
        with pytest.raises(ModelError, match="exported for batch size 3 and cannot be given 4"):
            load(path, batch=4)


def test_a_function_that_goes_elsewhere(torch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "import os, torch\n\ndef build():\n    os.chdir('/')\n    return torch.nn.Linear(4, 4), torch.ones(2, 4)\n"
    (tmp_path / "wanders.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    assert load("wanders:build").inputs[0].shape == (2, 4)
    assert (Path(os.getcwd()), sys.path) == (tmp_path, before)


def test_a_function_that_ends_the_program(torch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "quits.py").write_text("def build():\n    raise SystemExit(3)\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelError, match="quits:build failed: SystemExit: 3"):
        load("quits:build")


@pytest.mark.parametrize("example", ["3", "[]", "[3]", "'x'"])
def test_examples_that_are_no_tensors(
    torch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, example: str
) -> None:
    (tmp_path / "bare.py").write_text(f"import torch\n\ndef build():\n    return torch.nn.Linear(4, 4), {example}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "bare", raising=False)
    with pytest.raises(ModelError, match="return a tensor, or a list or a dict of tensors"):
        load("bare:build")


@needs("transformers")
def test_outputs_of_a_class_of_transformers(torch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process, in which nobody has imported transformers, reads the program."""
    prepare_torchvision()
    from transformers import BertConfig, BertModel

    sizes = {"num_hidden_layers": 1, "hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64}
    model = BertModel(BertConfig(vocab_size=50, **sizes)).eval()
    with torch.no_grad():
        torch.export.save(torch.export.export(model, (torch.ones((1, 8), dtype=torch.int64),)), tmp_path / "m.pt2")
    done = op_profiler("collect", "m.pt2", "--dry-run", folder=tmp_path)
    assert done.returncode == 0 and "dense" in done.stdout, done.stderr
    there = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "transformers" else there(name))
    with pytest.raises(MissingPackageError, match="whose outputs are of the class transformers"):
        load(tmp_path / "m.pt2")
