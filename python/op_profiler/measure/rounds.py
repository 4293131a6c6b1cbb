"""Times a model and its kernels in rounds, interleaved over thread counts.

A round times the whole model, and walks over the kernels and times each of them; which of the two comes first
alternates. Each pass visits all thread counts, beginning with another thread count than the pass before. At each thread
count, the model runs once untimed, followed by a few rounds. The whole model, its operators and all thread counts are
therefore measured in the same minutes.

Rounds repeat until the 95 % interval of the median is within 1 % for the whole model and for every heavy operator at
every thread count, or until a limit is reached. After every window of at least 0.25 s, the background load and the
state of the cores are read. The rounds of a window under background load, or with cores that are slower or further
apart than usual, are discarded and repeated; after a time limit they are kept and marked. At the end of the rounds,
unsteady windows are repeated in the same way (`measure.quiet_rounds`).
"""

from __future__ import annotations

import copy
import dataclasses
import gc
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from op_profiler.measure.conditions import ConditionsOfWindow
from op_profiler.measure.disturbance import apart
from op_profiler.measure.host_state import HostState
from op_profiler.measure.limits import Limits
from op_profiler.measure.load import MINIMUM_SECONDS, ForeignLoad, LoadMeter
from op_profiler.measure.measurement import Cache
from op_profiler.measure.quiet_rounds import (
    STEADY_SHARE,
    QuietRounds,
    as_long_as_disturbed,
    quiet_rounds,
    shares_of_windows,
)
from op_profiler.measure.samples import Samples, heavy_operators, per_operator
from op_profiler.measure.statistics import relative_half_width
from op_profiler.measure.steadiness import SteadinessProbe
from op_profiler.targets.machine import Threads, TimedModel

_RUNS_BEFORE_ROUNDS = 3
_LONG_US = 1e5
"""A model that takes at least this long restores its cache state in one untimed run, not in `_RUNS_BEFORE_ROUNDS`."""
_MOST_ROUNDS_OF_VISIT = 8
_SHORT_ROUND_SECONDS = 1e-3
"""In shorter rounds, each timed call follows an untimed run, which costs almost nothing: a walk over the kernels leaves
other data in the caches than a run does, so the model would be 1 to 2 % slower (`benchmarks/settling.py`)."""
_SECONDS_OF_SHORT_READINGS = 0.1
_US_OF_READINGS = 2.5e5
"""Time after which no further reading is taken: five readings of a model that takes a second would last as long as
three rounds."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The result of the rounds. `converged`: by thread count, whether every required interval converged. `load_before`,
    `load_after`: share of the used cores or the GPU that other processes took, 0 to 1; None if unknown."""

    converged: dict[int, bool]
    rounds: int
    seconds: float
    load_before: float | None
    load_after: float | None


@dataclasses.dataclass(frozen=True)
class _Window:
    """The kept rounds of a window: samples by thread count, whether they were measured under background load, and their
    duration."""

    samples: dict[int, Samples]
    foreign: bool
    seconds: float


