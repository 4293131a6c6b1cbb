"""Predictors that learn from a table of convolutions."""

from __future__ import annotations

import csv
import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from op_profiler.dataset.formats.format import Convolutions
from op_profiler.dataset.formats.tinynas import read_library
from op_profiler.errors import DatasetError, UnknownNameError
from op_profiler.prediction.library import PREDICTORS
from op_profiler.prediction.library.library_predictor import LibraryPrediction, LibraryPredictorFactory
from op_profiler.prediction.library.scoring import evaluate, score
from op_profiler.prediction.library.splits import SPLITS, held_out
from op_profiler.testing import LibraryPredictorSuite
from op_profiler.testing.predictor import simple_device

from ...command_line import op_profiler

SHARED = Path(__file__).resolve().parents[4] / "shared" / "data"
LIBRARY, TUPLES = SHARED / "tinynas_v100_fp32.txt", SHARED / "resnet50_conv_tuples.csv"
needs_shared = pytest.mark.skipif(not LIBRARY.is_file(), reason=f"{LIBRARY} is not here")


class TestPredictors(LibraryPredictorSuite):
    @pytest.fixture(params=PREDICTORS)
    def factory(self, request: pytest.FixtureRequest) -> LibraryPredictorFactory:
        pytest.importorskip("sklearn")
        return PREDICTORS.get(request.param)


@pytest.fixture(scope="module")
def table() -> Convolutions:
    return simple_device()


@needs_shared
@pytest.mark.parametrize(
    ("batch", "milliseconds"), [(1, 2.792), (8, 6.602), (32, 19.66), (64, 37.16), (128, 71.64), (256, 140.6)]
)
def test_the_original_gives_its_totals_of_resnet_50(batch: int, milliseconds: float, original: Any) -> None:
    names = ("Conv_type", "Batch", "In_C", "In_H", "Out_C", "Kernel", "Stride", "ElmtFused")
    with TUPLES.open() as file:
        rows = [[row[name] for name in names] for row in csv.DictReader(file)]
    assert len(rows) == 53 and {row[0] for row in rows} == {"Regular"}
    matrix = np.array([[0, batch, *map(int, row[2:])] for row in rows])
    total = original.predict(Convolutions.of(matrix)).latency_us.sum() / 1e3
    assert float(f"{total:.4g}") == milliseconds


@pytest.fixture(scope="module")
def original() -> Any:
    predictor = PREDICTORS.get("original")()
    predictor.fit(read_library(LIBRARY))
    return predictor


def test_the_original_interpolates_and_does_not_extrapolate(table: Convolutions) -> None:
    predictor = PREDICTORS.get("original")()
    predictor.fit(table)
    at_points = predictor.predict(table).latency_us
    np.testing.assert_allclose(at_points, table.latency_us, rtol=1e-9)
    smaller, larger = (0, 1, 64, 4, 64, 3, 1, 0), (0, 1, 64, 480, 64, 3, 1, 0)
    known = (0, 1, 64, 48, 64, 3, 1, 0)
    estimate = predictor.predict(Convolutions.of([smaller, larger, known])).latency_us
    assert estimate[1] == estimate[2] and estimate[0] > 0
    assert np.isnan(predictor.predict(Convolutions.of([(1, 1, 64, 16, 64, 3, 1, 0)])).latency_us[0])


@pytest.mark.parametrize("name", list(PREDICTORS))
def test_every_predictor_learns_a_simple_device(name: str, table: Convolutions) -> None:
    pytest.importorskip("sklearn")
    found = evaluate(table, "random", name)
    assert found.predictor == name and found.unanswered == 0 and (found.coverage_90 is None) == (name != "default")
    assert found.trained + found.tested == len(table) and 0 < found.tested < len(table) / 3
    limit = 0.6 if name in ("decision_tree", "mean") else 0.4  # a tree answers with one of the values that it saw
    assert 0 <= found.median < limit and found.mape < limit
    assert found.within_10 > 0.1 and abs(found.bias) < 0.3


@pytest.mark.parametrize("split", ["random", "largest"])
def test_the_default_beats_the_nearest_and_covers(split: str, table: Convolutions) -> None:
    small = table.where((table.column("stride") == 1) & (table.column("batch") > 1))
    noise = np.random.default_rng(0).normal(0, 0.02, len(small))
    noisy = Convolutions(small.matrix, small.latency_us * np.exp(noise))
    mask = held_out(noisy, split)
    known, asked = noisy.where(~mask), noisy.where(mask)
    predictor = PREDICTORS.get("default")()
    predictor.fit(known)
    predicted = predictor.predict(asked)
    assert (predicted.low_us < predicted.latency_us).all() and (predicted.latency_us < predicted.high_us).all()
    found = score(asked.latency_us, predicted, split, "default", len(known), 0.0)
    assert found.coverage_90 is not None and found.coverage_90 > 0.75
    places, wanted = np.log(known.matrix + 1.0), np.log(asked.matrix + 1.0)
    nearest = np.abs(wanted[:, None] - places).sum(axis=2).argmin(axis=1)
    off = np.abs(known.latency_us[nearest] / asked.latency_us - 1).mean()
    assert found.mape < min(0.25, off / 2)


