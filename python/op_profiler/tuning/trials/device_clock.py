"""Candidates that run elsewhere than on this machine's processor: the device's own clock times them."""

from __future__ import annotations

import dataclasses
from typing import Any

from op_profiler.compilers.tvm_types import RuntimeDevice
from op_profiler.tuning.trials.worker import Built


@dataclasses.dataclass
class BuiltForDevice(Built):
    """A candidate that the device's own clock times; the first call of each timing is not counted.

    Attributes:
        options: of the time evaluator, that bring the caches into the wanted state.
    """

    options: dict[str, Any] = dataclasses.field(default_factory=dict)

    def timed(self, device: RuntimeDevice, calls: int, samples: int) -> tuple[float, ...]:
        calls = 1 if self.options else calls
        evaluator = self.function.time_evaluator(
            self.function.entry_name, device, number=calls, repeat=samples, **self.options
        )
        return tuple(float(s) * 1e6 for s in evaluator(*self.arrays).results)
