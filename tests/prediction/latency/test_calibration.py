"""Who answers after a calibration."""

from __future__ import annotations

import dataclasses
import itertools
import json
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from op_profiler.cli import application
from op_profiler.collection.sampling import calibrate as measuring
from op_profiler.errors import OpProfilerError
from op_profiler.prediction.latency import calibration, open_predictor
from op_profiler.prediction.latency import fit as fitting
from op_profiler.prediction.latency.examples import Examples
from op_profiler.prediction.latency.operator_predictor import MeasuredTimes, OperatorPredictor, query_of
from op_profiler.prediction.latency.traffic import NAMES as LOOP_NAMES


@pytest.fixture
def calibrated_here(known: Examples) -> Examples:
    """Measurements whose loops are known, on a processor that does not ship."""
    loops = np.random.default_rng(3).uniform(0, 12, (len(known.operators), len(LOOP_NAMES))).astype(np.float32)
    device = dataclasses.replace(known.devices[0], key="fedcba9876543210", processor="a processor that nobody has")
    return dataclasses.replace(known, loops=loops, devices=[device])


def test_an_unknown_processor_learns_with_what_ships(
    calibrated_here: Examples, predictor: OperatorPredictor, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = dataclasses.replace(calibrated_here, latency_us=1.7 * calibrated_here.latency_us)
    taught: list[object] = []
    fit = fitting.fit

    def noted(examples: Examples, **options: object) -> OperatorPredictor:
        taught.append(options["others"])
        return fit(examples, folds=2, others=[there])

    monkeypatch.setattr(calibration, "fit", noted)
    monkeypatch.setattr(calibration, "shipped_examples", lambda note: [there])
    monkeypatch.setattr(calibration, "digest_of_what_ships", lambda: "0123")
    said: list[str] = []
    found = calibration._learned(lambda: predictor, calibrated_here, said.append)
    again = calibration._learned(lambda: predictor, calibrated_here, said.append)
    assert taught == [[there]], "fitted once, then kept"
    assert found.device == again.device == calibrated_here.devices[0]
    assert found.base.kernels is not None
    assert found.base.correction is not None and found.base.correction.plain is None, "what was held out corrects it"
    query = query_of(calibrated_here)
    kept, made = (one.base.regressed(one.method, one.models, query) for one in (again, found))
    assert np.array_equal(kept, made)
    assert said[-1].startswith("fitted to") and "other processors" in said[-1]


def test_without_known_loops_the_predictor_that_ships_is_adapted(known: Examples, predictor: OperatorPredictor) -> None:
    said: list[str] = []
    device = dataclasses.replace(known.devices[0], key="fedcba9876543210")
    found = calibration._learned(lambda: predictor, dataclasses.replace(known, devices=[device]), said.append)
    assert found.base.correction is not None
    assert said[-1].startswith("adapted to")


@pytest.mark.parametrize("same", [True, False])
def test_what_ships_of_the_same_processor_is_looked_up_still(
    known: Examples, predictor: OperatorPredictor, same: bool
) -> None:
    """What was measured here comes first."""
    processor = known.devices[0].processor if same else "another one"
    device = dataclasses.replace(known.devices[0], key="fedcba9876543210", processor=processor)
    few = dataclasses.replace(known.where(known.operator < 20), devices=[device])
    slower = dataclasses.replace(few, latency_us=3.0 * few.latency_us)
    found = calibration._learned(lambda: predictor, slower, lambda text: None)
    here = MeasuredTimes.mixed(query_of(few))
    assert np.isin(here, found.measured.keys).all()
    assert set(found.measured.keys) == set(predictor.measured.keys if same else here)
    for table, factor in ((found.measured, 3.0), (predictor.measured, 1.0)):
        at = np.searchsorted(table.keys, here)
        assert np.median(table.latency_us[at] / few.latency_us) == pytest.approx(factor, rel=0.05)
    assert (found.measured.keys[1:] > found.measured.keys[:-1]).all()


def test_another_predictor_of_the_same_rows_is_adapted_anew(known: Examples, predictor: OperatorPredictor) -> None:
    """It may have other laws or trees, of a newer version."""
    device = dataclasses.replace(known.devices[0], key="fedcba9876543210")
    examples = dataclasses.replace(known, devices=[device])
    roofline = dataclasses.replace(predictor.roofline, call_us=predictor.roofline.call_us + 100.0)
    slower = dataclasses.replace(predictor, base=dataclasses.replace(predictor.base, roofline=roofline))
    assert slower.fingerprint == predictor.fingerprint
    for known_before in (predictor, slower):
        found = calibration._learned(itertools.repeat(known_before).__next__, examples, lambda text: None)
        assert np.array_equal(found.roofline.call_us, known_before.roofline.call_us)


def test_what_ships_of_all_processors_teaches() -> None:
    found = open_predictor.shipped_examples()
    assert len(found) > 1 and len({one.devices[0].processor for one in found}) == len(found)
    assert all(one.loops is not None and np.isfinite(one.loops).all(axis=1).mean() > 0.9 for one in found)
    assert len(open_predictor.digest_of_what_ships()) == 16


def test_calibrations_that_end_at_once_are_all_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    read = calibration._notes

    def slowly() -> dict[str, Any]:
        found = read()
        time.sleep(0.05)
        return found

    monkeypatch.setattr(calibration, "_notes", slowly)
    targets = ("cuda", "llvm -mcpu=znver4", "llvm -mcpu=skylake")
    threads = [
        threading.Thread(target=calibration.note_calibration, args=(one, "sqlite:////x.db", "key")) for one in targets
    ]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(json.loads(calibration._path().read_text())) == len(targets)
    (tmp_path / "op_profiler" / "calibrations.lock").mkdir()
    with pytest.raises(OpProfilerError, match="cannot write .*calibrations.json"):
        calibration.note_calibration("cuda", "sqlite:////x.db", "key")


@pytest.mark.parametrize(("errors", "failed", "code"), [((), 0, 0), (("draw0: no room",), 0, 1), ((), 2, 1)])
def test_what_failed_in_a_calibration_is_told(
    errors: tuple[str, ...], failed: int, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = measuring.CalibrationResult(
        operators=40, device_key="d", processor="p", target="llvm", seconds=1.0, note="n", errors=errors, failed=failed
    )
    monkeypatch.setattr(measuring, "calibrate", lambda *_, **__: done)
    line = ["calibrate", "--threads", "1", "--db", f"sqlite:///{tmp_path}/c.db"]
    told, plain = (CliRunner().invoke(application(), [*line, *more]) for more in ([], ["--json"]))
    assert told.exit_code == plain.exit_code == code, told.output
    assert all(error in told.output for error in errors) and ("2 measurements failed" in told.output) == (failed == 2)
    found = json.loads(plain.stdout)
    assert (found["errors"], found["failed"]) == (list(errors), failed)
