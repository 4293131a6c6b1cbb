"""Every strategy of the search."""

from __future__ import annotations

import pytest

from op_profiler.testing import TunerSuite
from op_profiler.tuning.tuners import TUNERS
from op_profiler.tuning.tuners.tuner import TunerFactory

DISTINCT = list({TUNERS.get(name): name for name in reversed(list(TUNERS))}.values())
"""One name of each; some have two."""


class TestTuners(TunerSuite):
    @pytest.fixture(params=DISTINCT)
    def factory(self, request: pytest.FixtureRequest) -> TunerFactory:
        return TUNERS.get(request.param)
