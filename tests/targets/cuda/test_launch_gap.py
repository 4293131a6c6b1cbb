"""What a GPU waits for launches, beside the time of the whole model, on a GPU whose times are known."""

from __future__ import annotations

import pytest

from op_profiler.measure.measurement import LAUNCH_GAP_METHOD, Measurement, ModelTiming

from .simulated_gpu import SimulatedGpu, SimulatedModel, loaded

LAUNCH_BOUND = [1.0] * 40, [4.0] * 40
COMPUTE_BOUND = [50.0] * 40, [4.0] * 40


def added_over_whole(
    monkeypatch: pytest.MonkeyPatch, kernels_us: list[float], launches_us: list[float], launch_factor: float
) -> float:
    gpu = SimulatedGpu()
    monkeypatch.setattr("time.perf_counter_ns", lambda: int(gpu.host_us * 1e3))
    model = loaded(gpu, SimulatedModel(gpu, kernels_us, launches_us, launch_factor))
    model.run_model()
    whole_us = model.time_model()
    gap_us = model.launch_gap_us()
    assert gap_us is not None
    return (sum(kernels_us) + gap_us) / whole_us


@pytest.mark.parametrize("times", [LAUNCH_BOUND, COMPUTE_BOUND])
def test_operators_and_gaps_add_up_where_launches_are_read_right(
    times: tuple[list[float], list[float]], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert added_over_whole(monkeypatch, *times, launch_factor=1.0) == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize("factor", [0.1, 0.5, 2.0, 20.0])
def test_launches_that_are_read_wrong_do_not_add_up(factor: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scaled to the host's time of the runs as a whole they did, whatever the factor."""
    wrong = added_over_whole(monkeypatch, *LAUNCH_BOUND, launch_factor=factor)
    assert abs(wrong - 1) > 0.3
    assert wrong == pytest.approx(max(factor, 0.5), rel=0.1)  # at a tenth the GPU's own turns and kernels are longer


def timing(**details: object) -> ModelTiming:
    whole = Measurement(median_us=100.0)
    return ModelTiming(whole_model=whole, before_us=None, after_us=None, sum_of_operators_us=60.0, details=details)


def test_gaps_that_were_scaled_to_the_whole_are_no_ratio() -> None:
    """Of an earlier version: the quotient is 1 by construction where launches take the time."""
    scaled = timing(launch_gap_us=40.0)
    assert scaled.ratio is None and "computed the waits for launches in another way" in (scaled.not_a_pair or "")
    assert timing(launch_gap_us=40.0, launch_gap_method=LAUNCH_GAP_METHOD).ratio == pytest.approx(1.0)
