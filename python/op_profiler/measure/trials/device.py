"""Workers whose candidates run elsewhere than on this machine's processor: on its GPU, or on a board."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from op_profiler.measure._base import Device
from op_profiler.measure.machines._base import Threads
from op_profiler.measure.reference import Reference
from op_profiler.measure.trials.worker import Built, BuiltByVendor, Worker
from op_profiler.schedules.tuning._base import Candidate, TaskSpec, TrialResult

_FLUSHED_BYTES = 1 << 28
_FLUSH = "cache_flush_cpu_non_first_arg"


@dataclasses.dataclass
class BuiltForDevice(Built):
    """A candidate that the device's own clock times; the first call of each timing is not counted.

    Attributes:
        options: of the time evaluator, that bring the caches into the wanted state.
    """

    options: dict[str, Any] = dataclasses.field(default_factory=dict)

    def timed(self, device: Any, calls: int, samples: int) -> tuple[float, ...]:
        calls = 1 if self.options else calls
        evaluator = self.function.time_evaluator(
            self.function.entry_name, device, number=calls, repeat=samples, **self.options
        )
        return tuple(float(s) * 1e6 for s in evaluator(*self.arrays).results)


class GpuWorker(Worker):
    """Times on this machine's GPU."""

    def _open(self) -> tuple[Any, Threads]:
        from op_profiler.compiler import runtime_device
        from op_profiler.measure.machines.gpu import NoThreads

        return runtime_device(self.target), NoThreads()

    def _vendor_kernels(self, task: TaskSpec, reference: Reference) -> list[BuiltByVendor]:
        from op_profiler.measure.trials.vendor_cuda import kernels_on_gpu

        return kernels_on_gpu(task, reference)

    def _built(self, function: Any, arrays: list[Any], reference: Reference | None, weights: list[Any]) -> Built:
        options = {"cache_flush_bytes": _FLUSHED_BYTES} if self.orders.cache == "cold" else {}
        return BuiltForDevice(function, arrays, reference, None, None, options)


class BoardWorker(Worker):
    """Builds here and times on one board; asks for it again after it went away."""

    def _open(self) -> tuple[Any, Threads]:
        from op_profiler.measure.machines.board import Board

        assert self.orders.place is not None
        self.board = Board(self.orders.name, self.target, self.orders.place, self.orders.address)
        return self.board.runtime, self.board.threads

    def trial(
        self,
        candidate: Candidate,
        best_us: float,
        samples: int,
        minimum_us: float,
        stop_factor: float,
    ) -> TrialResult:
        """Build and time one candidate."""
        result = self.build(0, candidate)
        if result.error is None:
            timed = self.measure(0, best_us, samples, minimum_us, stop_factor)
            result = dataclasses.replace(timed, build_seconds=result.build_seconds)
        return dataclasses.replace(result, machine=self.board.address)

    def measure(self, number: int, best_us: float, samples: int, minimum_us: float, stop_factor: float) -> TrialResult:
        """As in `Worker`; what ended the session is told from what only failed."""
        result = super().measure(number, best_us, samples, minimum_us, stop_factor)
        if result.failure == "run" and not self.board.connection.alive():
            return TrialResult(failure="lost", error=f"the session on {self.board.address} ended: {result.error}")
        return result

    def compare_candidates(self, candidates: Sequence[Candidate], rounds: int, minimum_us: float) -> list[TrialResult]:
        """Build all, then time them in turns."""
        results = {number: self.build(number, candidate) for number, candidate in enumerate(candidates)}
        built = [number for number, result in results.items() if result.error is None]
        if built:
            results |= dict(zip(built, self.compare(built, rounds, minimum_us)))
        return [dataclasses.replace(results[n], machine=self.board.address) for n in range(len(candidates))]

    def describe(self) -> Device:
        """The board that this worker times on."""
        return self.board.device

    def _built(self, function: Any, arrays: list[Any], reference: Reference | None, weights: list[Any]) -> Built:
        from op_profiler.measure.machines.probe import upload

        with self.board.guard("sending a candidate"):
            library = upload(self.board.connection.session, function, self.target)
        options = {"f_preproc": _FLUSH} if self.orders.cache == "cold" else {}
        return BuiltForDevice(library, arrays, reference, None, None, options)
