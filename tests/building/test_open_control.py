"""Loops of a known number of steps are counted; branches and loops that only run time decides are refused where calls
are counted beforehand, and run by the vm."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ..command_line import op_profiler
from ..installed import needs

pytestmark = needs("torch")
SCRIPTS = """
import torch

class While(torch.nn.Module):
    def __init__(self, steps):
        super().__init__()
        self.layer, self.steps = torch.nn.Linear(16, 16), steps

    def forward(self, x):
        step = 0
        while step < self.steps:
            x = 3 * torch.tanh(self.layer(x))
            step += 1
        return x

class Nested(While):
    def forward(self, x):
        step = 0
        while step < 4:
            inner = 0
            while inner < step:
                x = torch.tanh(self.layer(x))
                inner += 1
            if step == 2:
                x = torch.relu(x)
            step += 1
        return x

class Open(While):
    def forward(self, x):
        step = torch.zeros(())
        while bool(step + 0 * x.sum() < self.steps):
            x = 3 * torch.tanh(self.layer(x))
            step = step + 1
        return x

class For(While):
    def forward(self, x):
        for _ in range(3):
            x = 3 * torch.tanh(self.layer(x))
        return x

class Either(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Linear(16, 16), torch.nn.Linear(16, 16)

    def forward(self, x):
        return self.a(x) if bool(x.sum() > 0) else self.b(x)

modules = {"while1": While(1), "while9": While(9), "while4000": While(4000)}
modules |= {"open1": Open(1), "open9": Open(9), "nested": Nested(4), "for3": For(3), "either": Either()}
for name, module in modules.items():
    torch.jit.save(torch.jit.script(module), f"{name}.pt")
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from op_profiler.frontends.importers.torch import load_torch

    load_torch()
    folder = tmp_path_factory.mktemp("scripts")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        (folder / "scripts.py").write_text(SCRIPTS)  # torch reads the source of what it compiles
        patch.syspath_prepend(str(folder))
        __import__("scripts")
    return folder


@pytest.mark.parametrize(("name", "what"), [("while4000", "loops"), ("open9", "loops"), ("either", "branches")])
@pytest.mark.parametrize("command", [("predict",), ("collect", "--threads", "1", "--modelname")])
def test_calls_that_are_not_known_beforehand_are_not_counted(
    command: tuple[str, ...], name: str, what: str, folder: Path
) -> None:
    ran = op_profiler(*command, f"{name}.pt", "--inputshape", "2,16", folder=folder)
    assert ran.returncode == 4
    assert f"{name}.pt has {what} that only run time decides" in ran.stderr
    assert "--executor vm" in ran.stderr


@pytest.mark.parametrize(("name", "steps"), [("open1", 1), ("open9", 9)])
def test_the_virtual_machine_counts_them(name: str, steps: int, folder: Path) -> None:
    given = ("--modelname", f"{name}.pt", "--inputshape", "2,16", "--executor", "vm", "--threads", "1")
    ran = op_profiler("collect", *given, "--db", f"sqlite:///{name}.db", "--energy", "none", folder=folder)
    assert ran.returncode == 0, ran.stderr
    assert "outputs agree with torch" in ran.stdout
    op_profiler(
        "export", "--db", f"sqlite:///{name}.db", "--where", "anchor LIKE '%dense%'", f"{name}.jsonl", folder=folder
    )
    (row,) = map(json.loads, (folder / f"{name}.jsonl").read_text().splitlines())
    assert row["occurrences"] == steps


@pytest.mark.parametrize(("name", "steps"), [("for3", 3), ("while1", 1), ("while9", 9), ("nested", 6)])
def test_a_loop_of_a_known_number_of_steps_is_counted(name: str, steps: int, folder: Path) -> None:
    ran = op_profiler("predict", f"{name}.pt", "--inputshape", "2,16", "--format", "json", folder=folder)
    assert ran.returncode == 0, ran.stderr
    assert sum(one["calls"] for one in json.loads(ran.stdout)["operators"] if "dense" in one["anchor"]) == steps


def test_a_loop_of_a_known_number_of_steps_is_measured_by_default(folder: Path) -> None:
    given = ("--modelname", "nested.pt", "--inputshape", "2,16", "--threads", "1", "--energy", "none")
    ran = op_profiler("collect", *given, "--db", "sqlite:///nested.db", folder=folder)
    assert ran.returncode == 0, ran.stderr
    assert "outputs agree with torch" in ran.stdout
    assert "steps are written out step by step" in ran.stdout


def test_a_dry_run_for_the_virtual_machine_says_what_it_counts_once(folder: Path) -> None:
    given = ("--modelname", "open9.pt", "--inputshape", "2,16", "--executor", "vm")
    ran = op_profiler("collect", *given, "--dry-run", folder=folder)
    assert ran.returncode == 0, ran.stderr
    assert "calls in loops are counted once" in ran.stdout


def test_a_converter_to_relax_names_the_executor_that_runs_it(folder: Path) -> None:
    from op_profiler.compilers.relay.plain_graph import write_graph
    from op_profiler.errors import ModelError
    from op_profiler.frontends.frontend import ModelRequest
    from op_profiler.frontends.lowered_cache import original_model

    request = ModelRequest(source="file", name=str(folder / "either.pt"), input_shapes=((2, 16),))
    model = original_model(request)
    with pytest.raises(ModelError, match="branches that only run time decides.* --compiler relay --executor vm"):
        write_graph(folder, model.mod, model.params)
