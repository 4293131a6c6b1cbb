"""The command, and `--report` of the others."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

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


def test_report_refuses_what_is_not_there(collected: str, tmp_path: Path) -> None:
    done = run(tmp_path, "report", "resnet-18", "--db", collected)
    assert done.returncode == 2 and "mlp" in done.stderr and not (tmp_path / "report.html").exists()
    assert run(tmp_path, "report", "mlp", "--db", "sqlite:///none.db").returncode == 5


@pytest.mark.parametrize("command", ["collect", "predict", "corun", "sample", "analyze"])
def test_a_page_that_cannot_be_written_is_refused_first(command: str, tmp_path: Path) -> None:
    needed = {"collect": ["--modelname", "mlp"], "predict": ["mlp"], "corun": ["mlp"], "sample": ["--count", "3"]}
    done = run(tmp_path, command, *needed.get(command, []), "--report", "/proc/none/page.html")
    assert done.returncode == 5 and "--report" in done.stderr
