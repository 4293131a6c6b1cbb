"""The tally of checked predictions, and the wider intervals that it asks for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from op_profiler.errors import DatasetError
from op_profiler.prediction.latency import checks
from op_profiler.prediction.latency.checks import Check
from op_profiler.prediction.latency.operator_predictor import BOUND, REGRESSED, OperatorPrediction

pytestmark = pytest.mark.usefixtures("own_data_folder")


@pytest.fixture
def own_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))


def _check(key: int, score: float | None, *, predictor: str = "p", threads: int = 1) -> Check:
    return Check(
        run="r",
        date="2026-01-01",
        machine="m",
        processor="CPU",
        threads=threads,
        predictor=predictor,
        kind="operator",
        key=str(key),
        name="dense",
        tier="regressed",
        predicted_us=10.0,
        low_us=5.0,
        high_us=20.0,
        measured_us=12.0,
        score=score,
        verdict="disturbed" if score is None else "held" if score <= 1 else "did not hold",
    )


def test_what_is_added_is_stored_and_counted_without_what_was_disturbed() -> None:
    checks.add([_check(1, 0.5), _check(2, 1.5), _check(3, None)])
    found = checks.stored("m")
    assert found == [_check(1, 0.5), _check(2, 1.5), _check(3, None)] and checks.stored("another") == []
    (one,) = checks.coverage(found)
    assert (one.checked, one.held, one.disturbed) == (2, 1, 1)


def test_a_damaged_tally_is_refused_with_its_path() -> None:
    checks.tally_file().parent.mkdir(parents=True)
    checks.tally_file().write_bytes(b"this is no database" * 100)
    with pytest.raises(DatasetError, match=r"checks\.db cannot be used"):
        checks.stored("m")


@pytest.mark.parametrize("held, count, wider", [(19, 20, False), (10, 20, True), (10, 19, False), (17, 20, False)])
def test_intervals_widen_after_enough_checks_that_hold_significantly_too_seldom(
    held: int, count: int, *, wider: bool
) -> None:
    found = [_check(key, 0.5 if key < held else 2.0) for key in range(count)]
    assert checks.widening(found, "p", 1) == (2.0 if wider else 1.0)


def test_another_version_or_thread_count_and_older_checks_of_an_operator_do_not_widen() -> None:
    bad = [_check(key, 3.0) for key in range(30)]
    assert checks.widening(bad, "p", 1) == 3.0
    assert checks.widening(bad, "q", 1) == checks.widening(bad, "p", 2) == 1.0
    assert checks.widening([*bad, *(_check(key, 0.1) for key in range(30))], "p", 1) == 1.0


def test_a_factor_widens_intervals_and_leaves_lower_bounds() -> None:
    found = OperatorPrediction(
        np.array([10.0, np.nan]),
        np.array([5.0, 3.0]),
        np.array([20.0, np.nan]),
        np.array([REGRESSED, BOUND]),
        np.zeros(2, dtype=bool),
        np.zeros(2, dtype=bool),
    ).widened(2.0)
    np.testing.assert_allclose(found.low_us, [2.5, 3.0])
    np.testing.assert_allclose(found.high_us, [40.0, np.nan])
