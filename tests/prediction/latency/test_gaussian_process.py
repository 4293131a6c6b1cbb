"""Regression by likeness: rows that are alike say something of each other, as much as the data show."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from op_profiler.prediction.latency.gaussian_process import GaussianProcess

_KINDS = 6
_FAR = 10.0


def _rows(rng: np.random.Generator, count: int) -> tuple[list[np.ndarray], np.ndarray]:
    """Places for three kernels (all rows, kinds, what means nothing) and the kind of each row."""
    kind = rng.integers(0, _KINDS, count)
    return [np.zeros((count, 1)), _FAR * np.eye(_KINDS)[kind], rng.normal(size=(count, 3))], kind


@pytest.fixture(scope="module")
def learned() -> tuple[GaussianProcess, np.ndarray, np.ndarray]:
    """Of sixty rows whose mean is 0.5 and whose kinds differ from it; its targets, and what each kind differs by."""
    rng = np.random.default_rng(0)
    places, kind = _rows(rng, 60)
    differs = rng.normal(0, 0.3, _KINDS)
    target = 0.5 + differs[kind] + rng.normal(0, 0.03, len(kind))
    return GaussianProcess.fit(places, target, np.ones(len(kind))), target, differs


def test_what_is_alike_is_told_apart_from_what_is_not(
    learned: tuple[GaussianProcess, np.ndarray, np.ndarray],
) -> None:
    process, _, differs = learned
    of_all, of_kinds, of_nothing = process.variances
    assert of_kinds > 5 * of_nothing
    places, kind = _rows(np.random.default_rng(1), 5000)
    assert process.predict(places) == pytest.approx(0.5 + differs[kind], abs=0.06)
    places[1] = np.full_like(places[1], _FAR)  # a kind that was never measured: what all have in common
    assert np.median(process.predict(places)) == pytest.approx(0.5 + differs.mean(), abs=0.2)


def test_rows_that_are_left_out_are_predicted_by_the_others(
    learned: tuple[GaussianProcess, np.ndarray, np.ndarray],
) -> None:
    process, target, _ = learned
    group = np.arange(len(target)) // 2
    off = process.off_if_left_out(group)
    for one in (0, 7):
        held = group == one
        alike = sum(
            v * np.exp(-0.5 * ((p[:, None] - p[None, ~held]) ** 2).sum(axis=2))
            for v, p in zip(process.variances, process.places)
        )
        rest = dataclasses.replace(
            process,
            places=tuple(place[~held] for place in process.places),
            coefficients=np.linalg.solve(alike[~held] + np.diag(process.noise[~held]), target[~held]),
        )
        assert off[held] == pytest.approx(target[held] - rest.predict([place[held] for place in process.places]))


def test_what_is_explained_without_a_rest_can_be_asked() -> None:
    """No noise at all is most likely then, and the covariance of rows at one place could not be inverted."""
    process = GaussianProcess.fit([np.zeros((400, 1))], np.zeros(400), np.ones(400))
    assert process.noise[0] > 1e-6
    assert process.predict([np.zeros((1, 1))])[0] == pytest.approx(0.0)
    assert process.off_if_left_out(np.arange(400) // 2) == pytest.approx(np.zeros(400))


def test_places_of_other_kernels_are_refused(learned: tuple[GaussianProcess, np.ndarray, np.ndarray]) -> None:
    places, _ = _rows(np.random.default_rng(2), 5)
    with pytest.raises(ValueError, match="shorter"):
        learned[0].predict(places[:2])


def test_a_heavy_row_counts_more() -> None:
    weight = np.array([1.0, 100.0] * 10)
    target = np.array([0.0, 1.0] * 10)
    process = GaussianProcess.fit([np.zeros((20, 1))], target, weight)
    assert process.predict([np.zeros((1, 1))])[0] > 0.8