class Rounds:
    """Timing of one loaded model in rounds.

    Args:
        groups: index of the operator that each kernel computes, shape (kernels,).
        skipped: for each kernel, whether it runs without being timed, because it fails or its time is known.
        coverage: the heaviest operators that together make up this share of the model's time have to converge.
        meter: reads the background load; None if it cannot be read.
        probe: reference kernels, timed in each window of about 0.25 s; None if the machine has none.
        host: detects slow cores and cores that share no cache; None for no detection.
        conditions: reads the state of the machine between the passes over the thread counts; see `ConditionsOfWindow`.
    """

    def __init__(
        self,
        model: TimedModel,
        pool: Threads,
        *,
        threads: Sequence[int],
        cache: Cache,
        groups: Sequence[int] | np.ndarray,
        skipped: Sequence[bool],
        coverage: float,
        limits: Limits,
        meter: LoadMeter | None,
        probe: SteadinessProbe | None = None,
        host: HostState | None = None,
        conditions: Callable[[], dict[str, Any] | None] = lambda: None,
    ) -> None:
        self._meter = meter
        self._probe = probe
        self._host = host
        self._conditions = conditions
        self._loaded = self._model = model
        self._pool = pool
        self._threads = tuple(threads)
        self._cache = cache
        self._groups = np.asarray(groups, dtype=np.intp)
        self._skipped = np.asarray(skipped, dtype=bool)
        self._coverage = coverage
        self._limits = limits
        self._main = max(threads)
        self._runs_before = _RUNS_BEFORE_ROUNDS
        self._at: int | None = None  # the current thread count
        self._is_warm = False  # whether threads and caches are as after a run of the model
        self._passes = 0  # over all thread counts
        self._seconds: dict[int, float] = {}  # duration of the last round at each thread count
        self._repeated_seconds = 0.0
        self._before_us: dict[int, float] = {}  # the whole model before the rounds

    def whole_model_us(self, threads: int, rounds: Samples | None = None) -> float:
        """Return the median of a few runs of the whole model (a reading before or after the rounds), microseconds.

        A reading is repeated like a round if its runs scatter, or if it is slower than the rounds.

        Args:
            rounds: samples of the rounds at this thread count; None before the rounds.
        """
        self._use(threads)
        rounds_us = None if rounds is None else self._quiet(threads, rounds).median_us(rounds)
        while True:
            started = time.perf_counter()
            times = self._reading()
            median_us = float(np.median(times))
            if not self._repeats_reading(times, rounds_us):
                break
            self._repeated_seconds += time.perf_counter() - started
        self._runs_before = 1 if median_us >= _LONG_US else _RUNS_BEFORE_ROUNDS
        self._before_us.setdefault(threads, median_us)
        return median_us

    def _repeats_reading(self, times: list[float], rounds_us: float | None) -> bool:
        if self._repeated_seconds >= self._limits.repeat_seconds:
            return False
        low_us, median_us, high_us = (float(us) for us in np.quantile(times, [0.25, 0.5, 0.75]))
        slower = rounds_us is not None and median_us > rounds_us
        return apart(low_us, high_us) or (slower and apart(median_us, rounds_us))

    def _reading(self) -> list[float]:
        """Return times of the whole model, microseconds. For a short model, each time is the median of runs of another
        copy that together last as long as a disturbance; the first half of these times is left out, because an idle
        core and new copies are slow at first."""
        times = [self._run_alone()]
        if not times[0] < 1e6 * _SHORT_ROUND_SECONDS:
            while len(times) < self._limits.readings and sum(times) < _US_OF_READINGS:
                times.append(self._run_alone())
            return times
        runs = as_long_as_disturbed(times[0])
        ends = time.monotonic() + _SECONDS_OF_SHORT_READINGS
        while time.monotonic() < ends:
            self._move()
            times.append(float(np.median([self._run_alone() for _ in range(runs)])))
        return times[len(times) // 2 :]

    def _run_alone(self) -> float:
        self._prepare()
        return self._model.time_model()

    def _quiet(self, threads: int, samples: Samples) -> QuietRounds:
        return quiet_rounds(samples, noise=self._noise(threads), target=self._limits.target)

    def _noise(self, threads: int) -> float:
        return self._host.noise(threads) if self._host is not None else 0.0

    def run(self, samples: dict[int, Samples], checkpoint: Callable[[float], None]) -> Outcome:
        """Add rounds to `samples` until they converge or a limit ends them.

        Args:
            samples: by thread count; changed in place.
            checkpoint: called after each window with the finished share of the rounds (0 to 1).
        """
        before = None
        if self._meter is not None:
            self._meter.read()
            time.sleep(self._limits.window_seconds)
            before = self._meter.read()
        after = before
        kept = [_Window(copy.deepcopy(samples), any(samples[self._main].foreign), 0.0)]
        measured_seconds = 0.0
        with no_garbage_collection():
            while True:
                converged = {count: self._has_converged(count, samples) for count in self._threads}
                if all(converged.values()) or self._limits.reached(_fewest(samples), measured_seconds):
                    gone = self._drop_disturbed(samples, kept)
                    if not gone:
                        break
                    measured_seconds -= sum(window.seconds for window in gone)
                started = time.perf_counter()
                window = self._window(samples)
                after = self._load_of_window()
                seconds = time.perf_counter() - started
                foreign = after is not None and after.disturbs
                if (foreign or self._disturbed(window)) and self._repeated_seconds < self._limits.repeat_seconds:
                    for count, new in window.items():
                        samples[count].discarded += new.rounds
                    self._repeated_seconds += seconds
                    continue
                kept.append(_Window(window, foreign, seconds))
                measured_seconds += seconds
                for count, new in window.items():
                    samples[count].extend(new, foreign)
                checkpoint(self._limits.progress(_fewest(samples), measured_seconds))
        rounds = samples[self._main].rounds
        loads = [load.share if load is not None else None for load in (before, after)]
        return Outcome(converged, rounds, measured_seconds + self._repeated_seconds, *loads)

    def _drop_disturbed(self, samples: dict[int, Samples], kept: list[_Window]) -> list[_Window]:
        """Remove unsteady windows, or all windows if the model was faster before the rounds; return the removed ones.
        Nothing is removed if there is no time left to repeat rounds.

        Args:
            samples, kept: the same rounds; the returned windows are removed from both.
        """
        gone = np.zeros(len(kept), dtype=bool)
        for count, one in samples.items() if self._repeated_seconds < self._limits.repeat_seconds else ():
            quiet, before_us = self._quiet(count, one), self._before_us.get(count, np.nan)
            parts = [window.samples[count] for window in kept]
            if not quiet.is_steady:
                shares = shares_of_windows(parts, noise=self._noise(count), target=self._limits.target)
                gone |= np.array(shares) < STEADY_SHARE
            elif before_us < quiet.median_us(one) and apart(before_us, quiet.median_us(one)):
                gone |= np.array([part.rounds > 0 for part in parts])
        if not gone.any():
            return []
        dropped = [window for window, out in zip(kept, gone) if out]
        self._repeated_seconds += sum(window.seconds for window in dropped)
        kept[:] = [window for window, out in zip(kept, gone) if not out]
        for count, one in samples.items():
            one.discarded += sum(window.samples[count].rounds for window in dropped)
            one.clear()
            for window in kept:
                one.extend(window.samples[count], window.foreign)
        return dropped

    def _window(self, samples: dict[int, Samples]) -> dict[int, Samples]:
        """Run rounds for at least `window_seconds`, in passes over the thread counts; failures are counted in
        `samples`."""
        window = {count: Samples() for count in self._threads}
        self._move()
        exchanged_us = self._exchanged_us()
        self._read_state(window)
        if self._meter is not None:
            self._meter.read()
        conditions = ConditionsOfWindow(self._conditions)
        conditions.read()
        ends = time.monotonic() + self._limits.window_seconds
        wanted = self._wanted(samples)
        most = max(self._limits.maximum_rounds - samples[self._main].rounds, 1)
        while (left_seconds := ends - time.monotonic()) > 0 and window[self._main].rounds < most:
            rounds = min(self._rounds_of_visit(left_seconds), most - window[self._main].rounds)
            for count in self._order():
                self._use(count)
                for number in range(rounds):
                    self._add_round(count, window[count], wanted[count], number)
            self._passes += 1
            conditions.read()
        window[self._main].conditions = conditions.result()
        if exchanged_us:
            exchanged_us = [max(exchanged_us + self._exchanged_us())]
        for count, samples_of_window in window.items():
            samples_of_window.exchange_us = exchanged_us if count > 1 else []
            samples[count].count_failures(samples_of_window, self._groups, wanted[count])
        return window

    def _move(self) -> None:
        """Change to the next copy of the model, whose caches have to warm up."""
        self._model, self._is_warm = self._loaded.moved(), False

    def _load_of_window(self) -> ForeignLoad | None:
        """Return the background load during a window; None if unknown. If the rounds end before the meter can read the
        load, wait."""
        if self._meter is None:
            return None
        load = self._meter.read()
        if load is None:
            time.sleep(MINIMUM_SECONDS)
            load = self._meter.read()
        return load

    def _disturbed(self, window: dict[int, Samples]) -> bool:
        """Return whether the host disturbed a window: cores that share no cache, or a physical core."""
        if self._host is None:
            return False
        computed_us = {count: new.probe_us[0][0] for count, new in window.items() if new.probe_us}
        self._host.add(computed_us)
        return self._host.disturbs(computed_us, window[self._main].exchange_us)

    def _exchanged_us(self) -> list[float]:
        """Return one time of the exchange between cores, microseconds, in a list; an empty list if it is not measured.
        The exchange evicts the model's data from the caches."""
        if self._host is None or self._main == 1:
            return []
        self._use(self._main)
        self._is_warm = False
        return self._host.exchanged_us()

    def _order(self) -> tuple[int, ...]:
        """Return the thread counts of a pass, beginning with the last one of the previous pass, which is still set."""
        first = -self._passes % len(self._threads)
        return self._threads[first:] + self._threads[:first]

    def _rounds_of_visit(self, left_seconds: float) -> int:
        """Return the number of rounds at each thread count with which a pass fills the rest of the window, at most
        `_MOST_ROUNDS_OF_VISIT`; one round before the first round is timed."""
        seconds = sum(self._seconds.get(count, self._limits.window_seconds) for count in self._threads)
        return max(round(left_seconds / max(seconds, left_seconds / _MOST_ROUNDS_OF_VISIT)), 1)

    def _add_round(self, count: int, samples: Samples, timed: list[bool], number: int) -> None:
        """Run one round at the current thread count, round `number` of a visit, and add its times to the samples."""
        self._prepare()
        started = time.monotonic()
        whole_us, kernels_us = self._one_round(timed, (self._passes // len(self._threads) + number) % 2 == 0)
        self._seconds[count] = time.monotonic() - started
        # After walks with hot or cold caches, or over a short model, the caches are not as after a run of the model.
        self._is_warm = self._cache == "model" and self._seconds[count] >= _SHORT_ROUND_SECONDS
        samples.whole_us.append(whole_us)
        samples.kernels_us.append(kernels_us)

    def _use(self, count: int) -> None:
        """Set a thread count and run the model untimed, so that threads and caches are warm."""
        if self._at != count:
            self._pool.use(count)
            self._at, self._is_warm = count, False

    def _prepare(self) -> None:
        """Prepare a timed call: draw a stack offset, and run the model untimed if threads and caches need it."""
        if self._is_warm:
            self._model.move_stack()
        else:
            self._warm_up()

    def _warm_up(self) -> None:
        self._model.run_model()
        self._is_warm = True

    def _read_state(self, window: dict[int, Samples]) -> None:
        """Time the reference kernels, call overhead and launch gap, once per window. The reference kernels evict the
        model's data from the caches, so the model runs untimed a few times afterwards."""
        for count in reversed(self._order()):  # the rounds begin with the thread count that is set last
            samples = window[count]
            self._use(count)
            if self._probe is not None:
                samples.probe_us.append(self._probe.timed())
            overhead_us = self._model.call_overhead_us()
            if overhead_us is not None:
                samples.call_overhead_us.append(overhead_us)
            gap_us = self._model.launch_gap_us()
            if gap_us is not None:
                samples.launch_gap_us.append(gap_us)
        for _ in range(self._runs_before if self._probe is not None else 0):
            self._warm_up()

    def _one_round(self, timed: list[bool], whole_first: bool) -> tuple[float, list[float]]:
        """Return the times of the whole model and of its kernels, microseconds, measured in the requested order."""
        if whole_first:
            return self._model.time_model(), self._model.walk(self._cache, timed)
        kernels_us = self._model.walk(self._cache, timed)
        if self._cache != "model":
            self._model.run_model()  # restores the state of the caches
        return self._model.time_model(), kernels_us

    def _heavy(self, samples: dict[int, Samples]) -> np.ndarray:
        return heavy_operators(samples[self._main].matrix(), self._groups, self._coverage)

    def _wanted(self, samples: dict[int, Samples]) -> dict[int, list[bool]]:
        """Return for each thread count which kernels are timed.

        With the cache state ``model``, timing a light operator costs nothing, because it has to run anyway. Hot or cold
        caches cost a second call or a flush, so light operators are then timed at the largest thread count only.
        """
        able = ~self._skipped
        everywhere = able
        if self._cache != "model" and samples[self._main].rounds:
            everywhere = able & self._heavy(samples)[self._groups]
        return {c: list(able if c == self._main else everywhere) for c in self._threads}

    def _has_converged(self, count: int, samples: dict[int, Samples]) -> bool:
        one = samples[count]
        if one.rounds < self._limits.minimum_rounds:
            return False
        used = self._quiet(count, one).used
        times = per_operator(one.matrix()[used] - (one.overhead_us() or 0.0), self._groups)[:, self._heavy(samples)]
        columns = [column[~np.isnan(column)] for column in (np.asarray(one.whole_us)[used], *times.T)]
        return all(relative_half_width(column) <= self._limits.target for column in columns if len(column))


def _fewest(samples: dict[int, Samples]) -> int:
    return min(one.rounds for one in samples.values())


class no_garbage_collection:  # noqa: N801 - used like a statement
    """A context manager that disables Python's garbage collector while samples are taken."""

    def __enter__(self) -> None:
        gc.collect()
        gc.disable()

    def __exit__(self, *_: object) -> None:
        gc.enable()
