"""One loaded model, measured in rounds."""

from __future__ import annotations

import dataclasses
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from op_profiler.building.request import BuildRequest
from op_profiler.collection.checkpoint import restored
from op_profiler.collection.request import CollectRequest, Measuring
from op_profiler.collection.resume import StoredResults
from op_profiler.collection.session import OperatorResult, Session
from op_profiler.frontends.frontend import ModelRequest
from op_profiler.measure.limits import Limits
from op_profiler.measure.measurement import Measurement, ModelTiming, Settings
from op_profiler.measure.rounds import Outcome
from op_profiler.measure.samples import WHOLE_MODEL, Samples
from op_profiler.targets.llvm.host import Host

_BUILD = BuildRequest(model=ModelRequest(source="test", name="small"), threads=(1,))


def _request(**measuring: Any) -> CollectRequest:
    return CollectRequest(build=_BUILD, measuring=Measuring(energy="none", **measuring))


@pytest.mark.parametrize(
    ("resources", "remembered", "runs"), [({}, True, 1), ({}, False, 0), ({"core_set": (0,)}, True, 0)]
)
def test_only_a_usual_run_of_a_model_tells_what_is_usual(
    resources: dict[str, Any],
    remembered: bool,
    runs: int,
    compiled_small: Any,
    target: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OP_PROFILER_CACHE", str(tmp_path))
    host = Host(target)
    monkeypatch.setattr(host, "meter", lambda threads: None)  # others may be at work
    loaded = host.load(compiled_small, {}, 1)
    operators = [compiled_small.by_label[label].operator for label in loaded.labels]
    limits = dataclasses.replace(host.limits, usual_rounds=3, maximum_seconds=0.1, minimum_rounds=3)
    session = Session(_request(resources=resources), host, loaded, operators, limits=limits, remembered=remembered)
    (result,) = session.measure({1: Samples()}, lambda *_: None)
    assert result.timing.whole_model.median_us
    kept = [file for file in tmp_path.rglob("*") if file.is_file() and "states" in file.parts[-2]]
    assert bool(kept) == bool(runs)
    if resources:
        assert result.timing.whole_model.steady_us is None and "off_usual" not in result.timing.details


def _one_operator(rounds_us: list[float], **counted: Any) -> OperatorResult:
    """What becomes of so many rounds of a kernel whose call costs 0.009 us."""
    ((operator,), _) = _of_rounds(rounds_us, **counted)
    return operator


def _of_rounds(rounds_us: list[float], **counted: Any) -> tuple[tuple[OperatorResult, ...], ModelTiming]:
    operator: Any = SimpleNamespace(key="a", flops=0, bytes_read=0, bytes_written=0)
    machine: Any = SimpleNamespace(
        device=SimpleNamespace(properties={}),
        limits=None,
        threads=None,
        running_seconds=lambda: None,
        steadiness_probe=lambda: None,
    )
    model: Any = SimpleNamespace()
    limits: Any = SimpleNamespace(target=0.01)
    session = Session(_request(), machine, model, [operator], limits=limits)
    count = len(rounds_us)
    samples = Samples(
        whole_us=[0.06] * count,
        kernels_us=[[us] for us in rounds_us],
        foreign=[False] * count,
        call_overhead_us=[0.009],
        **counted,
    )
    result = session._result(1, Settings(threads=1), samples, None, None, None)
    return result.operators, result.timing


def test_a_round_that_its_call_cost_more_than_is_no_failure() -> None:
    found = _one_operator([0.060] * 999 + [0.008]).measurement
    assert found.error is None and found.median_us == pytest.approx(0.051) and found.min_us == 0.001


def test_an_operator_that_costs_no_more_than_its_call_is_a_failure() -> None:
    found = _one_operator([0.009] * 60 + [0.060]).measurement
    assert found.median_us is None and "is not distinguishable from the cost of a call" in str(found.error)


@pytest.mark.parametrize("failed", [1, 49])
def test_a_kernel_that_fails_in_any_round_has_no_time_but_an_error_with_the_count(failed: int) -> None:
    """Whether these rounds were kept or discarded."""
    ((found,), timing) = _of_rounds([0.060] * 50, failed=Counter({0: failed}), discarded=10)
    assert found.measurement == Measurement(error=f"failed in {failed} of 60 rounds")
    assert (timing.sum_of_operators_us, timing.unmeasured, timing.ratio) == (None, ("a",), None)
    assert timing.whole_model.median_us == pytest.approx(0.06) and timing.whole_model.discarded_rounds == 10
    assert timing.details["failed_rounds"] == {"a": failed}


def test_a_model_that_fails_in_any_round_has_no_time_as_a_whole() -> None:
    ((found,), timing) = _of_rounds([0.060] * 20, failed=Counter({WHOLE_MODEL: 3}))
    assert timing.whole_model.error == "failed in 3 of 20 rounds" and timing.whole_model.median_us is None
    assert found.measurement.error is None and timing.sum_of_operators_us == pytest.approx(0.051)


def test_failed_rounds_of_a_run_that_was_killed_are_still_errors() -> None:
    """Whether its samples fit or not."""
    operators: Any = [SimpleNamespace(key=key) for key in "ab"]
    model: Any = SimpleNamespace(call_overhead_us=lambda: None)
    machine: Any = SimpleNamespace(threads=None, steadiness_probe=lambda: None)
    session = Session(_request(), machine, model, operators, limits=cast("Any", SimpleNamespace()))
    whole = Measurement(samples_us=((9.0,),) * 5, discarded_rounds=2)
    timing = _timing(whole, details={"rounds": 5, "failed_rounds": {"a": 3}})
    failed = Measurement(error="failed in 3 of 7 rounds")
    for stored, rounds in (((9.0,),) * 5, 5), (((9.0,),) * 4, 0):
        samples = restored(session, {"a": failed, "b": Measurement(samples_us=stored)}, timing)
        assert samples.rounds == rounds and samples.failure(0) == failed.error and samples.failure(1) is None


def test_each_operator_settles_by_its_own_interval() -> None:
    """One is within 1 %, the other one, which the rounds did not wait for, is not."""
    operators: Any = [SimpleNamespace(key=key, flops=0, bytes_read=0, bytes_written=0) for key in "ab"]
    nothing: Any = dict.fromkeys(("running_seconds", "steadiness_probe"), lambda: None)
    machine: Any = SimpleNamespace(limits=None, threads=None, device=SimpleNamespace(properties={}), **nothing)
    session = Session(_request(), machine, cast("Any", None), operators, limits=cast("Any", Limits()))
    rows = [[100.0 + number % 2 / 10, 1.0 + number % 2 / 10] for number in range(40)]
    samples = Samples(whole_us=[102.0] * 40, kernels_us=rows, foreign=[False] * 40)
    for settled in (True, False):
        outcome = Outcome({1: settled}, 40, 1.0, None, None)
        result = session._result(1, Settings(threads=1), samples, outcome, None, None)
        assert [one.measurement.settled for one in result.operators] == [True, False]
        assert result.timing.whole_model.settled is settled


@pytest.mark.parametrize(("whole", "again"), [(True, False), (False, True)])
def test_a_light_operator_that_did_not_settle_is_no_reason_to_measure_a_settled_model_again(
    whole: bool, again: bool
) -> None:
    request = _request(remeasure="noisy")
    timing = _timing(Measurement(median_us=1.0, settled=whole), coverage=1.0)
    rows = {"light": SimpleNamespace(run_id="a", measurement=Measurement(median_us=1.0, settled=False), complete=True)}
    dataset: Any = SimpleNamespace(
        measurements_of=lambda *_, **__: rows,
        find_model_timing=lambda *_, **__: SimpleNamespace(timing=timing, complete=True, run_id="a"),
    )
    earlier = StoredResults(dataset, request, "model", "b")
    assert earlier.answers(1) is not again and earlier.kept(1) == set()


def _timing(whole: Measurement, **fields: Any) -> ModelTiming:
    return ModelTiming(whole_model=whole, before_us=None, after_us=None, sum_of_operators_us=None, **fields)


def test_what_a_call_takes_now_is_taken_off_of_what_was_measured_earlier_too() -> None:
    """One window of rounds in which a call took 0.05 us, then some in which it takes 0.10."""
    operators: Any = [SimpleNamespace(key=str(number)) for number in range(30)]
    model: Any = SimpleNamespace(call_overhead_us=lambda: 0.10)
    machine: Any = SimpleNamespace(threads=None, steadiness_probe=lambda: None)
    session = Session(_request(), machine, model, operators, limits=cast("Any", SimpleNamespace()))
    stored = {one.key: Measurement(samples_us=((0.2,),) * 5, call_overhead_us=0.05) for one in operators}
    samples = restored(session, stored, _timing(Measurement(samples_us=((9.0,),) * 5)))
    assert samples.rounds == 5
    for _ in range(2):
        samples.extend(Samples([9.0] * 5, [[0.3] * 30] * 5, call_overhead_us=[0.10]), False)
    assert np.allclose(samples.matrix() - cast("float", samples.overhead_us()), 0.2)
