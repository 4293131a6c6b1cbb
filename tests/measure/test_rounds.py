"""What rounds do beside timing: nothing is run twice that once is enough for. Counts of calls, not times."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from op_profiler.compilers.relay.graph_executor import load_graph
from op_profiler.measure.limits import Limits
from op_profiler.measure.rounds import Rounds
from op_profiler.measure.samples import WHOLE_MODEL, Samples
from op_profiler.measure.threads import ThreadPool, default_thread_counts

THREADS = default_thread_counts()


class Calls:
    """A loaded model and a thread pool that write down what is asked of them."""

    def __init__(self, model: Any) -> None:
        self.model, self.pool, self.made = model, ThreadPool(), list[str | int]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    def moved(self) -> Calls:
        return self

    def use(self, threads: int) -> None:
        self.pool.use(threads)
        self.made.append(threads)

    def run_model(self) -> None:
        self.model.run_model()
        self.made.append("run")

    def move_stack(self) -> None:
        self.model.move_stack()
        self.made.append("move")

    def time_model(self) -> float:
        self.made.append("whole")
        return float(self.model.time_model())

    def walk(self, cache: Any, timed: list[bool]) -> list[float]:
        self.made.append("walk")
        return list(self.model.walk(cache, timed))

    def visits(self) -> list[tuple[int, list[str]]]:
        """Thread counts in order, and what was called at each until the next."""
        found: list[tuple[int, list[str]]] = []
        for call in self.made:
            if isinstance(call, int):
                found.append((call, []))
            else:
                found[-1][1].append(call)
        return [(threads, calls) for threads, calls in found if calls]


@pytest.fixture
def calls(tvm: Any, compiled_small: Any) -> Calls:
    return Calls(load_graph(compiled_small, tvm.cpu(), {"data": np.zeros((1, 16, 32, 32), "float32")}))


@pytest.fixture(autouse=True)
def long(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model counts as a long one, on any machine."""
    monkeypatch.setattr("op_profiler.measure.rounds._SHORT_ROUND_SECONDS", 0.0)


def rounds_of(calls: Calls, samples: dict[int, Samples], cache: Any = "model", **limits: Any) -> Rounds:
    kernels = len(calls.kernels)
    rounds = Rounds(
        calls,
        calls,
        threads=tuple(samples),
        cache=cache,
        groups=list(range(kernels)),
        skipped=[False] * kernels,
        coverage=0.95,
        limits=Limits(
            **{"target": 0.0, "usual_rounds": 40, "usual_seconds": 0.001, "window_seconds": 0.02, "repeat_seconds": 0.0}
            | limits
        ),
        meter=None,
    )
    rounds.outcome = rounds.run(samples, lambda share: None)  # type: ignore[attr-defined]
    return rounds


