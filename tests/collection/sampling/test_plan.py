"""The plans of large runs are made of commands that exist."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from ...command_line import ROOT, op_profiler

PLAN = ROOT / "collector" / "sampling_plan.sh"
NETWORKS = ROOT / "collector" / "networks_plan.sh"
DRAWN = ROOT / "collector" / "drawn_plan.sh"


def test_every_step_of_the_plan_is_accepted(tmp_path: Path) -> None:
    command = tmp_path / "op-profiler"
    command.write_text("#!/bin/sh\n")
    command.chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    line = [str(PLAN), "--db", f"sqlite:///{tmp_path / 'x.db'}", "--dry-run"]

    def steps(**changes: str) -> list[list[str]]:
        done = subprocess.run(line, env=environment | changes, capture_output=True, text=True, check=True)
        return [step.removeprefix("op-profiler ").split() for step in done.stderr.splitlines()]

    samples, networks = ([step for step in steps() if step[0] == name] for name in ("sample", "collect"))
    assert len(samples) == PLAN.read_text().count("\nsample ") >= 10
    assert steps(REPEAT="1") == samples[:1]
    for step in samples:
        done = op_profiler(*step, folder=tmp_path)
        assert done.returncode == 0 and "error" not in done.stderr, (step, done.stderr)
    assert not (tmp_path / "x.db").exists()
    assert {word for step in networks for word in step} >= {"resnet-18", "bert", "float16,int8", "--dry-run"}
    first = networks[0]
    first[first.index("--modelname") + 1] = "mlp"
    assert op_profiler(*first, folder=tmp_path).returncode == 0


def test_every_network_of_the_plan_is_known_and_has_a_file_of_its_own(tmp_path: Path) -> None:
    command = tmp_path / "op-profiler"
    command.write_text('#!/bin/sh\necho "$@"\n[ "$5" != mlp ]\n')  # one of them fails: the others go on
    command.chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    line = [str(NETWORKS), str(tmp_path / "nets"), "--threads", "1,2"]
    done = subprocess.run(line, env=environment, capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.splitlines()[-1] == "not, or not wholly measured: mlp"
    steps = [step.split() for step in done.stdout.splitlines()]
    files, named = {step[-1] for step in steps}, {(step[2], step[4]) for step in steps}
    assert len(files) == len(named) == len(steps) > 80
    assert all(step[-3:-1] == ["1,2", "--db"] for step in steps)
    of_packages = {"yolov3-tiny"}  # listed where libreyolo is installed
    for source in {source for source, _ in named}:
        listed = json.loads(op_profiler("models", "--modelsource", source, "--json", folder=tmp_path).stdout)
        assert {name for where, name in named if where == source} - of_packages <= set(listed[source])
    assert subprocess.run([str(NETWORKS)], capture_output=True, text=True).returncode == 2


def test_drawn_networks_are_measured_by_the_kind_of_their_seed(tmp_path: Path) -> None:
    command = tmp_path / "op-profiler"
    command.write_text('#!/bin/sh\necho "$@"\n')
    command.chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    line = [str(DRAWN), str(tmp_path / "nets"), "0", "60", "--threads", "1,2"]

    def names(**kinds: str) -> list[str]:
        done = subprocess.run(line, env=environment | kinds, capture_output=True, text=True, check=True)
        steps = [step.split() for step in done.stdout.splitlines()]
        assert all(step[1:3] == ["--modelsource", "file"] and step[-3:-1] == ["1,2", "--db"] for step in steps)
        assert len({step[-1] for step in steps}) == len(steps)
        return [step[4] for step in steps]

    assert len(names()) == 40 and len(names(KINDS="test")) == 20 and not set(names()) & set(names(KINDS="test"))
    assert names()[1] == "drawn_networks:mixer_1"
    assert subprocess.run([str(DRAWN), "nets"], capture_output=True, text=True).returncode == 2
