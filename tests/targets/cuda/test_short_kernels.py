"""What short kernels' times hold beside the kernels, on a GPU whose times are known."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from op_profiler.errors import MeasureError
from op_profiler.measure.failures import cause_of
from op_profiler.measure.measurement import Measurement
from op_profiler.measure.statistics import widened
from op_profiler.targets.cuda.alone import alone_us
from op_profiler.targets.cuda.events import HeldStream
from op_profiler.targets.cuda.launch_cost import LaunchCost, launch_cost

from .simulated_gpu import SimulatedGpu, SimulatedModel, SimulatedSpin, loaded


def cost_of(gpu: SimulatedGpu, **spin: float) -> LaunchCost:
    events: Any = gpu
    found: Any = SimulatedSpin(gpu, **spin)
    return launch_cost(found, events)


@pytest.mark.parametrize("edges_us", [0.0, 0.4, 1.0, 3.0])
@pytest.mark.parametrize("turn_us", [0.0, 0.5, 1.0])
def test_kernels_are_as_long_as_they_are_within_the_uncertainty(edges_us: float, turn_us: float) -> None:
    """The edges of an H100's kernels, 0.93 us, were added on every GPU."""
    gpu = SimulatedGpu(turn_us=turn_us)
    cost = cost_of(gpu, edges_us=edges_us)
    assert cost.edges_us + cost.turn_us == pytest.approx(edges_us + turn_us, abs=0.02)
    held_us = HeldStream(gpu).once([SimulatedModel(gpu, [3.0], [2.0]).kernels[0].run])  # type: ignore[arg-type]
    assert held_us is not None
    in_model_us = held_us[0] - cost.event_us
    assert abs(in_model_us - 3.0) <= cost.uncertain_us
    if edges_us == turn_us:
        assert in_model_us == pytest.approx(3.0, abs=0.02)


@pytest.mark.parametrize("step_us", [0.032, 1.0, 1.024])
def test_the_step_of_the_timer_does_not_show_in_means(step_us: float) -> None:
    """The step is 1 us before Hopper: of a single spin of 4.03 us such a timer reads 4 or 5."""
    gpu = SimulatedGpu()
    fine, coarse = cost_of(gpu, timer_step_us=1e-6), cost_of(gpu, timer_step_us=step_us)
    assert coarse.timer_step_us == step_us
    assert abs(coarse.event_us - fine.event_us) <= coarse.uncertain_us - coarse.edges_us


class InterruptedSpin(SimulatedSpin):
    """Another process has the GPU for 2 ms during one launch of all."""

    launched = 0

    def launch(self) -> bool:
        self.launched += 1
        self._instructions_us += 2000.0 * (self.launched == 300)
        super().launch()
        self._instructions_us -= 2000.0 * (self.launched == 300)
        return True


def test_an_interruption_of_one_launch_does_not_show() -> None:
    gpu: Any = SimulatedGpu()
    spin: Any = InterruptedSpin(gpu)
    assert launch_cost(spin, gpu).event_us == pytest.approx(cost_of(SimulatedGpu()).event_us, abs=0.02)
    assert spin.launched > 300


@pytest.mark.parametrize("cache", ["hot", "cold"])
def test_a_kernel_alone_is_launched_ahead_of_the_gpu(cache: Literal["hot", "cold"]) -> None:
    """A launch here takes the host longer than the GPU is busy before it."""
    gpu = SimulatedGpu(event_us=0.7, turn_us=1.0)
    model = loaded(gpu, SimulatedModel(gpu, [3.0], [5000.0]))
    assert model.walk(cache, [True]) == [pytest.approx(3.0 + 1.0 + 0.7)]


def test_a_host_that_never_gets_ahead_is_a_failure_of_the_machine() -> None:
    gpu: Any = SimulatedGpu()
    flush: Any = SimulatedModel(gpu, [1.0], [1.0]).kernels[0]
    gpu.passed = lambda _: True
    with pytest.raises(MeasureError, match="the host is too busy") as raised:
        alone_us(HeldStream(gpu), flush, SimulatedModel(gpu, [1.0], [1.0]).kernels[0].run, "cold")
    assert cause_of(str(raised.value)) == "machine"


def test_what_repeating_does_not_show_widens_the_interval() -> None:
    found = widened(Measurement(median_us=1.5, ci_low_us=1.4, ci_high_us=1.6), 0.9)
    assert found.ci_low_us == pytest.approx(0.5) and found.ci_high_us == pytest.approx(2.5)
    assert widened(found, 5.0).ci_low_us == 0.0
    assert widened(Measurement(median_us=1.5), 0.9).ci_low_us is None
