"""How far apart the cores are: read from a real kernel, and what rounds do when that is further than usual."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from op_profiler.compilers.relay.graph_executor import load_graph
from op_profiler.measure.distance import CoreDistance
from op_profiler.measure.measurement import APART, Device, Measurement, ModelTiming
from op_profiler.measure.rounds import Limits, Rounds, Samples
from op_profiler.measure.steadiness import SteadinessProbe
from op_profiler.measure.threads import ThreadPool, available_cores

DEVICE = Device(kind="cpu", target="llvm", processor="some", cores=2)
FAR_US = 1e5
two_cores = pytest.mark.skipif(len(available_cores()) < 2, reason="one core exchanges with none")


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OP_PROFILER_CACHE", str(tmp_path))


class Moved(CoreDistance):
    """Readings of the real kernel, as if the host moved the cores apart before some of them."""

    def __init__(self, *arguments: Any, far: set[int]) -> None:
        super().__init__(*arguments)
        self.far, self.readings = far, 0

    def read_us(self) -> float:
        self.readings += 1
        if self.readings - 1 in self.far:
            self._times_us.append(FAR_US)
            return self._times_us[-1]
        return super().read_us()


def timed(target: Any, tvm: Any, compiled: Any, far: set[int], **limits: Any) -> tuple[Samples, Any, Moved]:
    model = load_graph(compiled, tvm.cpu(), {"data": np.zeros((1, 16, 32, 32), "float32")})
    distance = Moved(SteadinessProbe(target), DEVICE, 2, far=far)
    for _ in range(20):
        CoreDistance.read_us(distance)
    samples, kernels = {2: Samples()}, len(model.kernels)
    rounds = Rounds(
        model,
        ThreadPool(),
        threads=(2,),
        cache="model",
        groups=list(range(kernels)),
        skipped=[False] * kernels,
        coverage=0.95,
        limits=Limits(usual_rounds=11, usual_seconds=0.2, maximum_seconds=1.0, window_seconds=0.05, **limits),
        meter=None,
        distance=distance,
    )
    return samples[2], rounds.run(samples, lambda share: None), distance


@two_cores
def test_the_kernel_takes_time_and_moves_data(target: Any) -> None:
    probe = SteadinessProbe(target)
    one, other = probe._to_and_fro
    ThreadPool().use(2)
    values = one.arrays[0].numpy()
    assert one.run() and (one.arrays[1].numpy() == values.swapaxes(0, 1)).all()
    assert other.arrays[0] is one.arrays[1] and probe.exchanged_us() > 0.0


@two_cores
def test_a_window_in_which_the_cores_move_apart_is_repeated(target: Any, tvm: Any, compiled_small: Any) -> None:
    """Apart before the first window's rounds, and again after the second's."""
    samples, outcome, distance = timed(target, tvm, compiled_small, {0, 3}, repeat_seconds=5.0)
    assert outcome.repeated_rounds > 0 and distance.readings >= 6
    assert len(samples.exchange_us) >= 1
    assert not any(samples.foreign), "nobody else used the machine"
    assert max(samples.exchange_us) < FAR_US, "what was thrown away is not told of either"


@two_cores
def test_cores_that_stay_apart_are_accepted_in_the_end_and_told(target: Any, tvm: Any, compiled_small: Any) -> None:
    samples, _, distance = timed(target, tvm, compiled_small, set(range(6)), repeat_seconds=0.0)
    details = distance.told(samples.exchange_us[:1])
    whole = Measurement(median_us=1.0)
    assert details["exchange_us"] > APART * details["exchange_near_us"] > 0.0
    timing = ModelTiming(whole_model=whole, before_us=None, after_us=None, sum_of_operators_us=None, details=details)
    assert timing.cores_apart
    near = {"exchange_us": 15.0, "exchange_near_us": 14.0}
    for known in ({}, near):
        timing = ModelTiming(whole_model=whole, before_us=None, after_us=None, sum_of_operators_us=None, details=known)
        assert not timing.cores_apart


@two_cores
def test_later_runs_know_what_is_usual(target: Any, tmp_path: Path) -> None:
    probe = SteadinessProbe(target)
    ThreadPool().use(2)
    first = CoreDistance(probe, DEVICE, 2)
    assert first.near_us is None and not first.apart(1e9) and first.told([]) == {}
    readings = [first.read_us() for _ in range(8)]
    first.keep()
    later = CoreDistance(probe, DEVICE, 2)
    assert later.near_us == pytest.approx(float(np.quantile(readings, 0.25)), abs=0.01)
    assert later.near_us is not None
    assert later.apart(2.1 * later.near_us) and not later.apart(1.9 * later.near_us)
    (kept,) = tmp_path.rglob("*exchange*")
    kept.write_text(json.dumps({"not": "a list"}))
    assert CoreDistance(probe, DEVICE, 2).near_us is None, "a damaged file is none"
    assert CoreDistance(probe, DEVICE, 4).near_us is None, "of another thread count"


@two_cores
def test_a_run_that_waited_long_counts_once(target: Any) -> None:
    """Else its many readings of cores that are apart would soon be what is usual."""
    probe = SteadinessProbe(target)
    ThreadPool().use(2)
    for _ in range(4):
        near = CoreDistance(probe, DEVICE, 2)
        near.read_us()
        near.keep()
    far = Moved(probe, DEVICE, 2, far=set(range(500)))
    for _ in range(500):
        far.read_us()
    assert far.apart(FAR_US)
    far.keep()
    assert CoreDistance(probe, DEVICE, 2).apart(FAR_US)
