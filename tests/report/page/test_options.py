"""The command, and `--report` of the others."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ...command_line import ROOT, op_profiler


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return op_profiler(*arguments, folder=folder)


def data_of(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(re.findall(r'id="data">(.*?)</script>', path.read_text())[0])
    return found


def test_report_names_what_it_wrote(collected: str, tmp_path: Path) -> None:
    done = run(tmp_path, "report", "mlp", "--db", collected)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "report.html: mlp, batch 1, float32\n"
    (model,) = data_of(tmp_path / "report.html")["models"]
    assert len(model["operators"]) == 4


def test_report_refuses_what_is_not_there(collected: str, tmp_path: Path) -> None:
    done = run(tmp_path, "report", "resnet-18", "--db", collected)
    assert done.returncode == 2 and "mlp" in done.stderr and not (tmp_path / "report.html").exists()
    assert run(tmp_path, "report", "mlp", "--db", "sqlite:///none.db").returncode == 5


def test_a_collection_writes_the_report_of_its_models(collected: str, tmp_path: Path) -> None:
    """All is in the dataset already."""
    arguments = ["--modelname", "mlp", "--threads", "1", "--db", collected, "--report", "mlp.html"]
    done = run(tmp_path, "collect", *arguments)
    assert done.returncode == 0, done.stderr
    (model,) = data_of(tmp_path / "mlp.html")["models"]
    assert model["name"] == "mlp" and model["runs"][0]["whole"]["median_us"] > 0


def test_a_prediction_is_a_page_without_a_measurement(tmp_path: Path) -> None:
    done = run(tmp_path, "predict", "mlp", "--threads", "1,2", "--report", "page.html", "--quiet")
    assert done.returncode == 0, done.stderr
    (model,) = data_of(tmp_path / "page.html")["models"]
    assert model["predicted"] and "Nothing here was measured" in model["warnings"][0]
    assert [one["threads"] for one in model["predictions"]] == [1, 2] and model["rooflines"]


def test_an_analysis_is_a_page(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    trials = str(ROOT / "results" / "schedule_trials.parquet")
    arguments = [
        "--anchor",
        "nn.contrib_conv2d_NCHWc",
        "--factor",
        "vectorize,fuse",
        "--report",
        "page.html",
        "--quiet",
    ]
    done = run(tmp_path, "analyze", "--file", trials, *arguments)
    assert done.returncode == 0, done.stderr
    analysis = data_of(tmp_path / "page.html")["analysis"]
    assert {one["factor"] for one in analysis["relations"]} == {"vectorize", "fuse"} and analysis["turns"]


@pytest.mark.parametrize("command", ["collect", "predict", "corun", "sample", "analyze"])
def test_a_page_that_cannot_be_written_is_refused_first(command: str, tmp_path: Path) -> None:
    needed = {"collect": ["--modelname", "mlp"], "predict": ["mlp"], "corun": ["mlp"], "sample": ["--count", "3"]}
    done = run(tmp_path, command, *needed.get(command, []), "--report", "/proc/none/page.html")
    assert done.returncode == 5 and "--report" in done.stderr