def test_depthwise_convolutions_have_intervals_of_their_own(table: Convolutions) -> None:
    """Kernels of their own compute them, which may be harder to tell."""
    dense = table.where(table.column("stride") == 1)
    others = table.where(table.ratio == 1)
    others.matrix[:, 0] = 1
    known = Convolutions(np.vstack([dense.matrix, others.matrix]), np.append(dense.latency_us, others.latency_us))
    depthwise = known.column("depthwise") == 1
    noise = np.random.default_rng(0).normal(0, np.where(depthwise, 0.2, 0.01))
    noisy = Convolutions(known.matrix, known.latency_us * np.exp(noise))
    mask = held_out(noisy, "random")
    predictor = PREDICTORS.get("default")()
    predictor.fit(noisy.where(~mask))
    asked = noisy.where(mask)
    predicted = predictor.predict(asked)
    width = np.log(predicted.high_us / predicted.low_us)
    apart = asked.column("depthwise") == 1
    assert np.median(width[apart]) > 2 * np.median(width[~apart])
    inside = (predicted.low_us <= asked.latency_us) & (asked.latency_us <= predicted.high_us)
    assert inside[apart].mean() > 0.75 and inside[~apart].mean() > 0.75


@pytest.mark.parametrize("split", SPLITS)
def test_splits_hold_out_what_they_say(split: str, table: Convolutions) -> None:
    mask = held_out(table, split)
    inside, outside = table.where(mask), table.where(~mask)
    column = {"h": "size", "largest": "size", "oc": "out_channels", "batch": "batch"}.get(split)
    if column is not None:
        assert not set(inside.column(column)) & set(outside.column(column))
    elif split == "ratio":
        assert set(inside.ratio) == {0.5, 2.0} and set(outside.ratio) == {1.0}
    else:
        assert 0.15 < mask.mean() < 0.25


def test_splits_and_names_that_do_not_exist(table: Convolutions) -> None:
    with pytest.raises(UnknownNameError, match="largest"):
        held_out(table, "larges")
    with pytest.raises(UnknownNameError, match="xgboost"):
        PREDICTORS.get("xgbost")()
    with pytest.raises(DatasetError, match="batch 64"):
        held_out(table.where(table.column("batch") == 1), "batch")


def test_figures_of_a_score() -> None:
    measured = np.array([100.0, 100.0, 100.0, 100.0])
    predicted = LibraryPrediction(np.array([100.0, 105.0, 80.0, np.nan]), np.full(4, 90.0), np.full(4, 99.0))
    found = score(measured, predicted, "random", "x", 10, 1.0)
    assert [found.mape, found.median] == pytest.approx([0.25 / 3, 0.05])
    assert found.within_10 == pytest.approx(2 / 3) and found.bias == pytest.approx(-0.05)
    assert found.coverage_90 == 0.0 and found.unanswered == 1
    low, high = np.array([90.0, np.nan, 90.0, np.nan]), np.array([110.0, np.nan, 99.0, np.nan])
    some = score(measured, LibraryPrediction(predicted.latency_us, low, high), "random", "x", 10, 1.0)
    assert some.coverage_90 == 0.5, "of the two that have an interval"
    nothing = LibraryPrediction(predicted.latency_us, *np.full((2, 4), np.nan))
    assert score(measured, nothing, "random", "x", 10, 1.0).coverage_90 is None


def test_a_library_is_read(tmp_path: Path) -> None:
    path = tmp_path / "library.txt"
    path.write_text(
        "# a comment\n\n{Regular,128,3,480,480,192,7,2,1}   30.9881\n{Depthwise,1,32,8,8,32,3,1,0} 0.01\n"
        "{Regular,1,32,8,8,32,3,1,0} -1\n{Regular,1,32,8,9,32,3,1,0} 1\nnonsense\n"
    )
    table = read_library(path)
    assert (len(table), table.failed, table.unreadable) == (2, 1, 2)
    assert table.latency_us.tolist() == [pytest.approx(30988.1), pytest.approx(10.0)]
    assert table.matrix[1].tolist() == [1, 1, 32, 8, 32, 3, 1, 0] and table.ratio.tolist() == [0.0, 1.0]
    path.write_text("nothing\n")
    with pytest.raises(DatasetError, match="holds no rows"):
        read_library(path)


def test_the_command_prints_every_split_and_refuses_nonsense(table: Convolutions, tmp_path: Path) -> None:
    file = tmp_path / "library.txt"
    rows = zip(table.matrix.tolist(), table.latency_us / 1e3)
    kinds = ("Regular", "Depthwise")
    lines = [
        f"{{{kinds[kind]},{n},{c},{hw},{hw},{','.join(map(str, rest))}}} {ms}" for (kind, n, c, hw, *rest), ms in rows
    ]
    file.write_text("\n".join(lines))

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return op_profiler("evaluate", "--library", str(file), *arguments, libraries=("xgboost",))

    done = run("--predictor", "original,xgboost", "--json", "--quiet")
    assert done.returncode == 0, done.stderr
    scores = json.loads(done.stdout)
    assert {(s["split"], s["predictor"]) for s in scores} == {(s, p) for s in SPLITS for p in ("original", "xgboost")}
    assert {"mape", "median", "p90", "within_10", "bias", "coverage_90"} <= set(scores[0])
    assert run("--split", "hh").returncode == 2
    assert "no rows" not in run("--split", "random", "--predictor", "original").stderr
    file.write_text("{")
    assert run().returncode == 5
