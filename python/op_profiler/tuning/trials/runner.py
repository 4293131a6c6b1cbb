"""`TrialRunner`: distributes candidates to worker processes, and survives their crashes and time limits.

Candidates of a batch are built on all cores, then timed one after the other while nothing else runs. Builds on the
processor do not disturb timing on a GPU, so on a GPU several searches share the cores.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import wait
from types import TracebackType
from typing import Any, NamedTuple

import psutil

from op_profiler.cores import usable_cores
from op_profiler.errors import MeasureError
from op_profiler.measure.measurement import Cache, Settings
from op_profiler.targets.target import kind_of
from op_profiler.tuning.candidate import VENDOR, Candidate, TrialResult
from op_profiler.tuning.trials.process import WorkerProcess, forkserver, new_log
from op_profiler.tuning.trials.worker import WorkerSetup

_START_SECONDS = 60.0
_MOST_FAILED_STARTS = 3
_MOST_LOST_WORKERS = 4
_GONE = TrialResult(failure="crash", error="every process that built it was gone before it could run it")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrialLimits:
    """Time limits and numbers of samples of a trial.

    Attributes:
        build_seconds, run_seconds: time limits of building and of running a candidate.
        preparing_seconds: time limit of preparing a task, whose reference is computed once in each process.
        samples: number of samples unless the candidate is stopped early; each is the mean over calls that together take
            `minimum_us`.
        stop_factor: if the first call takes more than this many times the best candidate's time, no more calls are
            made.
        memory_share: share of the free memory that one worker may use.
    """

    build_seconds: float = 20.0
    run_seconds: float = 20.0
    preparing_seconds: float = 100.0
    samples: int = 3
    minimum_us: float = 2000.0
    stop_factor: float = 1.5
    memory_share: float = 0.6


class _Busy(NamedTuple):
    """What a worker is doing: it prepares the task of a candidate, or builds the candidate.

    Attributes:
        number: number of the candidate.
        prepares: True: the worker prepares the task; False: it builds the candidate.
        seconds: time limit.
        end: time (`time.monotonic`) at which the time limit is over.
    """

    number: int
    worker: WorkerProcess
    prepares: bool
    seconds: float
    end: float


class TrialRunner:
    """A `Runner` on this machine's processor or GPU. It is a context manager, which ends the worker processes on exit.

    Args:
        target: TVM target string of the processor.
        threads: thread count of the kernels.
        limits: time limits and numbers of samples; None for the defaults.
        cache: ``hot``: the caches are as the previous call of the candidate left them; ``cold``: its weights are
            flushed before each call, as in a model whose weights do not fit the caches.
        check: whether to compare each candidate's output with the reference, if its template has one (`reference_of`).
        modules: names of modules that register further templates.
        name: the target as the user wrote it.
        cores: number of processes that build; None: one per core.
        turn: lock that the caller holds, and that the runner releases while candidates are built. Several searches,
            each with its own runner and thread, then build at the same time, and do everything else one after the
            other. None: no lock.
    """

    def __init__(
        self,
        target: str,
        threads: int,
        *,
        limits: TrialLimits | None = None,
        cache: Cache = "hot",
        check: bool = True,
        modules: Sequence[str] = (),
        name: str = "llvm",
        cores: int | None = None,
        turn: threading.Lock | None = None,
    ) -> None:
        self.limits = limits or TrialLimits()
        self._context = forkserver()
        self._log = new_log()
        self._worker_class = kind_of(name).trial_worker()
        free = psutil.virtual_memory().available
        memory = int(free * self.limits.memory_share) if self._worker_class.memory_is_limited else None
        self._setup = WorkerSetup(
            target=target,
            threads=threads,
            modules=tuple(modules),
            memory_bytes=memory,
            check=check,
            cache=cache,
            log=str(self._log),
            name=name,
        )
        self._workers: list[WorkerProcess | None] = [None] * (cores or usable_cores())
        self._turn = turn
        self._build_seconds: dict[int, float] = {}

    def __enter__(self) -> TrialRunner:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        for worker in self._workers:
            if worker is not None:
                worker.kill()
        self._log.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _without_turn(self) -> Iterator[None]:
        if self._turn is None:
            yield
            return
        self._turn.release()
        try:
            yield
        finally:
            self._turn.acquire()

    def _worker(self, slot: int) -> WorkerProcess:
        """Return the worker of a slot; start a worker if the slot has none.

        Raises:
            MeasureError: no worker starts.
        """
        present = self._workers[slot]
        if present is not None:
            return present
        for _ in range(_MOST_FAILED_STARTS):
            worker = WorkerProcess(self._context, self._worker_class, self._setup)
            try:
                worker.answer(_START_SECONDS)
            except (EOFError, TimeoutError):
                worker.kill()
                continue
            self._workers[slot] = worker
            return worker
        raise MeasureError(f"no process for building and measuring could be started{self._last_words()}")

    def _send_command(self, slot: int, command: Callable[[WorkerProcess], tuple[Any, ...]]) -> WorkerProcess:
        """Send a command to the worker of a slot, and return the worker; a worker that was killed while idle is
        replaced.

        Raises:
            MeasureError: no worker starts, or several workers died immediately.
        """
        for _ in range(_MOST_FAILED_STARTS):
            worker = self._worker(slot)
            try:
                worker.ask(*command(worker))
                return worker
            except EOFError:
                self._drop(worker)
        raise MeasureError(f"processes for building and measuring end while they are idle{self._last_words()}")

    def _last_words(self) -> str:
        """Return the last line of the log after a colon, for an error message; empty if the log is empty."""
        lines = self._log.read_text(errors="replace").split("\n")
        return next((f": {line.strip()}" for line in reversed(lines) if line.strip()), "")

    def _drop(self, worker: WorkerProcess) -> None:
        worker.kill()
        self._workers = [None if one is worker else one for one in self._workers]

    def run(self, candidates: Sequence[Candidate], best_us: float) -> list[TrialResult]:
        """Build, check and time candidates; see `Runner`."""
        results: dict[int, TrialResult] = {}
        self._build_seconds = {}
        holders = dict(self._build(candidates, results))
        for number in range(len(candidates)):
            for _ in range(_MOST_LOST_WORKERS):
                result = self._measured(holders.get(number), number, best_us)
                if result is not None or number in results:
                    break
                holders |= dict(self._build(candidates, results, only=[number], slot=0))  # its worker no longer exists
            if number not in results:
                result = result or _GONE
                best_us = min(best_us, result.median_us)
                results[number] = dataclasses.replace(result, build_seconds=self._build_seconds.get(number, 0.0))
        return [results[number] for number in range(len(candidates))]

    def settings(self) -> Settings:
        """Return the requested and effective settings of kernels; call it only after a trial.

        Raises:
            MeasureError: the effective settings cannot be read.
        """
        answer = self._answer(self._send_command(0, lambda _: ("read_back",)), self.limits.run_seconds, "reading back")
        if isinstance(answer, TrialResult):
            raise MeasureError(f"the settings could not be read back: {answer.error}")
        return self._setup.settings(answer, self._mechanism())

    def _mechanism(self) -> str:
        return "repeat" if self._setup.cache == "hot" else self._worker_class.cold_mechanism

    def compare(self, candidates: Sequence[Candidate], rounds: int) -> list[TrialResult]:
        """Time candidates alternately; see `Runner.compare`. A candidate that cannot be built gets its error as result,
        and the other candidates are compared."""
        results: dict[int, TrialResult] = {}
        for _ in range(_MOST_LOST_WORKERS):
            waiting = [number for number in range(len(candidates)) if number not in results]
            holders = dict(self._build(candidates, results, only=waiting, slot=0))
            if not holders:
                break
            built, workers = list(holders), set(holders.values())
            if len(workers) > 1:  # a worker was replaced meanwhile; the new one builds all candidates
                continue
            seconds = self.limits.run_seconds * len(built)
            outcome = self._ask(workers.pop(), seconds, "running", "compare", built, rounds, self.limits.minimum_us)
            if outcome is not None:
                together = outcome if isinstance(outcome, list) else [outcome] * len(built)
                results |= dict(zip(built, together))
                break
        return [results.get(number, _GONE) for number in range(len(candidates))]

    def _measured(self, worker: WorkerProcess | None, number: int, best_us: float) -> TrialResult | None:
        """Return the result of a candidate that a worker has built; None if that worker no longer exists."""
        if worker is None:
            return None
        limits = self.limits
        command = ("measure", number, best_us, limits.samples, limits.minimum_us, limits.stop_factor)
        result: TrialResult | None = self._ask(worker, limits.run_seconds, "running", *command)
        return result

    def _ask(self, worker: WorkerProcess, seconds: float, doing: str, *command: Any) -> Any:
        """Return the answer of a worker, or a failure if it dies or exceeds its time; None if it had died before.

        Args:
            seconds: time limit.
            doing: what the worker does, for the message of a failure.
            command: as for `WorkerProcess.ask`.
        """
        try:
            worker.ask(*command)
        except EOFError:
            self._drop(worker)
            return None
        return self._answer(worker, seconds, doing)

    def _answer(self, worker: WorkerProcess, seconds: float, doing: str) -> Any:
        try:
            return worker.answer(seconds)
        except (TimeoutError, EOFError) as error:
            return self._lost(worker, error, seconds, doing)

    def _lost(self, worker: WorkerProcess, error: BaseException, seconds: float, doing: str) -> TrialResult:
        if isinstance(error, TimeoutError):
            result = TrialResult(failure="timeout", error=f"no end after {seconds:g} s while {doing}; killed")
        else:
            failure, how = worker.how_it_died()
            result = TrialResult(failure=failure, error=f"the process died ({how}) while {doing}")
        self._drop(worker)
        return result

    def _begun(self, slot: int, number: int, candidate: Candidate) -> _Busy:
        """Let the worker of a slot build a candidate, or first prepare the candidate's task if the worker has another
        task."""

        def command(worker: WorkerProcess) -> tuple[Any, ...]:
            if candidate.index == VENDOR or worker.task == candidate.task:
                return "build", number, candidate
            return "prepare", candidate.task

        worker = self._send_command(slot, command)
        prepares = command(worker)[0] == "prepare"
        seconds = self.limits.preparing_seconds if prepares or candidate.index == VENDOR else self.limits.build_seconds
        return _Busy(number, worker, prepares, seconds, time.monotonic() + seconds)

    def _build(
        self,
        candidates: Sequence[Candidate],
        results: dict[int, TrialResult],
        only: Sequence[int] | None = None,
        slot: int | None = None,
    ) -> Iterator[tuple[int, WorkerProcess]]:
        """Build candidates, and add the results of candidates that fail to `results`.

        Args:
            candidates: all candidates.
            results: results by the number of the candidate.
            only: numbers of the candidates to build; None: all.
            slot: the only worker that builds; None: all workers build.

        Yields:
            The number of each candidate that was built, and the worker that holds it.
        """
        waiting = collections.deque(range(len(candidates)) if only is None else only)
        slots = list(range(len(self._workers))) if slot is None else [slot]
        busy: dict[int, _Busy] = {}
        built: dict[int, WorkerProcess] = {}
        while waiting or busy:
            for free in [s for s in slots if s not in busy][: len(waiting)]:
                number = waiting.popleft()
                busy[free] = self._begun(free, number, candidates[number])
            connections = {one.worker.connection: s for s, one in busy.items()}
            seconds_left = max(min(one.end for one in busy.values()) - time.monotonic(), 0)
            with self._without_turn():
                ready = wait(list(connections), seconds_left)
            late = [s for s, one in busy.items() if time.monotonic() >= one.end]
            for done in {*(connections[c] for c in ready), *late}:  # type: ignore[index]
                one = busy.pop(done)
                try:
                    result = one.worker.answer(0)
                except (TimeoutError, EOFError) as error:
                    result = self._lost(one.worker, error, one.seconds, "preparing" if one.prepares else "building")
                    lost = [n for n, holder in built.items() if holder is one.worker]
                    for n in lost:
                        del built[n]
                    waiting.extend(lost)
                if result.error is not None:
                    results[one.number] = result
                elif one.prepares:
                    one.worker.task = candidates[one.number].task
                    busy[done] = self._begun(done, one.number, candidates[one.number])
                else:
                    built[one.number] = one.worker
                    self._build_seconds[one.number] = result.build_seconds
        yield from built.items()
