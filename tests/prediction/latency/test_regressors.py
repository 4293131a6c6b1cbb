"""Every regression of operators that a predictor uses."""

from __future__ import annotations

import pytest

from op_profiler.prediction.latency import PREDICTORS
from op_profiler.prediction.latency.regression import Regressor
from op_profiler.testing import RegressorSuite


class TestRegressors(RegressorSuite):
    @pytest.fixture(params=["default", "xgboost", "random_forest", "decision_tree"])
    def regressor(self, request: pytest.FixtureRequest) -> Regressor:
        if request.param in ("random_forest", "decision_tree"):
            pytest.importorskip("sklearn")
            pytest.importorskip("skops")
        return PREDICTORS.get(request.param).regressors(0)[0]
