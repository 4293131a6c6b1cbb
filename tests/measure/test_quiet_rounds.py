"""Rounds tell that they were disturbed: synthetic rounds, through the real rounds and results."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from op_profiler.building.request import BuildRequest
from op_profiler.collection.request import CollectRequest, Measuring
from op_profiler.collection.resume import to_repeat
from op_profiler.collection.session import Session, ThreadResult
from op_profiler.cores import available_cores
from op_profiler.frontends.frontend import ModelRequest
from op_profiler.measure.disturbance import CORES_SLOW, UNSTEADY, spoils
from op_profiler.measure.host_state import HostState
from op_profiler.measure.limits import Limits
from op_profiler.measure.measurement import Device
from op_profiler.measure.quiet_rounds import quiet_means, quiet_rounds, scatter
from op_profiler.measure.samples import Samples

ROOT = Path(__file__).resolve().parents[2]
QUIET_US = 10_000.0
_SLOW = 4.0
_NOISE = 0.01


def of_factors(factors: np.ndarray) -> Samples:
    """Rounds of two kernels that take a third and two thirds of the whole model."""
    noise = np.exp(np.random.default_rng(0).normal(0.0, _NOISE, (2, len(factors))))
    whole_us, sums_us = QUIET_US * factors * noise
    kernels_us = [[us / 3, 2 * us / 3] for us in sums_us]
    return Samples(whole_us.tolist(), kernels_us, [False] * len(factors))


def modes(share: float, *, rounds: int = 200, length: int = 5) -> np.ndarray:
    """A second mode, in phases of some rounds, that `share` of the rounds are not in."""
    slow = np.random.default_rng(1).random(rounds // length) >= share
    return np.repeat(np.where(slow, _SLOW, 1.0), length)


def found_in(samples: Samples) -> tuple[bool, float, float]:
    """Whether they are steady, the share that is quiet, and how far the median of the used rounds is off."""
    quiet = quiet_rounds(samples, noise=0.0, target=Limits().target)
    return quiet.is_steady, quiet.share, abs(float(np.median(np.array(samples.whole_us)[quiet.used])) / QUIET_US - 1)


@pytest.mark.parametrize(("slow", "steady"), [(0, True), (3, True), (10, False)])
def test_means_of_a_kernel_in_two_modes(slow: int, steady: bool) -> None:
    means = 50.0 * np.exp(np.random.default_rng(0).normal(0.0, _NOISE, 21))
    means[:slow] *= _SLOW
    found = quiet_means(means, target=Limits.target)
    assert (found.is_steady, found.used.sum()) == (steady, 21 - slow)
    assert quiet_means(np.array([50.0, 900.0, 50.0]), target=Limits.target).used.all(), "few are all quiet"


@pytest.mark.parametrize("rounds", [11, 20, 60, 300])
def test_quiet_rounds_are_steady(rounds: int) -> None:
    steady, share, off = found_in(of_factors(np.ones(rounds)))
    assert steady and share > 0.9 and off < 0.01


@pytest.mark.parametrize("share", [0.7, 0.5, 0.35])
def test_of_two_modes_the_quiet_one_is_told_with_its_share(share: float) -> None:
    factors = modes(share)
    steady, found, off = found_in(of_factors(factors))
    assert not steady and off < 0.01 and found == pytest.approx(np.mean(factors == 1.0), abs=0.06)


def test_a_burst_leaves_the_rounds_steady() -> None:
    factors = np.ones(200)
    factors[60:80] = 3.0
    steady, share, off = found_in(of_factors(factors))
    assert steady and share == pytest.approx(0.9, abs=0.03) and off < 0.01


@pytest.mark.parametrize("factors", [np.linspace(1.0, 1.6, 200), np.random.default_rng(2).lognormal(0.0, 0.6, 200)])
def test_rounds_that_drift_or_lie_anywhere_are_unsteady(factors: np.ndarray) -> None:
    assert not found_in(of_factors(factors))[0]


def test_only_rounds_in_which_whole_and_kernels_were_quiet_are_used() -> None:
    samples = of_factors(np.ones(60))
    samples.whole_us[:6] = [5 * QUIET_US] * 6
    samples.kernels_us[6:12] = [[QUIET_US, QUIET_US]] * 6
    quiet = quiet_rounds(samples, noise=0.0, target=0.01)
    assert not quiet.used[:12].any() and quiet.share == pytest.approx(0.8, abs=0.05)


def of_microseconds(factors: np.ndarray, seed: int = 6) -> Samples:
    """Rounds of a model of 4 us, which takes a fifth more or less each time, as that of a real one does."""
    noise = np.exp(np.random.default_rng(seed).normal(0.0, 0.2, (2, len(factors))))
    whole_us, sums_us = 4.0 * factors * noise
    return Samples(whole_us.tolist(), [[us / 3, 2 * us / 3] for us in sums_us], [False] * len(factors))


def test_a_model_of_microseconds_is_not_unsteady_because_its_runs_differ() -> None:
    series = [of_microseconds(np.ones(1000), seed) for seed in range(30)]
    usual = 0.04  # scatter of the reference kernel where such a model was measured
    steady = [quiet_rounds(samples, noise=usual, target=0.01).is_steady for samples in series]
    assert sum(steady) >= 0.9 * len(steady)  # one in forty is measured again


def test_a_disturbance_of_many_short_rounds_is_seen() -> None:
    factors = np.repeat([1.0, 1.5], 500)
    quiet = quiet_rounds(of_microseconds(factors), noise=0.0, target=0.01)
    assert not quiet.is_steady and quiet.share == pytest.approx(0.5, abs=0.15) and not quiet.used[560:].any()


def test_too_few_rounds_tell_nothing() -> None:
    quiet = quiet_rounds(of_factors(np.array([1.0, 4.0, 1.0, 4.0])), noise=0.0, target=0.01)
    assert quiet.is_steady and quiet.used.all() and scatter(np.zeros(5)) is None


def test_what_lies_within_the_noise_of_this_machine_is_quiet() -> None:
    """A level 3 % higher for a third of the rounds: another state where the machine is silent, none where it is not."""
    samples = of_factors(np.where(np.arange(200) < 66, 1.03, 1.0))
    samples.whole_us = (QUIET_US * np.where(np.arange(200) < 66, 1.03, 1.0)).tolist()
    samples.kernels_us = [[us] for us in samples.whole_us]
    shares = [quiet_rounds(samples, noise=noise, target=0.01).share for noise in (0.0, 0.02)]
    assert shares[0] < 0.7 and shares[1] == 1.0


@pytest.mark.parametrize("rounds", [8, 20, 100, 500])
def test_the_scatter_is_the_deviation_of_the_quiet_mode(rounds: int) -> None:
    rng = np.random.default_rng(3)
    found = [scatter(rng.normal(0.0, 0.02, rounds)) for _ in range(50)]
    assert np.median([one for one in found if one is not None]) == pytest.approx(0.02, rel=0.25)


def test_later_runs_know_the_noise_of_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OP_PROFILER_CACHE", str(tmp_path))
    device = Device(kind="cpu", target="llvm", processor="some", cores=2)
    probe: Any = SimpleNamespace(sizes_bytes=(1, 2), exchanged_bytes=3)
    first = HostState(probe, device, (2,))
    assert first.noise(2) == 0.0
    for time_us in 100.0 * np.exp(np.random.default_rng(4).normal(0.0, 0.03, 40)):
        first.add({2: float(time_us)})
    first.keep()
    assert HostState(probe, device, (2,)).noise(2) == pytest.approx(0.03, rel=0.4)


class Synthetic:
    """A loaded model of two kernels, its machine and its threads, whose runs take `factor()` times as long."""

    labels = ("a", "b")
    device = Device(kind="cpu", target="llvm", processor="some", cores=2)

    def __init__(self, factors: Iterator[float]) -> None:
        self._factors, self._factor, self._noise = factors, 1.0, np.random.default_rng(5)
        self.threads = self

    def _us(self) -> float:
        return float(QUIET_US * self._factor * np.exp(self._noise.normal(0.0, _NOISE)))

    def run_model(self) -> None:
        self._factor = next(self._factors)

    def move_stack(self) -> None:
        self._factor = next(self._factors)

    def time_model(self) -> float:
        return self._us()

    def walk(self, *_: Any) -> list[float]:
        us = self._us()
        return [us / 3, 2 * us / 3]

    def moved(self) -> Synthetic:
        return self

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """What the machine does not tell."""
        return lambda *_: None if name != "effective_core_set" else ()


def measured(factors: Iterator[float], **limits: Any) -> ThreadResult:
    """A session of at most 200 rounds, in windows of 20."""
    synthetic: Any = Synthetic(factors)
    operators: Any = [SimpleNamespace(key=key, flops=1, bytes_read=1, bytes_written=1) for key in synthetic.labels]
    build = BuildRequest(model=ModelRequest(source="test", name="synthetic"), threads=(2,))
    request = CollectRequest(build=build, measuring=Measuring(energy="none"))
    few: dict[str, Any] = {"window_seconds": 0.005, "usual_seconds": 0.02, "maximum_seconds": 0.1}
    session = Session(request, synthetic, synthetic, operators, limits=Limits(**few | limits))
    (result,) = session.measure({2: Samples()}, lambda *_: None)
    return result


def endless(share: float) -> Iterator[float]:
    return itertools.cycle(modes(share, rounds=5000).tolist())


def test_rounds_of_two_modes_are_marked_and_their_three_numbers_follow() -> None:
    result = measured(endless(0.5), repeat_seconds=0.0)
    timing, whole = result.timing, result.timing.whole_model
    assert timing.disturbed_by == whole.disturbed_by == UNSTEADY and spoils(whole.disturbed_by)
    assert whole.median_us == pytest.approx(QUIET_US, rel=0.02) and 0.3 < (whole.quiet_share or 0.0) < 0.7
    assert timing.sum_of_operators_us is not None and whole.median_us is not None
    assert timing.ratio == pytest.approx(timing.sum_of_operators_us / whole.median_us)
    assert timing.ratio == pytest.approx(timing.details["ratio_per_round"], abs=0.01)
    for one in result.operators:
        assert one.measurement.disturbed_by == UNSTEADY and one.measurement.quiet_share == whole.quiet_share
        assert to_repeat(one.measurement, "noisy")
    assert sum(one.measurement.median_us or 0.0 for one in result.operators) == pytest.approx(QUIET_US, rel=0.02)


def test_a_disturbance_that_ends_is_measured_again_and_not_marked() -> None:
    result = measured(itertools.chain([1.0] * 20, [_SLOW] * 400, itertools.repeat(1.0)), repeat_seconds=20.0)
    whole = result.timing.whole_model
    assert whole.disturbed_by is None and whole.median_us == pytest.approx(QUIET_US, rel=0.02)
    assert (whole.quiet_share or 0.0) >= 0.75 and whole.discarded_rounds


def test_rounds_that_were_all_slow_are_marked_by_the_readings_around_them() -> None:
    """The disturbance lasted as long as the rounds did."""
    reading = [1.0] * (Limits().readings + 1)
    result = measured(itertools.chain(reading, itertools.repeat(_SLOW)), repeat_seconds=0.0)
    assert result.timing.before_us == pytest.approx(QUIET_US, rel=0.05)
    assert result.timing.disturbed_by == UNSTEADY


def test_a_quiet_run_is_not_marked() -> None:
    whole = measured(itertools.repeat(1.0), repeat_seconds=0.0).timing.whole_model
    assert whole.disturbed_by is None and (whole.quiet_share or 0.0) > 0.9 and whole.settled


@pytest.mark.parametrize(
    ("reasons", "spoilt"), [(None, False), (CORES_SLOW, False), (UNSTEADY, True), (f"{CORES_SLOW}; {UNSTEADY}", True)]
)
def test_slow_cores_alone_spoil_nothing(reasons: str | None, spoilt: bool) -> None:
    assert spoils(reasons) == spoilt


@pytest.mark.slow
@pytest.mark.skipif(len(available_cores()) < 2, reason="two threads")
@pytest.mark.parametrize("how", ["metered", "rounds-alone"])
def test_no_unmarked_time_is_far_off_beside_a_process_that_spins(how: str) -> None:
    """Four collections; more of them: `benchmarks/disturbed_times.py`."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "disturbed_times.py"), "--one", f"{how}-0"],
        env={**os.environ, "PYTHONPATH": str(ROOT / "python")},
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
    )
    found = json.loads(done.stdout.splitlines()[-1])["collections"]
    assert len(found) == 4
    if found[0]["quiet_marked"] or found[0]["quiet_moved_percent"] > 5.0:
        pytest.skip("the machine was not quiet without the process either")
    assert [one for one in found if not one["marked"] and abs(one["off_percent"]) > 5.0] == []
