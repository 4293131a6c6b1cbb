"""The command, and `--report` of the others."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from op_profiler.dataset import Dataset
from op_profiler.report.page.report import chosen_models

from ...command_line import op_profiler
from .browser import data_of


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return op_profiler(*arguments, folder=folder)


def test_report_names_what_it_wrote(collected: str, tmp_path: Path) -> None:
    done = run(tmp_path, "report", "mlp", "--db", collected)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "report.html: mlp, batch 1, float32\n"
    (model,) = data_of(tmp_path / "report.html")["models"]
    assert len(model["operators"]) == 4


def test_the_page_in_short_fits_an_assistant(collected: str, tmp_path: Path) -> None:
    done = run(tmp_path, "report", "mlp", "--json", "--db", collected)
    assert done.returncode == 0 and len(done.stdout) < 32_000 and not (tmp_path / "report.html").exists()
    (model,) = json.loads(done.stdout)["models"]
    assert model["verdict"] and model["runs"][0]["us"] > 0 and model["operators_left_out"] == 0
    assert sum(one["share"] for one in model["operators"]) == pytest.approx(1)
    assert all(one["of_peak_memory"] > 0 for one in model["operators"] if one["us"])
    assert any(one["why"] for one in model["operators"]), "it was explained"
    run(tmp_path, "report", "mlp", "--json", "--output", "page.html", "--db", collected)
    assert (tmp_path / "page.html").exists()


def test_report_refuses_what_is_not_there(collected: str, tmp_path: Path) -> None:
    done = run(tmp_path, "report", "resnet-18", "--db", collected)
    assert done.returncode == 2 and "mlp" in done.stderr and not (tmp_path / "report.html").exists()
    assert run(tmp_path, "report", "mlp", "--db", "sqlite:///none.db").returncode == 5
    short = run(tmp_path, "report", "577d", "--db", collected)
    assert short.returncode == 2 and "6 digits or more" in short.stderr
    unknown = run(tmp_path, "report", "mlp", "--predictor", "crystal-ball", "--db", collected)
    assert unknown.returncode == 2 and "crystal-ball" in unknown.stderr, unknown.stderr
    (tmp_path / "damaged.zip").touch()
    assert run(tmp_path, "report", "mlp", "--predictor", "damaged.zip", "--db", collected).returncode == 5
    assert not (tmp_path / "report.html").exists()


def test_a_model_without_times_does_not_stand_before_one_that_has_them(collected: str, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    copy.write_bytes(Path(collected.removeprefix("sqlite:///")).read_bytes())
    with Dataset.open(f"sqlite:///{copy}") as dataset:
        (measured,) = chosen_models(dataset, ["mlp"])
        names = ("name", "source", "batch_size", "precision", "executor", "target", "recipe")
        same = {name: getattr(measured, name) for name in names}
        dataset.add_model(key="0" * 16, **same)  # as a dry run does
        dataset.add_model(key="1" * 16, **same | {"name": "dry"})
        assert chosen_models(dataset, ["mlp"]) == [measured]
    done = run(tmp_path, "report", "dry", "mlp", "--db", f"sqlite:///{copy}")
    assert done.returncode == 0 and done.stderr.count("has no times of dry") == 1, done.stderr
    assert "dry, batch 1" in done.stderr


@pytest.mark.parametrize("command", ["collect", "predict", "corun", "sample", "analyze"])
def test_a_page_that_cannot_be_written_is_refused_first(command: str, tmp_path: Path) -> None:
    needed = {"collect": ["--modelname", "mlp"], "predict": ["mlp"], "corun": ["mlp"], "sample": ["--count", "3"]}
    done = run(tmp_path, command, *needed.get(command, []), "--report", "/proc/none/page.html")
    assert done.returncode == 5 and "--report" in done.stderr
