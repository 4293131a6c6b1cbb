"""The whole way: from the command line to sentences, and what a user can ask wrongly."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import numpy as np
import pytest
from typer.testing import CliRunner

from op_profiler.analysis.explain import reading as mca
from op_profiler.analysis.explain.explanation import MOST_ASSEMBLY, ModelExplanation
from op_profiler.cli import application
from op_profiler.dataset import Dataset
from op_profiler.errors import EXIT_ENVIRONMENT
from op_profiler.report.explanation import show
from op_profiler.targets.open_machine import open_machine

from ...command_line import op_profiler


@pytest.fixture(scope="module")
def explained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """mlp, by the command, with a dataset that does not have it."""
    db = f"sqlite:///{tmp_path_factory.mktemp('explain')}/empty.db"
    Dataset.open(db).close()
    arguments = ["explain", "mlp", "--json", "--quiet", "--trials-from", "none", "--db", db]
    done = CliRunner().invoke(application(), arguments)
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_every_operator_has_its_evidence(explained: dict[str, Any]) -> None:
    assert explained["model"] == "mlp" and explained["operators"] and explained["verdict"]
    shares = [one["model_share"] for one in explained["operators"]]
    assert shares == sorted(shares, reverse=True)
    for one in explained["operators"]:
        assert one["time_us"] > 0 and one["hot_us"] > 0 and one["cold_us"] > 0
        assert one["compute_share"] is None or one["compute_share"] > 0
        assert set(one["traffic_shares"]) >= {"memory"}
        assert one["code"]["instructions"] > 0 and one["code"]["lanes_of_target"] >= 4
        assert len(one["code"]["assembly"]) == min(one["code"]["instructions"], MOST_ASSEMBLY)
        assert one["title"] in one["sentence"] and one["key"] in one["sentence"]
        lost = [loss["lost_us"] for loss in one["losses"]]
        assert all(us > 0 for us in lost)
        assert sum(lost) <= one["time_us"] * 1.001
        assert all(loss["low_us"] <= loss["lost_us"] <= loss["high_us"] for loss in one["losses"])
        assert all(loss["because"] for loss in one["losses"])


def test_operators_can_be_told_apart(explained: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    by_layer = {one["layers"][0][0]: one["output"] for one in explained["operators"] if one["layers"]}
    assert by_layer.items() <= {"fc1": [1, 128], "fc2": [1, 64], "fc3": [1, 10]}.items() and by_layer
    show(msgspec.convert(explained, ModelExplanation), tables=True)
    rows = [[cell.strip() for cell in line.split("│")] for line in capsys.readouterr().out.splitlines()]
    shown = {row[3]: row[4] for row in rows if len(row) > 5 and row[3]}
    assert by_layer.items() <= {layer: [*map(int, output.split("x"))] for layer, output in shown.items()}.items()


def test_dense_layers_have_a_template_whether_or_not_searches_are_known(explained: dict[str, Any]) -> None:
    tuned = [one["advice"]["text"] for one in explained["operators"] if one["losses"][0]["cause"] == "register tile"]
    assert not any("no template" in text for text in tuned)


def test_what_no_run_of_the_dataset_has_is_not_kept_and_a_note_says_so(explained: dict[str, Any]) -> None:
    assert "not kept for reports" in explained["notes"][-1] and "op-profiler collect" in explained["notes"][-1]


def test_it_can_be_read_back_as_it_was_told(explained: dict[str, Any]) -> None:
    again = msgspec.convert(explained, ModelExplanation)
    assert msgspec.to_builtins(again) == explained


def test_cycles_come_from_llvm_mca_or_a_note_says_that_they_do_not(explained: dict[str, Any]) -> None:
    modelled = any(one["code"]["cycles"] is not None for one in explained["operators"])
    assert modelled == (mca.find_mca() is not None and not any("no model of" in note for note in explained["notes"]))


def test_without_llvm_mca_there_is_an_explanation_all_the_same(
    planted: ModuleType, target: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from op_profiler.analysis.explain import reading

    monkeypatch.setattr(mca, "find_mca", lambda: None)
    one = next(one for one in planted.CAUSES if one.name == "threads for a tiny operator")
    found = planted.explain_planted(one, open_machine("llvm", target, None), target, 1)
    assert found.code is not None and found.code.cycles is None and np.isfinite(found.time_us)
    assert "pip install" in reading.ABSENT


def test_an_operator_of_a_dataset_is_explained_in_a_model_that_calls_it(tmp_path: Path) -> None:
    db = f"sqlite:///{tmp_path}/empty.db"
    Dataset.open(db).close()
    done = CliRunner().invoke(application(), ["explain", "0123456789abcdef", "--db", db])
    assert "no model that calls" in str(done.exception)


def test_operators_of_torch_name_the_lines_that_call_them(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(
        "import torch\n\n\nclass Net(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.head = torch.nn.Linear(64, 10)\n\n    def forward(self, x):\n        return self.head(x)\n\n\n"
        "def net():\n    return Net(), (torch.zeros(1, 64),)\n"
    )
    db = f"sqlite:///{tmp_path}/runs.db"
    for command in (("collect", "net:net"), ("explain", "net:net", "--trials-from", "none")):
        done = op_profiler(*command, "--threads", "1", "--quiet", "--db", db, folder=tmp_path)
        assert done.returncode == 0, done.stderr
    done = op_profiler("report", "net:net", "--json", "--db", db, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    (model,) = json.loads(done.stdout)["models"]
    assert [one["source_lines"] for one in model["operators"]] == [["net.py:10"]]


def test_a_model_that_takes_the_compiler_down_ends_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "deadly.py").write_text(
        "import os, signal, torch\n\n\nclass Deadly(torch.nn.Module):\n    def forward(self, x):\n"
        "        os.kill(os.getpid(), signal.SIGSEGV)\n\n\ndef deadly():\n    return Deadly(), torch.ones(1, 8)\n"
    )
    done = op_profiler("explain", "deadly:deadly", "--threads", "1", "--trials-from", "none", folder=tmp_path)
    assert done.returncode == EXIT_ENVIRONMENT and "Traceback" not in done.stderr
    assert "deadly:deadly: the process that explains it died (SIGSEGV): lowering" in done.stderr


def test_the_model_of_an_operator_is_built_as_it_was_collected(tmp_path: Path) -> None:
    """Of other shapes it has other operators."""
    db = f"sqlite:///{tmp_path}/runs.db"
    asked = ("--modelname", "mlp", "--inputshape", "1,1,14,14", "--threads", "1", "--schedules", "none")
    done = op_profiler("collect", *asked, "--quiet", "--db", db, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    with Dataset.open(db, create=False) as dataset:
        (model,) = dataset.models()
        (key, *_) = [operator.key for operator, _ in dataset.model_operators(model.key)]
    options = ("--threads", "1", "--schedules", "none", "--trials-from", "none", "--db", db)
    done = op_profiler("explain", key, *options, "--json", "--quiet", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [one["key"] for one in found["operators"]] == [key]
    assert not any("not kept for reports" in note for note in found["notes"]), "it is the build of that run"
