"""Runs with a label: kept beside each other, with the revisions that they are of and how to build them again."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from op_profiler.building.recipe import Recipe
from op_profiler.dataset import Dataset, flat_rows
from op_profiler.dataset.row import Model
from op_profiler.errors import DatasetError, ModelError

from .collector import ROOT, run

MLP = ["--modelname", "mlp", "--threads", "1", "--quiet"]


def git(folder: Path, *words: str) -> str:
    who = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    return subprocess.run(["git", *who, *words], cwd=folder, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, cache_folder: Path) -> Path:
    """A checkout of a user, and in it a dataset with the same model in three runs, one of them without a label."""
    where = tmp_path_factory.mktemp("user")
    (where / "model").write_text("1")
    git(where, "init", "-q")
    git(where, "add", "model")
    git(where, "commit", "-qm", "x")
    for label in (["--label", "before"], [], ["--label", "after"]):
        if label[-1:] == ["after"]:
            (where / "model").write_text("2")
        done = run(where, *MLP, *label, OP_PROFILER_PATIENCE_SECONDS="0")
        assert done.returncode == 0, done.stderr
    return where


def models(folder: Path) -> dict[str, Model]:
    with Dataset.open(f"sqlite:///{folder}/results/op_profiler.db", read_only=True) as dataset:
        return {model.label: model for model in dataset.models()}


def test_runs_of_one_model_are_kept_beside_each_other(folder: Path) -> None:
    found = models(folder)
    assert found.keys() == {"", "before", "after"} and len({model.key for model in found.values()}) == 3
    with Dataset.open(f"sqlite:///{folder}/results/op_profiler.db", read_only=True) as dataset:
        rows = list(flat_rows(dataset))
    by_run = {label: {r["operator_key"] for r in rows if r["run_label"] == label} for label in found}
    assert len(by_run[""]) == 4 and by_run[""] == by_run["before"] == by_run["after"]


def test_a_run_is_answered_from_the_dataset_like_any_other(folder: Path) -> None:
    before = (folder / "results" / "op_profiler.db").read_bytes()
    done = run(folder, *MLP, "--label", "before")
    assert done.returncode == 0 and (folder / "results" / "op_profiler.db").read_bytes() == before


def test_a_run_tells_the_revisions_of_the_project_and_of_the_user(folder: Path) -> None:
    commit = git(folder, "rev-parse", "--short=12", "HEAD")
    with Dataset.open(f"sqlite:///{folder}/results/op_profiler.db", read_only=True) as dataset:
        timings = {
            label: dataset.find_model_timing(model.key, threads=1, cache="model", resources={"core_set": cores()})
            for label, model in models(folder).items()
        }
    users = {label: timing.user_revision for label, timing in timings.items() if timing is not None}
    assert users == {"before": commit, "": commit, "after": f"{commit}-dirty"}
    project = git(ROOT, "rev-parse", "--short=12", "HEAD")
    assert all(timing is not None and (timing.project_revision or "")[:12] == project for timing in timings.values())


def cores() -> tuple[int, ...]:
    return tuple(sorted(os.sched_getaffinity(0)))[:1]


def test_the_recipe_of_a_run_gives_the_same_kernels_again(
    folder: Path, target: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stored = models(folder)["before"].recipe
    assert stored is not None
    recipe = Recipe.from_json(stored)
    assert recipe.kept and [spec["shape"] for spec in recipe.inputs] == [[1, 1, 28, 28]]
    said: list[str] = []
    kept = recipe.build(said.append)
    assert not said, "it was read, not built"
    monkeypatch.setenv("OP_PROFILER_CACHE", str(tmp_path))
    again = recipe.build(said.append)
    assert said and again.compiled.by_label.keys() == kept.compiled.by_label.keys()
    assert again.schedules == kept.schedules
    assert recipe.input_arrays()["data"].shape == (1, 1, 28, 28)


def test_a_model_that_has_changed_is_not_taken_for_the_one_of_the_recipe(
    folder: Path, target: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stored = models(folder)["before"].recipe
    assert stored is not None
    monkeypatch.setenv("OP_PROFILER_CACHE", str(tmp_path))
    with pytest.raises(ModelError, match="mlp is not what it was"):
        Recipe.from_json(stored | {"content": "another"}).build(print)
    with pytest.raises(DatasetError, match="collect it again"):
        Recipe.from_json({"request": 3})
    outside = Recipe.from_json(stored | {"kept": "../../elsewhere", "content": "another"})
    with pytest.raises(ModelError):
        outside.build(print)
