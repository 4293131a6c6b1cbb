"""Plans, libraries of convolutions, grids, arrays and schedule records."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ..command_line import ROOT
from .damage import BYTES, LINES, TEXT, Damage, damaged, value
from .harness import Commands
from .valid import FILES

GRID = (ROOT / "collector" / "configs" / "conv.in").read_bytes()
RECORDS = sorted((ROOT / "schedules" / "llvm").glob("*.jsonl"))[0].read_bytes().splitlines(keepends=True)[:6]
OPERATOR = {"op": 0, "threads": 1, "schedule": {"template": "dense", "knobs": {"tile_x": 8}}}
PLAN = {
    "format": "op_profiler plan",
    "version": 1,
    "policy": "greedy",
    "models": ["resnet-18"],
    "graph": "0123456789abcdef",
    "device": "0123456789abcdef",
    "processor": "a processor",
    "predicted_us": 12.5,
    "merged": [],
    "split": "rows",
    "stages": [[{"cores": [0, 1], "operators": [OPERATOR, {"op": 1, "threads": 2}]}]],
}


def _id(found: object) -> str:
    return getattr(found, "__name__", None) or str(found)


def _each(kinds: tuple[Damage, ...], seeds: int) -> Any:
    return pytest.mark.parametrize(
        ("kind", "seed"), [(k, s) for s in range(seeds) for k in dict.fromkeys(kinds)], ids=_id
    )


@_each((*TEXT, value), 4)
def test_a_damaged_plan(kind: Damage, seed: int, commands: Commands, tmp_path: Path) -> None:
    """It is for another model than the one that is asked for, which shows when all of it was read."""
    (tmp_path / "plan.json").write_bytes(damaged(json.dumps(PLAN).encode(), kind, seed))
    (tmp_path / "result.json").write_text("an older file\n")
    commands.check(tmp_path, "corun", "mlp", "--plan", "plan.json", "--json", "result.json", codes=(2,))


@pytest.mark.parametrize(
    "content", ["", "null", "[]", "1", '"x"', "[" * 100_000, '{"a":' * 100_000, "\ufeff{}", "{}{}"]
)
def test_a_plan_that_is_none(content: str, commands: Commands, tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(content)
    commands.check(tmp_path, "corun", "mlp", "--plan", "plan.json", codes=(2,))


def test_a_plan_for_another_machine(commands: Commands, tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(json.dumps(PLAN | {"models": ["mlp"]}))
    commands.check(tmp_path, "corun", "mlp", "--plan", "plan.json", codes=(2, 5))


@_each(TEXT, 3)
def test_a_damaged_library(kind: Damage, seed: int, commands: Commands, tmp_path: Path) -> None:
    (tmp_path / "conv.out").write_bytes(damaged(FILES["tinynas"].encode(), kind, seed))
    arguments = ["--predictor", "decision_tree", "--split", "random", "--json"]
    commands.check(tmp_path, "evaluate", "--library", "conv.out", *arguments, codes=(0, 2, 5))


@_each(TEXT, 4)
def test_a_damaged_grid(kind: Damage, seed: int, commands: Commands, tmp_path: Path) -> None:
    (tmp_path / "conv.in").write_bytes(damaged(GRID, kind, seed))
    commands.check(tmp_path, "sample", "--config", "conv.in", "--dry-run", codes=(0, 2))


@_each(BYTES, 3)
def test_damaged_arrays(kind: Damage, seed: int, commands: Commands, tmp_path: Path) -> None:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, data=np.random.default_rng(0).standard_normal((1, 1, 28, 28)).astype("float32"))
    (tmp_path / "x.npz").write_bytes(damaged(buffer.getvalue(), kind, seed))
    (tmp_path / "letter.db").write_text("no database")
    arguments = ["--modelname", "mlp", "--inputdata", "x.npz", "--db", "sqlite:///letter.db"]
    commands.check(tmp_path, "collect", *arguments, codes=(2, 5))


@_each(LINES, 2)
def test_damaged_schedule_records(
    kind: Damage, seed: int, commands: Commands, tables: dict[str, bytes], tmp_path: Path
) -> None:
    from op_profiler.schedules.record_files import record_file
    from op_profiler.targets.llvm.identity import processor_name

    file = record_file(str(tmp_path), "llvm", processor_name())
    assert file is not None
    file.parent.mkdir()
    file.write_bytes(damaged(b"".join(RECORDS), kind, seed))
    (tmp_path / "x.db").write_bytes(tables["sqlite"])
    arguments = ["--schedules", str(tmp_path), "--trials-from", "none", "--db", "sqlite:///x.db"]
    commands.check(tmp_path, "schedule", "--modelsource", "simple", "dense", *arguments, codes=(0, 5))
