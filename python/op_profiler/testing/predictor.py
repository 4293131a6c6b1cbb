"""The test suites of the contracts `Regressor` and `LibraryPredictor`."""

from __future__ import annotations

import numpy as np
import pytest

from op_profiler.dataset.formats.format import Convolutions
from op_profiler.prediction.latency.regression import Regressor
from op_profiler.prediction.library.library_predictor import LibraryPredictorFactory


def simple_device() -> Convolutions:
    """Return convolutions on a device that takes 10 us, and 1 us for each million multiply-adds."""
    rows = [
        (0, batch, int(ratio * out), size, out, kernel, stride, 0)
        for batch in (1, 32, 64)
        for ratio in (0.5, 1, 2)
        for out in (32, 64, 96, 128, 192, 256)
        for size in (8, 12, 16, 24, 32, 48)
        for kernel in (1, 3)
        for stride in (1, 2)
    ]
    matrix = np.array(rows)
    multiply_adds = matrix[:, 1] * matrix[:, 2] * matrix[:, 4] * (matrix[:, 3] / matrix[:, 6]) ** 2 * matrix[:, 5] ** 2
    return Convolutions(matrix, 10 + multiply_adds / 1e6)


class LibraryPredictorSuite:
    """Tests that a predictor learns from a table, and that estimates are in the order of the entries.

    Fixtures:
        factory: an `op_profiler.prediction.library.library_predictor.LibraryPredictorFactory`.
        table: convolutions to learn from, on a simple device whose latency is known.
    """

    @pytest.fixture
    def factory(self) -> LibraryPredictorFactory:
        """The `LibraryPredictorFactory` under test."""
        raise NotImplementedError

    @pytest.fixture
    def table(self) -> Convolutions:
        """Convolutions to learn from; by default those of `simple_device`."""
        return simple_device()

    def test_what_was_left_out_is_estimated_in_the_order_of_the_question(
        self, factory: LibraryPredictorFactory, table: Convolutions
    ) -> None:
        """Hold out 20 % of the entries: median relative error below 60 %, valid intervals, no effect of the order."""
        asked = np.random.default_rng(0).random(len(table)) < 0.2
        predictor, question = factory(0), table.where(asked)
        predictor.fit(table.where(~asked))
        found = predictor.predict(question)
        assert found.latency_us.shape == (len(question),) and np.isfinite(found.latency_us).all()
        assert np.median(np.abs(found.latency_us / question.latency_us - 1)) < 0.6  # a tree says what it has seen
        given = np.isfinite(found.low_us)
        assert (given == np.isfinite(found.high_us)).all()
        assert (found.low_us[given] <= found.latency_us[given]).all()
        assert (found.latency_us[given] <= found.high_us[given]).all()
        order = np.random.default_rng(1).permutation(len(question))
        shuffled = predictor.predict(question.where(order)).latency_us
        np.testing.assert_allclose(shuffled, found.latency_us[order], rtol=1e-6)


class RegressorSuite:
    """Tests that a regressor learns a function of its columns, and that its bytes restore it.

    Fixtures:
        regressor: a new, unfitted `op_profiler.prediction.latency.regression.Regressor` for every test.
    """

    @pytest.fixture
    def regressor(self) -> Regressor:
        """A new `Regressor` that is not fitted."""
        raise NotImplementedError

    @pytest.fixture
    def columns(self) -> np.ndarray:
        """Random columns, shape (800, 5), uniform in 0 to 4."""
        return np.random.default_rng(0).uniform(0, 4, (800, 5))

    @pytest.fixture
    def values(self, columns: np.ndarray) -> np.ndarray:
        """Values to learn, shape (800,): a function of the first two columns."""
        found: np.ndarray = np.sin(columns[:, 0]) + 0.5 * columns[:, 1]
        return found

    def test_it_learns(self, regressor: Regressor, columns: np.ndarray, values: np.ndarray) -> None:
        """Fit 600 rows: on the other 200, the mean error is below 30 % of the mean error of a constant."""
        regressor.fit(columns[:600], values[:600], np.ones(600))
        found = regressor.predict(columns[600:])
        assert found.shape == (200,) and found.dtype == np.float64 and np.isfinite(found).all()
        assert np.abs(found - values[600:]).mean() < 0.3 * np.abs(values[600:] - values[:600].mean()).mean()

    def test_weights_count(self, regressor: Regressor, columns: np.ndarray) -> None:
        """Fit two values for each row: the estimate is near the value with the larger weight."""
        twice = np.concatenate([columns, columns])
        values = np.concatenate([np.zeros(800), np.ones(800)])
        regressor.fit(twice, values, np.concatenate([np.full(800, 0.05), np.ones(800)]))
        assert regressor.predict(columns).mean() > 0.8

    def test_it_comes_back_from_its_bytes(self, regressor: Regressor, columns: np.ndarray, values: np.ndarray) -> None:
        """Compare predictions after `to_bytes` and `from_bytes`, to 1e-12."""
        regressor.fit(columns, values, np.ones(800))
        again = type(regressor).from_bytes(regressor.to_bytes())
        np.testing.assert_allclose(again.predict(columns), regressor.predict(columns), rtol=1e-12)
