"""The worker that builds candidates here and times them on a board."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from op_profiler.compilers.tvm_types import DeviceArray, RuntimeDevice
from op_profiler.measure.measurement import Device
from op_profiler.targets.machine import Threads
from op_profiler.targets.remote.board import COLD_MECHANISM, FLUSH, Board
from op_profiler.targets.remote.probe import upload
from op_profiler.tuning.candidate import Candidate, TrialResult
from op_profiler.tuning.reference import Reference
from op_profiler.tuning.task import BuiltPoint
from op_profiler.tuning.trials.worker import Built, Worker


class BoardWorker(Worker):
    """A worker that builds candidates on this machine and times them on one board. If the board disconnects, the worker
    requests it again."""

    cold_mechanism = COLD_MECHANISM

    def _open(self) -> tuple[RuntimeDevice, Threads]:
        assert self.setup.place is not None
        self.board = Board(self.setup.name, self.target, self.setup.place, self.setup.address)
        return self.board.runtime, self.board.threads

    def _meter(self) -> None:
        """Return None: the load of a board cannot be read between two calls."""

    def trial(
        self, candidate: Candidate, best_us: float, samples: int, minimum_us: float, stop_factor: float
    ) -> TrialResult:
        """Build and time one candidate."""
        result = self.build(0, candidate)
        if result.error is None:
            timed = self.measure(0, best_us, samples, minimum_us, stop_factor)
            result = dataclasses.replace(timed, build_seconds=result.build_seconds)
        return dataclasses.replace(result, machine=self.board.address)

    def measure(self, number: int, best_us: float, samples: int, minimum_us: float, stop_factor: float) -> TrialResult:
        """Measure as in `Worker`; distinguish lost sessions from failed candidates."""
        result = super().measure(number, best_us, samples, minimum_us, stop_factor)
        if result.failure == "run" and not self.board.connection.alive():
            return TrialResult(failure="lost", error=f"the session on {self.board.address} ended: {result.error}")
        return result

    def compare_candidates(self, candidates: Sequence[Candidate], rounds: int, minimum_us: float) -> list[TrialResult]:
        """Build all candidates, then time them in turn."""
        results = {number: self.build(number, candidate) for number, candidate in enumerate(candidates)}
        built = [number for number, result in results.items() if result.error is None]
        if built:
            results |= dict(zip(built, self.compare(built, rounds, minimum_us)))
        return [dataclasses.replace(results[n], machine=self.board.address) for n in range(len(candidates))]

    def describe(self) -> Device:
        """Describe the board that this worker times on."""
        return self.board.device

    def _built(
        self, built: BuiltPoint, arrays: list[DeviceArray], reference: Reference | None, weights: list[DeviceArray]
    ) -> Built:
        with self.board.guard("sending a candidate"):
            library = upload(self.board.connection.session, built.function, self.target)
        options = {"f_preproc": FLUSH} if self.setup.cache == "cold" else {}
        return BuiltForDevice(library, arrays, reference, None, built.output, None, options)


@dataclasses.dataclass
class BuiltForDevice(Built):
    """A candidate that the device's own clock times; the first call of each timing is not counted.

    Attributes:
        options: options of the time evaluator that produce the requested cache state.
    """

    options: dict[str, Any] = dataclasses.field(default_factory=dict)

    def timed(self, device: RuntimeDevice, calls: int, samples: int) -> tuple[float, ...]:
        """Return samples of the device's time evaluator in microseconds; with flushed caches, each sample is one
        call."""
        return self.evaluated(device, 1 if self.options else calls, samples, **self.options)
