"""Measurements are brought to the machine's usual state."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from op_profiler.prediction.latency.examples import Examples
from op_profiler.prediction.latency.steady_times import at_reference_state


def twice(known: Examples) -> Examples:
    """Every model was run a second time."""
    names = ["operator", "threads", "latency_us", "half_width", "steady_us", "device", "occurrences"]
    names += ["traffic_bytes", "working_set_bytes", "reference_us", "reference_bytes", "whole_model_us"]
    doubled: dict[str, Any] = {name: np.concatenate([getattr(known, name)] * 2) for name in names}
    model = np.concatenate([known.model, known.model + len(known.models)])
    return dataclasses.replace(
        known, **doubled, model=model, models=known.models * 2, sampled=np.tile(known.sampled, 2)
    )


@pytest.mark.parametrize("part", [1.0, 0.4])
def test_a_slow_run_is_told_from_a_slow_operator(known: Examples, part: float) -> None:
    """All second runs were slower, by a part of what the probe says: repeated operators tell how large that is."""
    measured = twice(known)
    second = measured.model >= len(known.models)
    slower = np.where(second, 1.08**part, 1.0)
    gauge = np.where(second[:, None], 108.0, 100.0) * np.ones((len(measured), 2))
    found = at_reference_state(
        dataclasses.replace(
            measured,
            latency_us=measured.latency_us * slower,
            whole_model_us=measured.whole_model_us * slower,
            reference_us=gauge,
        )
    )
    assert len(found) == len(measured)
    assert found.latency_us[second] == pytest.approx(found.latency_us[~second])
    assert found.whole_model_us[second] == pytest.approx(found.whole_model_us[~second])


@pytest.mark.parametrize("part", [1.0, 0.4])
def test_rounds_that_neighbours_disturbed_are_told_by_the_quiet_ones(known: Examples, part: float) -> None:
    """Medians of the second runs lie far above their quiet rounds, and are too slow by a part of that."""
    measured = twice(known)
    second = measured.model >= len(known.models)
    disturbed = np.where(second, 1.08, 1.0)
    latency_us = measured.latency_us * disturbed**part
    found = at_reference_state(
        dataclasses.replace(measured, latency_us=latency_us, steady_us=0.9 * latency_us / disturbed)
    )
    assert found.latency_us[second] == pytest.approx(found.latency_us[~second])
    assert np.isnan(found.steady_us).all()


def test_where_little_was_repeated_half_of_what_the_probe_says_counts(known: Examples) -> None:
    slow = known.model == 3
    gauge = np.where(slow[:, None], 108.0, 100.0) * np.ones((len(known), 2))
    found = at_reference_state(dataclasses.replace(known, reference_us=gauge))
    assert found.latency_us == pytest.approx(known.latency_us / np.where(slow, 1.08**0.5, 1.0))


def test_what_stays_in_a_cache_waits_for_no_memory_and_has_quick_rounds_at_any_time(known: Examples) -> None:
    """Memory was slow during the runs of one model, and the quiet tenth of its rounds is far below their median."""
    mine = known.model == 3
    gauge = np.where(mine[:, None], [[100.0, 130.0]], 100.0) * np.ones((len(known), 2))
    quiet = known.latency_us * np.where(mine, 0.7, 0.9)
    measured = dataclasses.replace(known, reference_us=gauge, steady_us=quiet)
    small, large = (
        at_reference_state(dataclasses.replace(measured, working_set_bytes=np.where(mine, size, 1e8)))
        for size in (5e5, 1e8)
    )
    assert small.latency_us[mine] == pytest.approx(known.latency_us[mine])
    assert (large.latency_us[mine] < 0.95 * known.latency_us[mine]).all()


def test_a_correction_is_limited(known: Examples) -> None:
    slow = known.model == 3
    gauge = np.where(slow[:, None], 139.0, 100.0) * np.ones((len(known), 2))
    found = at_reference_state(dataclasses.replace(known, reference_us=gauge))
    assert found.latency_us == pytest.approx(known.latency_us / np.where(slow, np.exp(0.1), 1.0))


def test_asking_again_changes_nothing(known: Examples) -> None:
    measured = dataclasses.replace(known, reference_us=np.random.default_rng(0).uniform(90, 110, (len(known), 2)))
    once = at_reference_state(measured)
    assert not np.array_equal(once.latency_us, measured.latency_us)
    assert at_reference_state(once) is once


def test_gauges_that_read_another_amount_are_not_compared(known: Examples) -> None:
    """Half of the models were measured with a gauge whose memory kernel takes three times as long: none was slow."""
    newer = known.model % 2 == 1
    gauge = np.where(newer[:, None], [[100.0, 300.0]], 100.0)
    sizes = np.where(newer, 600_000_000, 50_331_648)
    measured = dataclasses.replace(known, reference_us=gauge, reference_bytes=sizes)
    assert at_reference_state(measured).latency_us == pytest.approx(known.latency_us)


def test_runs_without_a_gauge_stay_as_they_are(known: Examples) -> None:
    assert at_reference_state(known) is known


def test_a_machine_in_another_state_is_left_out_and_counted(known: Examples) -> None:
    odd = (known.model == 5) & (known.threads == 2)
    gauge = np.where(odd[:, None], 450.0, 100.0) * np.ones((len(known), 2))
    found = at_reference_state(dataclasses.replace(known, reference_us=gauge))
    assert len(found) == (~odd).sum()
    assert found.left_out == {"the machine was not in its reference state": int(odd.sum())}
