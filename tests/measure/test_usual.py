"""What a kernel usually takes: of the runs of a machine, each of which counts once."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from op_profiler.measure.host_state import ReferenceTime
from op_profiler.measure.measurement import Device

DEVICE = Device(kind="cpu", target="llvm", processor="some", cores=2)


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OP_PROFILER_CACHE", str(tmp_path))


def run(*times_us: float) -> ReferenceTime:
    """One that read so, and left it to later ones."""
    usual = ReferenceTime(DEVICE, 2, "compute", 1024)
    for time_us in times_us:
        usual.add(time_us)
    usual.keep()
    return usual


def test_later_runs_know_what_is_usual(tmp_path: Path) -> None:
    first = ReferenceTime(DEVICE, 2, "compute", 1024)
    assert first.reference_us is None and not first.exceeded(1e9, 1.1)
    first.keep()
    assert not any(tmp_path.rglob("*.json")), "nothing was read"
    times_us = [10.0, 11.0, 12.0, 30.0]
    run(*times_us)
    later = ReferenceTime(DEVICE, 2, "compute", 1024)
    assert later.reference_us == pytest.approx(float(np.quantile(times_us, 0.25)))
    assert later.reference_us is not None
    assert later.exceeded(1.11 * later.reference_us, 1.1) and not later.exceeded(1.09 * later.reference_us, 1.1)
    for other in ((1, "compute", 1024), (2, "exchange", 1024), (2, "compute", 2048)):
        assert ReferenceTime(DEVICE, *other).reference_us is None
    (kept,) = tmp_path.rglob("*.json")
    kept.write_text(json.dumps({"not": "a list"}))
    assert ReferenceTime(DEVICE, 2, "compute", 1024).reference_us is None, "a damaged file is none"


def test_a_run_that_waited_long_counts_once() -> None:
    """Else its many readings of a disturbed machine would soon be what is usual."""
    for _ in range(4):
        run(10.0)
    run(*[100.0] * 500)
    assert ReferenceTime(DEVICE, 2, "compute", 1024).reference_us == pytest.approx(10.0)


def test_most_runs_may_be_disturbed() -> None:
    for time_us in (10.0, 10.1, 15.0, 16.0, 17.0, 18.0):
        run(time_us)
    assert ReferenceTime(DEVICE, 2, "compute", 1024).exceeded(15.0, 1.1)
