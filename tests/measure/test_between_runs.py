"""Times at the machine's usual state, and intervals of what another run finds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from op_profiler.measure.between_runs import History, MachineState, between_runs, waits
from op_profiler.measure.measurement import Device

_HALVES = np.array([0.5, 0.5])
_WINDOWS, _ROUNDS = 20, 5


def device(**properties: object) -> Device:
    return Device(kind="cpu", target="llvm", processor="some", cores=2, properties=properties)


@pytest.fixture
def history(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> History:
    monkeypatch.setenv("OP_PROFILER_CACHE", str(tmp_path))
    return History(device(), 1, (1, 2))


def probe(compute_us: float, memory_us: float, seed: int = 0) -> np.ndarray:
    noise = np.random.default_rng(seed).normal(1.0, 0.01, (_WINDOWS, 2))
    return np.array([compute_us, memory_us]) * noise


def test_the_first_run_of_a_machine_finds_its_usual_state(history: History) -> None:
    state = history.state(probe(100.0, 3000.0))
    assert (state.deviation == 0.0).all() and (state.spread > 0.0).all()


def test_a_slow_state_is_taken_off_and_a_usual_one_is_not(history: History) -> None:
    for seed in range(8):
        history.add(probe(100.0, 3000.0, seed))
    assert np.abs(history.state(probe(100.0, 3000.0, 9)).deviation).max() < 0.01
    slow = history.state(probe(160.0, 3000.0, 10))
    assert slow.deviation[0] == pytest.approx(np.log(1.6), abs=0.05) and abs(slow.deviation[1]) < 0.01
    rounds = np.full(_WINDOWS * _ROUNDS, 160.0)
    steady = between_runs(rounds, [_ROUNDS] * _WINDOWS, slow, np.array([1.0, 0.0])).steady_us
    assert steady == pytest.approx(100.0, rel=0.05)


def test_a_damaged_history_is_none(history: History) -> None:
    history.add(probe(100.0, 3000.0))
    history.path.write_text("[[1.0], 3]")
    assert (history.state(probe(160.0, 3000.0)).deviation == 0.0).all()


def test_the_interval_covers_what_other_runs_find() -> None:
    """Each window lies elsewhere in memory, which makes 3 % of difference; each round differs by 1 %."""
    rng = np.random.default_rng(1)
    state = MachineState(np.zeros(2), np.zeros(2))

    def run() -> np.ndarray:
        places = np.repeat(rng.normal(0.0, 0.03, _WINDOWS), _ROUNDS)
        return np.asarray(100.0 * np.exp(places + rng.normal(0.0, 0.01, _WINDOWS * _ROUNDS)))

    found = [between_runs(run(), [_ROUNDS] * _WINDOWS, state, _HALVES) for _ in range(100)]
    medians = [float(np.median(run())) for _ in range(100)]
    inside = [(one.again_low_us or 0.0) <= other <= (one.again_high_us or 0.0) for one in found for other in medians]
    assert np.mean(inside) >= 0.95


def test_what_the_states_of_the_machine_add() -> None:
    rounds = np.full(_WINDOWS * _ROUNDS, 100.0)
    calm = between_runs(rounds, [_ROUNDS] * _WINDOWS, MachineState(np.zeros(2), np.zeros(2)), _HALVES)
    restless = between_runs(rounds, [_ROUNDS] * _WINDOWS, MachineState(np.zeros(2), np.full(2, 0.1)), _HALVES)
    assert calm.again_high_us == pytest.approx(100.0)
    assert restless.again_high_us == pytest.approx(100.0 * np.exp(1.96 * np.sqrt(0.005)))


def test_a_run_of_few_windows_has_a_time_and_no_interval() -> None:
    found = between_runs(np.full(10, 100.0), [5, 5], MachineState(np.zeros(2), np.zeros(2)), _HALVES)
    assert found.steady_us == 100.0 and found.steady_low_us is None and found.again_high_us is None


def test_rounds_of_which_the_call_left_nothing_have_no_interval() -> None:
    rounds = np.where(np.arange(_WINDOWS * _ROUNDS) < _ROUNDS, 0.0, 0.1)
    found = between_runs(rounds, [_ROUNDS] * _WINDOWS, MachineState(np.zeros(2), np.zeros(2)), _HALVES)
    assert found.steady_us == pytest.approx(0.1) and found.steady_low_us is None and found.again_high_us is None


def test_rounds_of_an_earlier_process_are_a_window() -> None:
    rounds = np.concatenate([np.full(7, 100.0), np.full(15, 101.0)])
    found = between_runs(rounds, [5, 5, 5], MachineState(np.zeros(2), np.zeros(2)), _HALVES)
    assert found.again_low_us is not None


def test_what_an_operator_waits_for() -> None:
    peaks = {"threads": [1, 2], "flops_per_us": [100.0, 200.0], "bytes_per_us": [10.0, 10.0]}
    assert waits(300.0, 10.0, device(peaks=peaks), 1).tolist() == [0.75, 0.25]
    assert waits(600.0, 10.0, device(peaks=peaks), 2).tolist() == [0.75, 0.25]
    assert waits(1.0, 1.0, device(), 1).tolist() == [0.5, 0.5]
    assert waits(0.0, 0.0, device(peaks=peaks), 1).tolist() == [0.5, 0.5]
