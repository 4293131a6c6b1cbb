"""`CheckRequest`: the options of ``op-profiler check``; their validation needs no heavy imports."""

from __future__ import annotations

import dataclasses
from typing import Annotated

from op_profiler.errors import UsageError
from op_profiler.options import MEASURING, Option
from op_profiler.prediction.latency.request import PredictRequest


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckRequest:
    """Options of ``op-profiler check``: the prediction to check, and the time for measuring the model."""

    predicted: PredictRequest = PredictRequest()
    seconds: Annotated[
        int,
        Option(
            "Time to measure, without building the model; at least 3 rounds are measured.",
            MEASURING,
            least=1,
            most=3600,
        ),
    ] = 60

    def check(self) -> None:
        """Check that the options are valid.

        Raises:
            UsageError: more than one thread count is given.
            OpProfilerError: an option of the prediction is invalid, or the model does not exist.
        """
        asked = self.predicted
        if len(asked.threads) > 1:
            raise UsageError("check compares at one thread count; give one to --threads")
        asked.check()
