"""One loaded model, measured in rounds."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from op_profiler.building.request import BuildRequest
from op_profiler.collection.request import CollectRequest, Measuring
from op_profiler.collection.session import OperatorResult, Session
from op_profiler.frontends.frontend import ModelRequest
from op_profiler.measure.measurement import Measurement, Settings
from op_profiler.measure.samples import Samples
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


def _one_operator(rounds_us: list[float]) -> OperatorResult:
    """What becomes of so many rounds of a kernel whose call costs 0.009 us."""
    operator: Any = SimpleNamespace(key="a", flops=0, bytes_read=0, bytes_written=0)
    machine: Any = SimpleNamespace(
        limits=None, threads=None, running_seconds=lambda: None, steadiness_probe=lambda: None
    )
    model: Any = SimpleNamespace()
    limits: Any = SimpleNamespace()
    session = Session(_request(), machine, model, [operator], limits=limits)
    count = len(rounds_us)
    samples = Samples(
        whole_us=[0.06] * count,
        kernels_us=[[us] for us in rounds_us],
        foreign=[False] * count,
        call_overhead_us=[0.009],
    )
    (result,) = session._result(1, Settings(threads=1), samples, None, None, None).operators
    return result


def test_a_round_that_its_call_cost_more_than_is_no_failure() -> None:
    found = _one_operator([0.060] * 999 + [0.008]).measurement
    assert found.error is None and found.median_us == pytest.approx(0.051) and found.min_us == 0.001


def test_an_operator_that_costs_no_more_than_its_call_is_a_failure() -> None:
    found = _one_operator([0.009] * 60 + [0.060]).measurement
    assert found.median_us is None and "cannot be told from the cost of a call" in str(found.error)


def test_what_a_call_takes_now_is_taken_off_of_what_was_measured_earlier_too() -> None:
    """One window of rounds in which a call took 0.05 us, then some in which it takes 0.10."""
    operators: Any = [SimpleNamespace(key=str(number)) for number in range(30)]
    model: Any = SimpleNamespace(call_overhead_us=lambda: 0.10)
    machine: Any = SimpleNamespace(threads=None, steadiness_probe=lambda: None)
    session = Session(_request(), machine, model, operators, limits=cast("Any", SimpleNamespace()))
    stored = {one.key: Measurement(samples_us=((0.2,),) * 5, call_overhead_us=0.05) for one in operators}
    samples = session.restore(stored, Measurement(samples_us=((9.0,),) * 5))
    assert samples.rounds == 5
    for _ in range(2):
        samples.extend(Samples([9.0] * 5, [[0.3] * 30] * 5, call_overhead_us=[0.10]), False)
    assert np.allclose(samples.matrix() - cast("float", samples.overhead_us()), 0.2)
