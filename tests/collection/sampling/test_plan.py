"""The plan of a large sampling run is made of commands that exist."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from ...command_line import op_profiler

PLAN = Path(__file__).resolve().parents[3] / "collector" / "sampling_plan.sh"


def test_every_step_of_the_plan_is_accepted(tmp_path: Path) -> None:
    command = tmp_path / "op-profiler"
    command.write_text(
        f"#!{sys.executable}\nimport sys\nfrom op_profiler.cli import main\nsys.argv[1] == 'collect' or main()\n"
    )
    command.chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    line = [str(PLAN), "--db", f"sqlite:///{tmp_path / 'x.db'}", "--dry-run"]
    done = subprocess.run(line, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    steps = [text for text in done.stderr.splitlines() if text.startswith("op-profiler sample")]
    assert len(steps) == PLAN.read_text().count("\nsample ") >= 10
    assert "error" not in done.stderr
    networks = [text.split() for text in done.stderr.splitlines() if text.startswith("op-profiler collect")]
    assert {name for words in networks for name in words} >= {"resnet-18", "bert", "float16,int8", "--dry-run"}
    repeated = subprocess.run(line, env=environment | {"REPEAT": "1"}, capture_output=True, text=True, check=False)
    assert repeated.returncode == 0
    assert repeated.stderr.splitlines()[0] == steps[0]
    assert not (tmp_path / "x.db").exists()
    small = ["mlp" if before == "--modelname" else word for before, word in zip(networks[0], networks[0][1:])]
    assert op_profiler(*small).returncode == 0
