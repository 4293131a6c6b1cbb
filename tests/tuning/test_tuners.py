"""Every strategy of the search."""

from __future__ import annotations

import pytest

from op_profiler.testing import TunerSuite
from op_profiler.tuning.tuners import TUNERS
from op_profiler.tuning.tuners.tuner import TunerFactory


class TestTuners(TunerSuite):
    @pytest.fixture(params=TUNERS)
    def factory(self, request: pytest.FixtureRequest) -> TunerFactory:
        return TUNERS.get(request.param)
