"""Measurements are brought to the machine's usual state."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from op_profiler.predict.latency.examples import Examples
from op_profiler.predict.latency.steady_times import steady


def test_a_slow_run_is_told_from_a_slow_operator(known: Examples) -> None:
    slow = known.model == 3
    gauge = np.where(slow[:, None], 130.0, 100.0) * np.ones((len(known), 2))
    measured = dataclasses.replace(
        known, latency_us=known.latency_us * np.where(slow, 1.3, 1.0), gauge_us=gauge,
        whole_model_us=known.whole_model_us * np.where(slow, 1.3, 1.0),
    )  # fmt: skip
    found = steady(measured)
    assert found.latency_us == pytest.approx(known.latency_us)
    assert found.whole_model_us == pytest.approx(known.whole_model_us)


def test_asking_again_changes_nothing(known: Examples) -> None:
    measured = dataclasses.replace(known, gauge_us=np.random.default_rng(0).uniform(90, 110, (len(known), 2)))
    once = steady(measured)
    assert not np.array_equal(once.latency_us, measured.latency_us)
    assert steady(once) is once


def test_gauges_that_read_another_amount_are_not_compared(known: Examples) -> None:
    """Half of the models were measured with a gauge whose memory kernel takes three times as long: none was slow."""
    newer = known.model % 2 == 1
    gauge = np.where(newer[:, None], [[100.0, 300.0]], 100.0)
    sizes = np.where(newer, 600_000_000, 50_331_648)
    measured = dataclasses.replace(known, gauge_us=gauge, gauge_bytes=sizes)
    assert steady(measured).latency_us == pytest.approx(known.latency_us)


def test_runs_without_a_gauge_stay_as_they_are(known: Examples) -> None:
    assert steady(known) is known


def test_a_machine_in_another_state_is_left_out_and_counted(known: Examples) -> None:
    odd = (known.model == 5) & (known.threads == 2)
    gauge = np.where(odd[:, None], 450.0, 100.0) * np.ones((len(known), 2))
    found = steady(dataclasses.replace(known, gauge_us=gauge))
    assert len(found) == (~odd).sum()
    assert found.left_out == {"the machine was in an unusual state": int(odd.sum())}
