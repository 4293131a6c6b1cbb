"""The ranking of schedules, and the command that asks it."""

from __future__ import annotations

import dataclasses
import json
import math
import random
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from op_profiler.building.request import BuildRequest
from op_profiler.collection.studies.tune import tunables_of
from op_profiler.compilers.compiler import compiler_in_use
from op_profiler.dataset import Dataset, Row
from op_profiler.frontends import FRONTENDS
from op_profiler.frontends.frontend import ModelRequest
from op_profiler.frontends.lowered_cache import load_cached
from op_profiler.measure.measurement import Settings
from op_profiler.measure.statistics import summarize
from op_profiler.operators.operator import Operator, TensorSpec
from op_profiler.prediction.schedules import suggestions
from op_profiler.prediction.schedules.proposals import propose
from op_profiler.prediction.schedules.ranking import Example, RankingModel, best_of_groups, evaluate, examples
from op_profiler.prediction.schedules.suggestions import ScheduleQuery, load_trials
from op_profiler.schedules.record_files import keep
from op_profiler.schedules.records import Conditions, Record
from op_profiler.shipped import shipped_trials
from op_profiler.targets.open_machine import open_machine

from ...command_line import op_profiler


def anchor(rows: int, columns: int, depth: int) -> Operator:
    weight = TensorSpec((columns // 32, depth, 32), "float32")
    return Operator(
        name="nn_contrib_dense_pack",
        anchor="nn.contrib_dense_pack",
        op_names=("nn.contrib_dense_pack",),
        inputs=(TensorSpec((rows, depth), "float32"),),
        params=(weight,),
        outputs=(TensorSpec((rows, columns), "float32"),),
        attrs=({"weight_layout": "NC32n", "out_dtype": "float32"},),
        layouts={},
        structure=f"{rows}x{columns}x{depth}",
        flops=2 * rows * columns * depth,
        bytes_read=0,
        bytes_written=0,
    )


def cost(operator: Operator, knobs: dict[str, int]) -> float:
    """A law that has the best tile at 4 rows and 2 vectors, and likes unrolling; per operator another scale."""
    off = abs(math.log2(knobs["tile_y"] / 4)) + abs(math.log2(knobs["tile_x"] / 2)) + (knobs["unroll"] == 0)
    return operator.flops / 1e5 * (1 + 0.5 * off)


def trials(operator: Operator, target: Any, count: int = 60) -> list[dict[str, Any]]:
    (spec,) = compiler_in_use().own_tasks(operator)
    task = compiler_in_use().task(spec, target)
    random.seed(1)
    rows = []
    for _ in range(count):
        schedule = task.schedule(task.random_point())
        row = dataclasses.asdict(operator) | dataclasses.asdict(schedule.factors)
        row |= {"operator_key": operator.key, "template": schedule.template, "knobs": schedule.knobs, "threads": 2}
        row |= {"cache": "hot", "device_key": "d", "median_us": cost(operator, schedule.knobs)}
        rows.append(row)
    return rows


@pytest.fixture(scope="module")
def rows(target: Any) -> list[dict[str, Any]]:
    shapes = [(64, 128, 64), (128, 256, 64), (32, 512, 128), (64, 64, 256), (128, 128, 128), (16, 256, 256)]
    return [row for shape in shapes for row in trials(anchor(*shape), target)]


def test_the_ranking_carries_over_to_operators_it_has_not_seen(rows: list[dict[str, Any]]) -> None:
    data = examples(rows)
    keys = sorted({e.operator for e in data})
    score = evaluate(data, [[key] for key in keys], ks=(1, 8))
    assert (score.operators, score.trials) == (len(keys), len(data))
    assert score.pairwise > 0.85
    assert 1.0 <= score.top[8] <= score.top[1] < 1.5


def test_proposals_are_better_than_chance(rows: list[dict[str, Any]], target: Any) -> None:
    operator = anchor(64, 192, 96)
    tasks = [compiler_in_use().task(spec, target) for spec in compiler_in_use().own_tasks(operator)]
    model = RankingModel.train(examples(rows))
    proposals = propose(operator, tasks, model, [], count=8, threads=2)
    assert len({p.candidate for p in proposals}) == 8
    assert [p.score for p in proposals[:1]] == [min(p.score for p in proposals)]
    best = min(cost(operator, p.schedule.knobs) for p in proposals)
    usual = sorted(float(row["median_us"]) for row in trials(operator, target))
    assert best <= usual[len(usual) // 10]


def test_failed_trials_count_as_slow(rows: list[dict[str, Any]]) -> None:
    data = examples([{**row, "median_us": None} if i % 10 == 0 else row for i, row in enumerate(rows)])
    assert sum(math.isinf(e.latency_us) for e in data) == len(rows) // 10
    assert RankingModel.train(data).predict([data[0].features]).shape == (1,)


def test_failed_trials_that_are_ranked_first_count_as_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    class InOrder:
        def predict(self, features: list[dict[str, float]]) -> Any:
            return np.array([one["place"] for one in features])

    monkeypatch.setattr(RankingModel, "train", lambda data: InOrder())
    data = [
        Example(name, name, {"place": float(at)}, math.inf if name == "failed" and at == 0 else 10.0 + at)
        for name in ("failed", "other")
        for at in range(3)
    ]
    score = evaluate(data, [["failed"], ["other"]], ks=(1, 2))
    assert score.top == {1: pytest.approx(math.sqrt(20.0)), 2: pytest.approx(1.0)}


def test_too_few_trials_are_refused(rows: list[dict[str, Any]]) -> None:
    with pytest.raises(ValueError, match="too few"):
        RankingModel.train(examples(rows[:20]))


def test_what_is_known_comes_before_what_is_predicted(rows: list[dict[str, Any]], target: Any) -> None:
    query = ScheduleQuery(rows, target, None, Conditions(2, "hot"), ["d"])
    known = query.answer(anchor(64, 128, 64), 3)
    assert [s.source for s in known.suggestions] == ["measured"]
    assert known.suggestions[0].latency_us == min(r["median_us"] for r in rows[:60])
    unknown = query.answer(anchor(64, 192, 96), 3)
    assert [s.source for s in unknown.suggestions] == ["predicted"] * 3
    assert all(s.latency_us is None and s.verified_us is None for s in unknown.suggestions)


def test_too_many_trials_are_drawn_and_the_best_are_among_them(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    every = load_trials(None, shipped_trials(), said.append)
    assert not said
    monkeypatch.setattr(suggestions, "MOST_TRIALS", len(every) // 4)
    some = load_trials(None, shipped_trials(), said.append)
    of_all, of_some = (Counter(str(one["operator_key"]) for one in rows) for rows in (every, some))
    assert of_all.keys() == of_some.keys()
    assert all(of_some[key] < 0.5 * count for key, count in of_all.items() if count > 50)
    assert len(every) // 5 <= len(some) <= len(every) // 4 + len(of_all)
    assert len({one["measurement_key"] for one in some}) == len(some)
    assert best_of_groups(examples(some)) == {
        group: us for group, us in best_of_groups(examples(every)).items() if us < math.inf
    }
    assert len(said) == 1 and "drawn by chance" in said[0]


def test_trials_of_an_unknown_number_of_threads_are_left_out_with_a_word(searched: str, tmp_path: Path) -> None:
    """Logs of AutoTVM do not tell it."""
    from op_profiler.dataset import import_autotvm

    said: list[str] = []
    (file,) = (path for path in (tmp_path / "schedules").rglob("*") if path.is_file())
    before = load_trials(searched, None, said.append)
    with Dataset.open(searched) as dataset:
        imported = import_autotvm(dataset, file)
    assert imported.rows > 0 and not said
    assert load_trials(searched, None, said.append) == before
    assert said == [f"{imported.rows} trials without a thread count are not used"]


def test_what_is_known_is_of_one_device_and_one_set_of_conditions(
    rows: list[dict[str, Any]], target: Any, tmp_path: Path
) -> None:
    fastest = dict(rows[0])
    mixed = list(rows)
    for field, value in (("threads", 4), ("cache", "cold"), ("device_key", "other")):
        mixed.append(fastest | {field: value, "median_us": 1e-3})
    operator = anchor(64, 128, 64)

    def known(threads: int, cache: str, device: str, file: Path | None = None) -> Any:
        return ScheduleQuery(mixed, target, file, Conditions(threads, cache), [device]).answer(operator, 1)

    assert known(2, "hot", "d").suggestions[0].latency_us == min(r["median_us"] for r in rows[:60])
    for conditions in ((4, "hot", "d"), (2, "cold", "d"), (2, "hot", "other")):
        (suggestion,) = known(*conditions).suggestions
        assert (suggestion.source, suggestion.latency_us) == ("measured", 1e-3)
    assert known(4, "cold", "d").suggestions[0].source == "predicted"
    (spec,) = compiler_in_use().own_tasks(operator)
    config = compiler_in_use().task(spec, target).config(0)
    for conditions_, seconds in ((Conditions(2, "hot"), 1.0), (Conditions(1, "cold"), 1e-9)):
        keep(tmp_path / "x", Record("llvm", spec.template, spec.arguments, config, (seconds,), conditions=conditions_))
    (record,) = known(2, "hot", "d", tmp_path / "x").suggestions
    assert (record.source, record.latency_us, record.conditions) == ("record", 1e6, Conditions(2, "hot"))


@pytest.fixture
def searched(target: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A dataset with trials of the products of mlp, and the best of each as a record; their times are made up."""
    monkeypatch.setenv("OP_PROFILER_SCHEDULES", str(tmp_path / "schedules"))
    request = BuildRequest(model=ModelRequest(source="local", name="mlp"), threads=(1,), cache="hot")
    file, device = request.record_file(), open_machine("llvm", target, None).device
    assert file is not None
    settings = Settings(threads=1, threads_effective=1, cache="hot", cache_mechanism="repeat", executor="kernel")
    model = load_cached(FRONTENDS.get("local"), request.model)
    address = f"sqlite:///{tmp_path / 'x.db'}"
    random.seed(1)
    with Dataset.open(address) as dataset:
        for item in tunables_of(model, target)[0]:
            (task,) = (
                compiler_in_use().task(spec, target) for spec in item.tasks if spec.template == "dense_pack.op_profiler"
            )
            points = random.sample([point for point in range(task.size) if task.is_valid(point)], 20)
            times = {point: item.anchor.flops / 1e5 * (1 + point / task.size) for point in points}
            dataset.add_anchor(item.anchor)
            common: dict[str, Any] = {"operator_key": item.anchor.key, "settings": settings, "device": device}
            dataset.record_all(
                Row(schedule=task.schedule(point), measurement=summarize(np.full((3, 1), us)), **common)
                for point, us in times.items()
            )
            point = min(points, key=lambda point: times[point])
            best = Record(str(target), task.spec.template, task.spec.arguments, task.config(point), (1e-6,))
            keep(file, dataclasses.replace(best, conditions=Conditions(1, "hot")))
    return address


def test_the_command_measures_no_more_than_it_is_asked_to(searched: str, tmp_path: Path) -> None:
    def run(*arguments: str, db: str = searched) -> subprocess.CompletedProcess[str]:
        return op_profiler(*arguments, "--db", db, libraries=("xgboost",))

    Dataset.open(f"sqlite:///{tmp_path}/empty.db").close()
    empty = run("schedule", "mlp", "--schedules", "none", "--trials-from", "none", db=f"sqlite:///{tmp_path}/empty.db")
    assert empty.returncode == 5 and "too few" in empty.stderr and "--iftune true" in empty.stderr
    (tmp_path / "letter.db").write_text("Dear reader")
    for bad in ("letter.db", "none.db"):
        refused = run("schedule", "mlp", db=f"sqlite:///{tmp_path}/{bad}")
        assert refused.returncode == 5 and bad in refused.stderr and refused.stdout == ""
    quiet = run("schedule", "mlp", "--threads", "1", "--trials-from", "none", "--quiet")
    assert quiet.returncode == 0 and quiet.stdout.endswith(": 3 record\n") and quiet.stdout.count("\n") == 1
    known = run("schedule", "mlp", "--threads", "1", "--json", "--trials-from", "none")
    assert known.returncode == 0, known.stderr
    answers = json.loads(known.stdout)
    assert [[s["source"] for s in a["schedules"]] for a in answers] == [["record"]] * 3
    arguments = ("--verify", "2", "--schedules", "none", "--k", "4", "--threads", "1", "--json")
    verified = run("schedule", answers[0]["operator"], *arguments, "--trials-from", "none")
    assert verified.returncode == 0, verified.stderr
    (answer,) = json.loads(verified.stdout)
    predicted = [s for s in answer["schedules"] if s["source"] == "predicted"]
    assert len(predicted) == 4 and sum(s["verified_us"] is not None for s in predicted) == 2
    both = run("schedule", "mlp", "--threads", "1", "--evaluate", "--json", "--quiet")
    told = json.loads(both.stdout)
    assert [one["operator"] for one in told["operators"]] == [one["operator"] for one in answers]
    assert 0 <= told["evaluation"]["pairwise"] <= 1
    ranked = run("schedule", "mlp", "--schedules", "none", "--quiet", db=f"sqlite:///{tmp_path}/empty.db")
    assert "; predicted from trials of AMD EPYC: 3 predicted" in ranked.stdout, ranked.stderr
    assert run("schedule").returncode == 2
    no_operator = run("schedule", "0123456789abcdef", "--trials-from", "none")
    assert no_operator.returncode == 2 and "op-profiler export --output operators.csv" in no_operator.stderr


def test_a_fused_operator_is_answered_by_its_key_and_by_that_of_its_anchor(
    searched: str, target: Any, tmp_path: Path
) -> None:
    """A dataset of a collection has operators as they are fused; anchors are in one of a search."""
    model = load_cached(FRONTENDS.get("local"), ModelRequest(source="local", name="mlp"))
    address = f"sqlite:///{tmp_path / 'collected.db'}"
    fused = [one.operator for one in compiler_in_use().operators(model, target)]
    with Dataset.open(address) as dataset:
        for operator in fused:
            dataset.add_anchor(operator)

    def run(subject: str) -> subprocess.CompletedProcess[str]:
        arguments = ("--db", address, "--threads", "1", "--json", "--trials-from", "none")
        return op_profiler("schedule", subject, *arguments, libraries=("xgboost",))

    of_model = json.loads(run("local:mlp").stdout)
    dense = next(one for one in fused if one.op_names[0] == "nn.contrib_dense_pack" and len(one.op_names) > 1)
    for key in (dense.key, of_model[0]["operator"]):
        assert json.loads(run(key).stdout) == [of_model[0]]
    softmax = next(one for one in fused if one.anchor == "nn.softmax")
    refused = run(softmax.key)
    assert refused.returncode == 4 and "has no heavy op" in refused.stderr and refused.stdout == ""