def test_the_model_runs_untimed_once_a_visit_and_not_once_a_round(calls: Calls) -> None:
    samples = {n: Samples() for n in THREADS}
    rounds_of(calls, samples)
    assert {one.rounds for one in samples.values()} == {calls.made.count("whole") // len(THREADS)}
    for _, made in calls.visits():
        assert made[0] == "run" and made.count("run") == 1
        assert made.count("whole") == made.count("walk") >= 1
    rounds = samples[1].rounds * len(THREADS)
    assert calls.made.count("run") < rounds
    assert calls.made.count("run") + calls.made.count("move") == rounds, "each round is called from a place of its own"


def test_at_every_thread_count_as_many_rounds_begin_with_the_whole_model_as_with_the_walk(calls: Calls) -> None:
    samples = {n: Samples() for n in THREADS}
    rounds_of(calls, samples)
    for threads, one in samples.items():
        made = [call for at, made in calls.visits() if at == threads for call in made if call in ("whole", "walk")]
        pairs = list(zip(made[::2], made[1::2]))
        assert set(pairs) == {("whole", "walk"), ("walk", "whole")} and len(pairs) == one.rounds == samples[1].rounds
        assert abs(made[::2].count("whole") - made[::2].count("walk")) <= one.rounds // 4
        assert one.matrix().shape == (one.rounds, len(calls.kernels))


def test_a_visit_has_as_many_rounds_as_fit_into_what_is_left_of_the_window(calls: Calls) -> None:
    """Else a pass that is a little shorter than a window makes one twice as long, and half as many of them."""
    rounds = rounds_of(calls, {n: Samples() for n in THREADS})
    rounds._seconds = dict.fromkeys(THREADS, 0.03 / len(THREADS))
    assert [rounds._rounds_of_visit(left_seconds) for left_seconds in (1.0, 0.2, 0.1, 0.001)] == [8, 7, 3, 1]


def test_no_more_rounds_than_there_may_be(calls: Calls) -> None:
    samples = {n: Samples() for n in THREADS}
    rounds_of(calls, samples, minimum_rounds=5, maximum_rounds=13)
    assert [one.rounds for one in samples.values()] == [13] * len(THREADS)


def test_hot_kernels_leave_other_caches_so_that_the_model_runs_before_each_round(calls: Calls) -> None:
    samples = {THREADS[-1]: Samples()}
    rounds_of(calls, samples, cache="hot")
    assert calls.made.count("run") >= samples[THREADS[-1]].rounds and "move" not in calls.made


def test_a_short_model_runs_before_each_round(calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("op_profiler.measure.rounds._SHORT_ROUND_SECONDS", 60.0)
    samples = {n: Samples() for n in THREADS}
    rounds_of(calls, samples)
    assert calls.made.count("run") == samples[1].rounds * len(THREADS) and "move" not in calls.made


def test_readings_of_the_model_settle_once_a_thread_count(calls: Calls) -> None:
    samples = {THREADS[-1]: Samples()}
    rounds = rounds_of(calls, samples)
    calls.made.clear()
    assert rounds.whole_model_us(THREADS[-1]) > 0
    assert "run" not in calls.made and calls.made.count("whole") == Limits().readings


def test_rounds_in_which_a_kernel_fails_are_counted_discarded_ones_too(
    calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel fails in every third round, the whole model once. All windows before the sixth are disturbed."""
    disturbed = iter([True] * 5)
    monkeypatch.setattr(Rounds, "_disturbed", lambda self, window: next(disturbed, False))
    walked, ran = iter(range(10**6)), iter(range(10**6))

    def walk(cache: Any, timed: list[bool]) -> list[float]:
        us = calls.model.walk(cache, timed)
        return [np.nan, *us[1:]] if next(walked) % 3 == 0 else list(us)

    monkeypatch.setattr(calls, "walk", walk, raising=False)
    monkeypatch.setattr(calls, "time_model", lambda: np.nan if next(ran) == 0 else 9.0, raising=False)
    samples = {1: Samples()}
    rounds_of(calls, samples, repeat_seconds=60.0, minimum_rounds=20)
    one = samples[1]
    assert one.discarded >= 5 and one.rounds >= 20
    total = next(walked)
    assert total == one.rounds + one.discarded and one.failed == {0: -(-total // 3), WHOLE_MODEL: 1}
    assert one.failure(0) == f"failed in {one.failed[0]} of {total} rounds" and one.failure(1) is None


def test_rounds_of_a_model_that_cannot_run_as_a_whole_settle_at_each_thread_count(
    calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "time_model", lambda: np.nan, raising=False)
    for target, settled in ((1e9, True), (0.0, False)):
        rounds: Any = rounds_of(calls, {n: Samples() for n in THREADS}, target=target)
        assert rounds.outcome.converged == dict.fromkeys(THREADS, settled)


def test_a_kernel_that_is_not_timed_does_not_fail(calls: Calls) -> None:
    """With hot caches light operators are timed at the largest thread count only."""
    samples = {n: Samples() for n in THREADS}
    rounds_of(calls, samples, cache="hot")
    assert np.isnan(samples[1].matrix()).any() or len(THREADS) == 1
    assert not any(sum(one.failed.values()) for one in samples.values())
