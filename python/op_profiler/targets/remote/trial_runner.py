"""Distributes candidates of a search over the boards of a tracker, one at a time per board."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Any

from op_profiler.errors import BoardLostError, MeasureError
from op_profiler.measure.measurement import Cache, Device, Settings
from op_profiler.targets.machine import Place
from op_profiler.targets.remote.board import COLD_MECHANISM
from op_profiler.targets.remote.rpc import is_tracker, list_machines
from op_profiler.targets.remote.trial_worker import BoardWorker
from op_profiler.tuning.candidate import Candidate, TrialResult
from op_profiler.tuning.trials.process import WorkerProcess, forkserver, new_log
from op_profiler.tuning.trials.runner import TrialLimits
from op_profiler.tuning.trials.worker import WorkerSetup

_START_SECONDS = 90.0
_MOST_LOSSES = 2
_WAIT_SECONDS = 30.0
_PATIENCE_SECONDS = 120.0
_ASK_AGAIN_SECONDS = 5.0


@dataclasses.dataclass
class _Slot:
    """One board and the process that builds for it and times on it.

    Attributes:
        away_until: time at which a disconnected board is requested again.
    """

    address: str
    process: WorkerProcess | None = None
    device: Device | None = None
    away_until: float = 0.0


class BoardRunner:
    """A `Runner` on all boards that a tracker has under one key. It is a context manager, because it owns processes.

    Each board has its own process, which builds a candidate and times it on that board, so that no board waits for
    another. If a board disconnects, another board repeats its candidate, and the board is requested again every few
    seconds.

    Args:
        name: the target as the user wrote it.
        target: TVM target string of `name`.
        check: compare each candidate's output with numpy's, if the kind of its template is known.

    Raises:
        MeasureError: there is no such board.
    """

    def __init__(
        self,
        name: str,
        target: str,
        place: Place,
        threads: int,
        *,
        limits: TrialLimits | None = None,
        cache: Cache = "hot",
        check: bool = True,
    ) -> None:
        self.limits = limits or TrialLimits(build_seconds=60.0, run_seconds=120.0)
        addresses = _addresses(place)
        self._context = forkserver()
        self._log = new_log()
        self._setup = WorkerSetup(
            target=target,
            threads=threads,
            modules=(),
            memory_bytes=None,
            check=check,
            cache=cache,
            log=str(self._log),
            name=name,
            place=place,
        )
        self._slots = [_Slot(address) for address in addresses]

    def __enter__(self) -> BoardRunner:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        for slot in self._slots:
            if slot.process is not None:
                slot.process.kill()
        self._log.unlink(missing_ok=True)

    def devices(self) -> dict[str, Device]:
        """Return the boards that have answered so far, by address."""
        if all(slot.device is None for slot in self._slots):
            self._any()
        return {slot.address: slot.device for slot in self._slots if slot.device is not None}

    def run(self, candidates: Sequence[Candidate], best_us: float) -> list[TrialResult]:
        """Run candidates as in `Runner`; each result names its board."""
        waiting = collections.deque(range(len(candidates)))
        losses: collections.Counter[int] = collections.Counter()
        results: dict[int, TrialResult] = {}
        busy: dict[int, tuple[int, float]] = {}
        seconds = self.limits.build_seconds + self.limits.run_seconds
        while waiting or busy:
            for index, slot in enumerate(self._slots):
                if not waiting or index in busy or not self._ready(slot, alone=not busy):
                    continue
                if self._took_trial(slot, candidates[waiting[0]], best_us):
                    busy[index] = waiting.popleft(), time.monotonic() + seconds
            for index in self._answered(busy):
                number, _ = busy.pop(index)
                result = self._answer(self._slots[index], 0.0)
                if result.failure == "lost" and losses[number] < _MOST_LOSSES:
                    losses[number] += 1
                    waiting.append(number)
                    continue
                results[number] = result
                best_us = min(best_us, result.median_us)
        return [results[number] for number in range(len(candidates))]

    def compare(self, candidates: Sequence[Candidate], rounds: int) -> list[TrialResult]:
        """Compare candidates as in `Runner`, all on one board."""
        seconds = (self.limits.build_seconds + self.limits.run_seconds) * len(candidates)
        answer = self._ask(seconds, "compare_candidates", tuple(candidates), rounds, self.limits.minimum_us)
        return answer if isinstance(answer, list) else [answer] * len(candidates)

    def settings(self) -> Settings:
        """Return the requested settings of kernels, and the effective ones as read back from one of the boards."""
        answer = self._ask(self.limits.run_seconds, "read_back")
        if isinstance(answer, TrialResult):
            raise BoardLostError(f"the settings could not be read back: {answer.error}")
        return self._setup.settings(answer, "repeat" if self._setup.cache == "hot" else COLD_MECHANISM)

    def _ask(self, seconds: float, *command: Any) -> Any:
        """Return the answer of any board; if several boards were lost during the request, return the result of a lost
        board."""
        for _ in range(_MOST_LOSSES + 1):
            slot = self._any()
            assert slot.process is not None
            with contextlib.suppress(EOFError):  # it died while it was idle, which its answer tells as well
                slot.process.ask(*command)
            answer = self._answer(slot, seconds)
            if not isinstance(answer, TrialResult):
                break
        return answer

    def _took_trial(self, slot: _Slot, candidate: Candidate, best_us: float) -> bool:
        """Send a candidate to a board's process; return False if the process has died while idle. The next check then
        starts a new process."""
        limits = self.limits
        assert slot.process is not None
        try:
            slot.process.ask("trial", candidate, best_us, limits.samples, limits.minimum_us, limits.stop_factor)
        except EOFError:
            slot.process.kill()
            slot.process = None
            return False
        return True

    def _answered(self, busy: dict[int, tuple[int, float]]) -> list[int]:
        """Return the numbers of the boards that have answered, or from which no answer is expected any more."""
        connections = {self._connection(index): index for index in busy}
        end = min((end for _, end in busy.values()), default=time.monotonic())
        ready = wait(list(connections), max(min(end - time.monotonic(), _ASK_AGAIN_SECONDS), 0.0))
        late = [index for index, (_, until) in busy.items() if time.monotonic() >= until]
        return list({*(index for connection, index in connections.items() if connection in ready), *late})

    def _connection(self, index: int) -> Connection:
        process = self._slots[index].process
        assert process is not None
        return process.connection

    def _answer(self, slot: _Slot, seconds: float) -> Any:
        """Return the answer of a board's process; if the board is lost, its process is ended."""
        assert slot.process is not None
        try:
            answer = slot.process.answer(seconds)
        except (TimeoutError, EOFError) as error:
            how = "no answer in time" if isinstance(error, TimeoutError) else "its process died"
            answer = TrialResult(failure="lost", error=f"{slot.address}: {how}", machine=slot.address)
        parts = answer if isinstance(answer, list) else [answer]
        lost = next((a for a in parts if isinstance(a, TrialResult) and a.failure == "lost"), None)
        if lost is not None:
            with contextlib.suppress(OSError):
                slot.process.kill()
            slot.process = None
            slot.away_until = time.monotonic() + _ASK_AGAIN_SECONDS
            return lost
        return answer

    def _ready(self, slot: _Slot, *, alone: bool) -> bool:
        """Return whether a board can be given work; a disconnected board is requested again when it is due.

        Args:
            alone: no other board is working, so this call waits for one.

        Raises:
            BoardLostError: `alone`, and no board has come back for two minutes.
        """
        if slot.process is None and time.monotonic() >= slot.away_until:
            self._start(slot)
        if slot.process is not None:
            return True
        if alone and all(s.process is None for s in self._slots):
            self._any()
        return slot.process is not None

    def _any(self) -> _Slot:
        """Return a board that answers.

        Raises:
            BoardLostError: no board answers for two minutes.
        """
        end = time.monotonic() + _PATIENCE_SECONDS
        while True:
            for slot in self._slots:
                if slot.process is None:
                    self._start(slot)
                if slot.process is not None:
                    return slot
            if time.monotonic() > end:
                listed = ", ".join(slot.address for slot in self._slots)
                raise BoardLostError(f"none of {listed} has answered for {_PATIENCE_SECONDS:g} s; the trials are kept")
            time.sleep(_ASK_AGAIN_SECONDS)

    def _start(self, slot: _Slot) -> None:
        """Start a new process for a board; `slot.process` remains None if the board does not answer."""
        process = WorkerProcess(self._context, BoardWorker, dataclasses.replace(self._setup, address=slot.address))
        try:
            process.answer(_START_SECONDS)
            process.ask("describe")
            slot.device = process.answer(_START_SECONDS)
        except (TimeoutError, EOFError):
            with contextlib.suppress(OSError):
                process.kill()
            slot.away_until = time.monotonic() + _ASK_AGAIN_SECONDS
            return
        slot.process = process


def _addresses(place: Place) -> list[str]:
    """Return the addresses of all boards with the key; wait for the first one, which may be restarting."""
    if not is_tracker(place.host, place.port):
        return [f"{place.host}:{place.port}"]
    end = time.monotonic() + _WAIT_SECONDS
    while True:
        found = [machine.address for machine in list_machines(place.host, place.port) if machine.key == place.key]
        if found:
            return found
        if time.monotonic() > end:
            raise MeasureError(
                f"the tracker at {place.host}:{place.port} has no machine with key {place.key!r}; "
                f"op-profiler devices --host {place.host} --port {place.port} lists the machines"
            )
        time.sleep(1.0)
