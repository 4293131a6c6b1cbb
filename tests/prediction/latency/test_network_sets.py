"""Sets of networks in benchmarks: a test seed gives its error once."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from op_profiler.prediction.latency.examples import Examples

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def sets(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr(sys, "path", [str(ROOT / "benchmarks"), *sys.path])
    import network_sets_common

    return network_sets_common


@pytest.fixture
def names(sets: ModuleType) -> list[str]:
    """Of seeds 0 to 8: 2, 5 and 8 are test seeds."""
    from drawn_networks.seeds import name_of

    return list(map(name_of, range(9)))


def spent_rows(folder: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((folder / "held_out_models.json").read_text())["tables"]["spent_seeds"]
    return rows


def test_test_seeds_are_spent_once_and_never_come_again(sets: ModuleType, names: list[str], tmp_path: Path) -> None:
    assert sets.spent_seeds(tmp_path) == frozenset()
    sets.spend("a processor", ["resnet-18", *names[:6]], folder=tmp_path)
    sets.spend("another processor", [*names, "unseen_networks:tcn"], folder=tmp_path)
    assert [(row["processor"], row["seeds"], row["networks"]) for row in spent_rows(tmp_path)] == [
        ("a processor", "2 5", 2),
        ("another processor", "8", 1),
    ]
    spent = sets.spent_seeds(tmp_path)
    assert spent == {2, 5, 8} and {sets.set_of_drawn(names[seed], spent) for seed in spent} == {sets.DEVELOPMENT}
    sets.spend("a third processor", names, folder=tmp_path)
    assert len(spent_rows(tmp_path)) == 2


def test_each_benchmark_spends_seeds_of_its_own(sets: ModuleType, names: list[str], tmp_path: Path) -> None:
    sets.spend("a processor", names[:3], folder=tmp_path)
    sets.spend_seeds("odd_operators.py", "a processor", "operators", [5, 8], folder=tmp_path)
    assert sets.spent_seeds(tmp_path) == {2} and sets.spent_seeds(tmp_path, "odd_operators.py") == {5, 8}


def test_spending_keeps_the_rest_of_the_result(sets: ModuleType, names: list[str], tmp_path: Path) -> None:
    """Also where the run shows a part, whose result is not stored."""
    from common import store

    tables = {"networks": [{"network": "resnet-18", "error_percent": 1.0}]}
    store("held_out_models.py", "near", tables, whole=True, folder=tmp_path)
    sets.spend("a processor", names[2:3], folder=tmp_path)
    store("held_out_models.py", "nearer", {}, whole=False, folder=tmp_path)
    result = json.loads((tmp_path / "held_out_models.json").read_text())
    assert result["headline"] == "near" and result["tables"]["networks"] == tables["networks"]
    assert spent_rows(tmp_path)[0]["seeds"] == "2"


def test_seeds_decide_for_drawn_networks_and_families_for_those_of_zoos(
    sets: ModuleType, names: list[str], known: Examples
) -> None:
    models = ["resnet-18", "a_new_zoo_network", *names[:3], names[5]]
    nothing = known.where(known.model < 0)
    found = sets.sets_of([dataclasses.replace(nothing, models=models)], frozenset({5}))
    assert list(found.items()) == [
        ("resnet-18", "development"),
        ("a_new_zoo_network", "test"),
        (names[0], "development"),
        (names[1], "calibration"),
        (names[2], "test"),
        (names[5], "development"),
    ]


def test_results_of_other_processors_stay(sets: ModuleType, tmp_path: Path) -> None:
    import held_out_models

    def result(processor: str, error: float) -> dict[str, Any]:
        head = {"processor": processor, "of": "test", "schedules": "default", "known": "nothing", "threads": 1}
        whole = {**head, "mean_error_percent": error, "within_10_percent": 90, "worst_percent": 20.0, "networks": 10}
        operators = {**head, "mean_error_percent": error, "operators": 100}
        return {"tables": {"whole_networks": [whole], "operators_above_20_us": [operators], "networks": []}}

    held_out_models.keep_results([result("b", 1.0), result("c", 2.0)], folder=tmp_path)
    sets.spend_seeds("held_out_models.py", "b", "networks", [2], folder=tmp_path)
    held_out_models.keep_results([result("c", 3.0), result("a", 4.0)], folder=tmp_path)
    stored = json.loads((tmp_path / "held_out_models.json").read_text())
    errors = {row["processor"]: row["mean_error_percent"] for row in stored["tables"]["whole_networks"]}
    assert list(errors.items()) == [("a", 4.0), ("b", 1.0), ("c", 3.0)]
    assert all(row["commit"] for row in stored["tables"]["whole_networks"])
    assert "b, test set: mean error 1.0 % over 10 predictions" in stored["headline"]
    assert sets.spent_seeds(tmp_path) == {2}, "they stay, too"


def test_a_seed_that_was_shown_at_this_commit_only_is_not_spent_before_it(sets: ModuleType, tmp_path: Path) -> None:
    sets.spend_seeds("held_out_models.py", "a processor", "networks", [2], folder=tmp_path)
    (row,) = spent_rows(tmp_path)
    assert sets.spent_seeds(tmp_path) == sets.spent_seeds(tmp_path, before="another commit") == {2}
    clean = row["commit"].removesuffix("-dirty")
    spent = sets.spent_seeds(tmp_path, before=row["commit"])
    assert spent == (set() if row["commit"] == clean else {2})
