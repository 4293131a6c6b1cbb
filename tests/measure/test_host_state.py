"""How far apart and how fast the cores are: read from real kernels, and what rounds do when that is not as usual."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from op_profiler.compilers.relay.graph_executor import load_graph
from op_profiler.cores import available_cores
from op_profiler.measure.disturbance import APART, SHARED, disturbed_by
from op_profiler.measure.host_state import HostState
from op_profiler.measure.limits import Limits
from op_profiler.measure.measurement import Device, Measurement, ModelTiming
from op_profiler.measure.rounds import Rounds
from op_profiler.measure.samples import Samples
from op_profiler.measure.threads import ThreadPool
from op_profiler.targets.llvm.reference_kernels import ReferenceKernels

DEVICE = Device(kind="cpu", target="llvm", processor="some", cores=2)
FAR_US = 1e5
two_cores = pytest.mark.skipif(len(available_cores()) < 2, reason="one core exchanges with none")


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OP_PROFILER_CACHE", str(tmp_path))


class Disturbed(HostState):
    """Readings of the real kernels, as if the host had moved the cores apart before some of those between cores, and
    let others use them during some windows."""

    def __init__(self, *arguments: Any, far: set[int], slow: set[int]) -> None:
        super().__init__(*arguments)
        self.far, self.slow, self.readings, self.windows = far, slow, 0, 0

    def exchanged_us(self) -> list[float]:
        self.readings += 1
        if self.readings - 1 not in self.far:
            return super().exchanged_us()
        self._exchanging.add(FAR_US)
        return [FAR_US]

    def disturbs(self, computed_us: Mapping[int, float], exchanged_us: Sequence[float]) -> bool:
        self.windows += 1
        factor = 2.0 if self.windows - 1 in self.slow else 1.0
        usual_us = {threads: float(self._computing[threads].reference_us or 0.0) for threads in computed_us}
        return super().disturbs({threads: factor * time_us for threads, time_us in usual_us.items()}, exchanged_us)


def timed(
    target: Any, tvm: Any, compiled: Any, *, far: Sequence[int] = (), slow: Sequence[int] = (), **limits: Any
) -> tuple[Samples, Any, Disturbed]:
    model = load_graph(compiled, tvm.cpu(), {"data": np.zeros((1, 16, 32, 32), "float32")})
    probe = ReferenceKernels(target)
    host = Disturbed(probe, DEVICE, (2,), far=set(far), slow=set(slow))
    for _ in range(20):
        HostState.exchanged_us(host)
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
        probe=probe,
        host=host,
    )
    return samples[2], rounds.run(samples, lambda share: None), host


@two_cores
def test_the_kernel_takes_time_and_moves_data(target: Any) -> None:
    probe = ReferenceKernels(target)
    one, other = probe._to_and_fro
    ThreadPool().use(2)
    values = one.arrays[0].numpy()
    assert one.run() and (one.arrays[1].numpy() == values.swapaxes(0, 1)).all()
    assert other.arrays[0] is one.arrays[1] and probe.exchanged_us() > 0.0


@two_cores
def test_a_window_in_which_the_cores_move_apart_is_repeated(target: Any, tvm: Any, compiled_small: Any) -> None:
    """Apart before the first window's rounds, and again after the second's."""
    samples, _, host = timed(target, tvm, compiled_small, far=(0, 3), repeat_seconds=5.0)
    assert samples.discarded > 0 and host.readings >= 6
    assert len(samples.exchange_us) >= 1
    assert not any(samples.foreign), "nobody else used the machine"
    assert max(samples.exchange_us) < FAR_US, "what was thrown away is not told of either"


@two_cores
def test_a_window_in_which_the_cores_are_slow_is_repeated(target: Any, tvm: Any, compiled_small: Any) -> None:
    """The first window: on a busy machine one alone can be as long as the rounds may take."""
    samples, _, host = timed(target, tvm, compiled_small, slow=(0,), repeat_seconds=5.0)
    assert samples.discarded > 0 and host.windows >= 2
    usual_us = host.stored_times(2, [])["compute_usual_us"]
    assert HostState.disturbs(host, {2: SHARED * usual_us + 1.0}, [])
    assert not HostState.disturbs(host, {2: usual_us}, [])


@two_cores
def test_cores_that_stay_apart_are_accepted_in_the_end_and_told(target: Any, tvm: Any, compiled_small: Any) -> None:
    samples, _, host = timed(target, tvm, compiled_small, far=range(6), repeat_seconds=0.0)
    details = host.stored_times(2, samples.exchange_us[:1])
    assert details["exchange_us"] > APART * details["exchange_near_us"] > 0.0
    assert disturbed_by(details) == "cores further apart than usual"


@pytest.mark.parametrize(
    ("details", "by"),
    [
        ({}, None),
        (
            {"exchange_us": 15.0, "exchange_near_us": 14.0, "gauge_us": {"compute": 109.0}, "compute_usual_us": 100.0},
            None,
        ),
        ({"gauge_us": {"compute": 111.0}}, None),
        ({"gauge_us": {"compute": 111.0}, "compute_usual_us": 100.0}, "cores slower than usual"),
        ({"exchange_us": 29.0, "exchange_near_us": 14.0}, "cores further apart than usual"),
    ],
)
def test_what_disturbed_a_run_is_told_by_its_details(details: dict[str, Any], by: str | None) -> None:
    whole = Measurement(median_us=1.0)
    timing = ModelTiming(whole_model=whole, before_us=None, after_us=None, sum_of_operators_us=None, details=details)
    assert timing.disturbed_by == by


@two_cores
def test_later_runs_know_what_is_usual(target: Any) -> None:
    probe = ReferenceKernels(target)
    ThreadPool().use(2)
    first = HostState(probe, DEVICE, (1, 2))
    assert first.stored_times(2, []) == {} and not first.disturbs({1: 1e9, 2: 1e9}, [])
    first.add({1: 100.0, 2: 50.0})
    (exchanged_us,) = first.exchanged_us()
    first.keep()
    later = HostState(probe, DEVICE, (1, 2))
    assert later.stored_times(1, []) == {"compute_usual_us": 100.0}
    assert later.stored_times(2, [exchanged_us])["exchange_near_us"] == pytest.approx(exchanged_us, abs=0.01)
    assert later.disturbs({1: 100.0, 2: 56.0}, []) and not later.disturbs({1: 100.0, 2: 54.0}, [exchanged_us])


def test_one_thread_exchanges_nothing(target: Any) -> None:
    host = HostState(ReferenceKernels(target), DEVICE, (1,))
    assert host.exchanged_us() == [] and not host.disturbs({}, [])
    host.keep()
