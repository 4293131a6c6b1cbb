"""Which schedule an operator gets in a model: builds of a real model in turns, and what their times decide."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from op_profiler.building.request import BuildRequest
from op_profiler.collection.request import CollectRequest
from op_profiler.collection.studies import tune
from op_profiler.collection.studies.in_model import InModel, OperatorCandidates, is_faster
from op_profiler.collection.studies.study import Study
from op_profiler.collection.studies.tune import ModelTuner, tunables_of
from op_profiler.compilers.compiler import compiler_in_use
from op_profiler.frontends.frontend import ModelRequest
from op_profiler.schedules.record_files import read_records
from op_profiler.schedules.records import Conditions, Record
from op_profiler.schedules.schedule import Schedule
from op_profiler.targets.open_machine import open_machine
from op_profiler.tuning import search
from op_profiler.tuning.candidate import Candidate, TrialResult


@pytest.fixture(scope="module")
def place(small_network: Any, target: Any) -> InModel:
    request = CollectRequest(build=BuildRequest(model=ModelRequest(source="local", name="small")))
    machine = open_machine("llvm", target, None, None)
    study = Study(request, frozenset(), None, lambda: machine, target, lambda **_: None, {})  # type: ignore[arg-type]
    return InModel(study, small_network)


@pytest.fixture(scope="module")
def entries(small_network: Any, target: Any) -> list[OperatorCandidates]:
    """Every convolution with a schedule that goes through its output one by one, its channels outermost."""
    found = []
    for item in tunables_of(small_network, target)[0]:
        spec = item.tasks[0]
        task = compiler_in_use().task(spec, target)
        slow = {name: min(values) for name, values in task.knobs.items()} | {"compute_at": -1}
        point = task.point({name: slow[name] for name in task.knobs})
        assert point is not None
        record = Record(
            str(target), spec.template, spec.arguments, task.config(point), (1e-9,), conditions=Conditions(1)
        )
        found.append(OperatorCandidates(item, (record,), record))
    return [entry for entry in found if "conv2d" in entry.item.anchor.anchor]


def test_what_is_not_faster_in_the_model_does_not_become_its_record(
    place: InModel, entries: list[OperatorCandidates]
) -> None:
    """Its nanosecond alone, and that it has been in use so far, count for nothing."""
    decisions = place.decide(entries)
    assert set(decisions) == {entry.item for entry in entries} and len(entries) == 2
    assert all(d.winner is None and d.winner_us == d.default_us > 0 for d in decisions.values())


def test_the_candidates_kernels_are_those_of_the_build(place: InModel, entries: list[OperatorCandidates]) -> None:
    build = place._built([entry.candidates[0] for entry in entries])
    assert build is not None
    templates = [build.templates[operator.key] for operator in build.operators if "conv2d" in operator.anchor]
    assert templates == ["conv2d_NCHWc.op_profiler"] * 3
    default, other = place._times([build])
    assert default is not None and other is not None and default.shape[1] == other.shape[1]
    assert place._times([None])[1] is None


@pytest.mark.parametrize(
    ("factors", "champion", "winner"),
    [
        ((0.5, 0.8), None, 0),
        ((0.8, 0.5), None, 1),
        ((1.0, 1.3), None, None),
        ((1.3,), 0, None),
        ((0.8, 0.8), 1, 1),  # nothing tells them apart, so what has been in use stays
        ((0.5, 0.8), 1, 0),
    ],
)
def test_what_surely_is_the_fastest_wins(
    factors: tuple[float, ...],
    champion: int | None,
    winner: int | None,
    place: InModel,
    entries: list[OperatorCandidates],
) -> None:
    import dataclasses

    rng = np.random.default_rng(0)
    count = len(place._default.operators)
    times = [factor * 100 + rng.normal(0, 1, (21, count)) for factor in (1.0, *factors)]
    made = tuple(dataclasses.replace(entries[0].candidates[0], timestamp=float(i)) for i in range(len(factors)))
    entry = OperatorCandidates(entries[0].item, made, made[champion] if champion is not None else None)
    assert place._first(entry, times) == (made[winner] if winner is not None else None)
    assert place._first(entry, [times[0], *[None] * len(factors)]) is None


def test_faster_is_what_the_interval_says() -> None:
    one = np.array([10.0, 11.0, 9.0, 10.0, 10.5, 9.5, 10.0])
    assert is_faster(one, one * 1.1) and not is_faster(one * 1.1, one) and not is_faster(one, one)
    assert not is_faster(one[:5], one[:5] * 2)  # too few to be sure of anything


def test_the_state_of_the_caches_is_measured(place: InModel, entries: list[OperatorCandidates]) -> None:
    items = [entry.item for entry in entries]
    loaded, walked = place._default.loaded, []

    class Loaded:
        """Whose calls take as long in the model as with flushed caches."""

        labels = loaded.labels

        def run_model(self) -> None:
            loaded.run_model()

        def cache_mechanism(self, cache: Any) -> str:
            return loaded.cache_mechanism(cache)

        def walk(self, cache: str, timed: list[bool]) -> list[float]:
            walked.append(cache)
            return [{"model": 9.0, "hot": 5.0, "cold": 10.0}[cache]] * len(timed)

    assert set(place.cache_states(items).values()) <= {"hot", "cold"}
    object.__setattr__(place._default, "loaded", Loaded())
    try:
        assert place.cache_states(items) == {item.anchor.key: "cold" for item in items}
    finally:
        object.__setattr__(place._default, "loaded", loaded)
    assert set(walked) == {"model", "hot", "cold"}


@pytest.mark.parametrize("how", ["_searched_in_turn", "_searched_at_once"])
def test_records_have_the_cache_state_of_their_own_search(
    how: str, entries: list[OperatorCandidates], target: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no model decides."""
    states = dict(zip([entry.item for entry in entries], ["cold", "hot"], strict=True))
    configs = {entry.item.tasks: entry.candidates[0].config for entry in entries}

    def found(tasks: Any, *_: object, **__: object) -> Any:
        result = TrialResult(samples_us=(1.0,))
        one = search.Finalist(Candidate(tasks[0], 0), Schedule("t", {}, "trial"), result, configs[tasks])
        return SimpleNamespace(run=lambda: search.Search((), (one,)))

    monkeypatch.setattr(tune, "tunables_of", lambda *_: (list(states), 0))
    monkeypatch.setattr(tune, "OperatorSearch", found)
    monkeypatch.setattr(ModelTuner, "_searched_in_turn", getattr(ModelTuner, how))
    monkeypatch.setattr(ModelTuner, "_in_model", lambda *_: None)
    monkeypatch.setattr(ModelTuner, "_cache_of_trials", lambda self, item: states[item])
    monkeypatch.setattr(ModelTuner, "_runner", lambda *_, **__: SimpleNamespace(settings=lambda: None))
    build = BuildRequest(model=ModelRequest(source="local", name="small"), schedules=str(tmp_path), threads=(1,))
    dataset: Any = SimpleNamespace(add_anchor=lambda _: None, repeated=lambda work: work(), record_all=lambda _: None)
    opened: Any = None
    tuner = ModelTuner(CollectRequest(build=build), frozenset(), dataset, opened, target, lambda **_: None, {})
    tuner.run(opened)
    file = build.record_file()
    assert file is not None
    by_task = {(r.template, r.arguments): r.conditions for r in read_records(file)[0]}
    assert by_task == {(i.tasks[0].template, i.tasks[0].arguments): Conditions(1, state) for i, state in states.items()}
