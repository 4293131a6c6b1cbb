"""Hands candidates to worker processes, and outlives them.

Candidates of a batch are built on all cores; then they are timed one after the other, while nothing else runs.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import time
from collections.abc import Iterator, Sequence
from multiprocessing.connection import wait
from types import TracebackType
from typing import Any

from op_profiler.compiler import target_kind, usable_cores
from op_profiler.errors import MeasureError
from op_profiler.measure._base import Cache, Settings
from op_profiler.measure.trials.process import WorkerProcess, forkserver, new_log
from op_profiler.measure.trials.worker import Orders
from op_profiler.schedules.tuning._base import Candidate, TrialResult

_START_SECONDS = 60.0
_MOST_FAILED_STARTS = 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
    """How long and how often.

    Attributes:
        build_seconds, run_seconds: after which a candidate counts as hanging.
        samples: of a candidate that is not stopped early; each the mean over calls that together take `minimum_us`.
        stop_factor: a first call that takes this many times the best candidate's time is the last.
        memory_share: share of the free memory that one worker may take.
    """

    build_seconds: float = 20.0
    run_seconds: float = 20.0
    samples: int = 3
    minimum_us: float = 2000.0
    stop_factor: float = 1.5
    memory_share: float = 0.6


class TrialRunner:
    """A `Runner` on this machine's processor or GPU; a context manager, as it holds processes.

    Args:
        target: TVM target string of the processor.
        threads: that kernels run with.
        cache: ``hot``: a candidate finds everything where its last call left it; ``cold``: its weights are flushed
            before each call, as in a model whose weights do not fit the caches.
        check: compare each candidate's output with numpy's, where its template is of a known kind.
        modules: names of modules that register further templates.
        name: the target as the user wrote it.
    """

    def __init__(
        self,
        target: str,
        threads: int,
        *,
        limits: Limits | None = None,
        cache: Cache = "hot",
        check: bool = True,
        modules: Sequence[str] = (),
        name: str = "llvm",
    ) -> None:
        import psutil

        self.limits = limits or Limits()
        self._context = forkserver()
        self._log = new_log()
        on_gpu = target_kind(name) == "cuda"  # CUDA maps far more memory than there is
        memory = None if on_gpu else int(psutil.virtual_memory().available * self.limits.memory_share)
        self._orders = Orders(
            target=target,
            threads=threads,
            modules=tuple(modules),
            memory_bytes=memory,
            check=check,
            cache=cache,
            log=str(self._log),
            name=name,
        )
        self._workers: list[WorkerProcess | None] = [None] * usable_cores()
        self._build_seconds: dict[int, float] = {}

    def __enter__(self) -> TrialRunner:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        for worker in self._workers:
            if worker is not None:
                worker.kill()
        self._log.unlink(missing_ok=True)

    def _worker(self, slot: int) -> WorkerProcess:
        """The worker of a slot, started if there is none.

        Raises:
            MeasureError: it does not start.
        """
        for _ in range(_MOST_FAILED_STARTS):
            worker = self._workers[slot]
            if worker is not None:
                return worker
            worker = WorkerProcess(self._context, self._orders)
            with contextlib.suppress(EOFError, TimeoutError):
                worker.answer(_START_SECONDS)
                self._workers[slot] = worker
        raise MeasureError(f"no process for building and measuring could be started; see {self._orders.log}")

    def run(self, candidates: Sequence[Candidate], best_us: float) -> list[TrialResult]:
        """As in `Runner`."""
        results: dict[int, TrialResult] = {}
        self._build_seconds = {}
        places = dict(self._build(candidates, results))
        for number in range(len(candidates)):
            while number not in results:
                slot = places.get(number)
                if slot is None:  # it was built in a worker that another candidate took down
                    places |= dict(self._build(candidates, results, only=[number], slot=0))
                    continue
                result = self._measured(slot, number, best_us)
                if result.failure in ("crash", "timeout", "memory") and self._workers[slot] is None:
                    places = {n: s for n, s in places.items() if s != slot}
                best_us = min(best_us, result.median_us)
                results[number] = dataclasses.replace(result, build_seconds=self._build_seconds.get(number, 0.0))
        return [results[number] for number in range(len(candidates))]

    def settings(self) -> Settings:
        """What kernels run with, as asked for and as read back; call it after something has run."""
        answer = self._ask(0, self.limits.run_seconds, "reading back", "read_back")
        if isinstance(answer, TrialResult):
            raise MeasureError(f"the settings could not be read back: {answer.error}")
        return self._orders.settings(answer, self._mechanism())

    def _mechanism(self) -> str:
        if self._orders.cache == "hot":
            return "repeat"
        return "copy over the L2" if target_kind(self._orders.name) == "cuda" else "clflush of the weights"

    def compare(self, candidates: Sequence[Candidate], rounds: int) -> list[TrialResult]:
        """As in `Runner`; what fails to build has its error, and the others are compared without it."""
        results: dict[int, TrialResult] = {}
        built = [n for n, _ in self._build(candidates, results, slot=0)]
        if built:
            seconds = self.limits.run_seconds * len(built)
            outcome = self._ask(0, seconds, "running", "compare", built, rounds, self.limits.minimum_us)
            together = outcome if isinstance(outcome, list) else [outcome] * len(built)
            results |= dict(zip(built, together))
        return [results[number] for number in range(len(candidates))]

    def _measured(self, slot: int, number: int, best_us: float) -> TrialResult:
        limits = self.limits
        result = self._ask(
            slot,
            limits.run_seconds,
            "running",
            "measure",
            number,
            best_us,
            limits.samples,
            limits.minimum_us,
            limits.stop_factor,
        )
        assert isinstance(result, TrialResult)
        return result

    def _ask(self, slot: int, seconds: float, doing: str, *command: Any) -> Any:
        """The answer of a worker, or the result that its death or silence stands for."""
        worker = self._worker(slot)
        worker.ask(*command)
        try:
            return worker.answer(seconds)
        except (TimeoutError, EOFError) as error:
            return self._lost(slot, worker, error, seconds, doing)

    def _lost(self, slot: int, worker: WorkerProcess, error: BaseException, seconds: float, doing: str) -> TrialResult:
        self._workers[slot] = None
        if isinstance(error, TimeoutError):
            return TrialResult(failure="timeout", error=f"no end after {seconds:g} s while {doing}; killed")
        failure, how = worker.how_it_died()
        return TrialResult(failure=failure, error=f"the process died ({how}) while {doing}")

    def _build(
        self,
        candidates: Sequence[Candidate],
        results: dict[int, TrialResult],
        only: Sequence[int] | None = None,
        slot: int | None = None,
    ) -> Iterator[tuple[int, int]]:
        """Build candidates, on all workers or on one; those that fail get their result.

        Yields:
            Number of a candidate that was built, and the worker that holds it.
        """
        waiting = collections.deque(range(len(candidates)) if only is None else only)
        slots = list(range(len(self._workers))) if slot is None else [slot]
        busy: dict[int, tuple[int, float]] = {}
        built: dict[int, int] = {}
        while waiting or busy:
            for free in [s for s in slots if s not in busy][: len(waiting)]:
                number = waiting.popleft()
                self._worker(free).ask("build", number, candidates[number])
                busy[free] = number, time.monotonic() + self.limits.build_seconds
            connections = {self._worker(s).connection: s for s in busy}
            ready = wait(list(connections), max(min(end for _, end in busy.values()) - time.monotonic(), 0))
            late = [s for s, (_, end) in busy.items() if time.monotonic() >= end]
            for done in {*(connections[c] for c in ready), *late}:  # type: ignore[index]
                number, _ = busy.pop(done)
                worker = self._worker(done)
                try:
                    result = worker.answer(0)
                except (TimeoutError, EOFError) as error:
                    result = self._lost(done, worker, error, self.limits.build_seconds, "building")
                    lost = [n for n, s in built.items() if s == done]
                    for n in lost:
                        del built[n]
                    waiting.extend(lost)
                if result.error is not None:
                    results[number] = result
                else:
                    built[number] = done
                    self._build_seconds[number] = result.build_seconds
        yield from built.items()
