"""`Session`: measures one compiled model, and turns the samples into measurements of its operators."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from op_profiler.collection.counting import Count
from op_profiler.collection.request import CollectRequest
from op_profiler.cores import placement
from op_profiler.measure.between_runs import FEWEST_RUNS, History, MachineState, between_runs, waits
from op_profiler.measure.counters import Counted
from op_profiler.measure.disturbance import apart, disturbed_by
from op_profiler.measure.energy import energy_per_call_mj
from op_profiler.measure.host_state import HostState
from op_profiler.measure.limits import Limits
from op_profiler.measure.measurement import (
    KERNEL_UNCERTAINTY,
    LAUNCH_GAP_METHOD,
    Cache,
    Measurement,
    ModelTiming,
    Settings,
)
from op_profiler.measure.quiet_rounds import QuietRounds, quiet_rounds
from op_profiler.measure.rounds import Outcome, Rounds
from op_profiler.measure.samples import WHOLE_MODEL, Samples, heavy_operators, numbers
from op_profiler.measure.statistics import is_narrow, median_interval, summarize, widened
from op_profiler.measure.steadiness import PROBE_NAMES
from op_profiler.operators.cost import least_flops
from op_profiler.operators.operator import Operator
from op_profiler.resources import read_back
from op_profiler.targets.machine import Machine, TimedModel

NO_WHOLE = "the runtime there cannot run the model as a whole: there is only the sum of its operators"
_BATCH_US = 2e4
"""Duration of the calls between two readings of the energy counter, microseconds."""
_LEAST_US = 0.001
"""Smallest time that is stored, microseconds; a sample that the call overhead would make smaller gets this time."""


@dataclasses.dataclass(frozen=True)
class OperatorResult:
    """Result of one operator at one thread count."""

    operator: Operator
    settings: Settings
    measurement: Measurement


@dataclasses.dataclass(frozen=True)
class ThreadResult:
    """Results at one thread count: the operators and the whole model."""

    threads: int
    settings: Settings
    operators: tuple[OperatorResult, ...]
    timing: ModelTiming
    complete: bool


Checkpoint = Callable[[float, Callable[[], list[ThreadResult]]], None]
"""A function that is called with the finished share of the rounds and a function that returns the results so far."""


class Session:
    """Measurement of one loaded model under one request.

    Args:
        model: model on its device, ready to run.
        kernel_operators: operator of each kernel of `model`, in the same order.
        limits: limits of the rounds; None for those of the machine.
        count: function that reads the counters of each kernel after the rounds; None to read no counters.
        known: measurements that are not repeated (operators with hot or cold caches that were measured before), by
            thread count and workload key; their times are included in the sum of operators.
        remembered: whether the state of the machine in this run contributes to its reference state.
    """

    def __init__(
        self,
        request: CollectRequest,
        machine: Machine,
        model: TimedModel,
        kernel_operators: Sequence[Operator],
        *,
        limits: Limits | None = None,
        count: Count | None = None,
        known: dict[int, dict[str, Measurement]] | None = None,
        remembered: bool = True,
    ) -> None:
        self.request = request
        self.machine = machine
        self.model = model
        self.limits = limits or machine.limits
        keys = [operator.key for operator in kernel_operators]
        order = list(dict.fromkeys(keys))
        by_key = dict(zip(keys, kernel_operators))
        self.operators = [by_key[key] for key in order]
        self.groups = np.asarray([order.index(key) for key in keys], dtype=np.intp)
        self.pool = machine.threads
        self.errors: dict[int, str] = {}
        self._energy: dict[tuple[int, int | None], float | None] = {}
        self._counted: Counted = {}
        self._count = count
        self._known = known or {}
        self._remembered = remembered
        self._states: dict[int, MachineState] = {}
        self._host: HostState | None = None

    def check_kernels(self, step: Callable[[Operator], None]) -> None:
        """Run every kernel once with TVM's own checks, in order, and record the errors of kernels that fail.

        Args:
            step: called with the operator before each kernel, so that the last call shows which kernel crashed the
                process.
        """
        for index, group in enumerate(self.groups):
            step(self.operators[group])
            error = self.model.kernel_error(index)
            if error is not None:
                self.errors[int(group)] = error

    def measure(self, samples: dict[int, Samples], checkpoint: Checkpoint) -> list[ThreadResult]:
        """Run the rounds and return the results.

        Args:
            samples: samples by thread count, empty or from an earlier process of the same request; new samples are
                added to them.
            checkpoint: called after each window of rounds.
        """
        threads = self.request.build.threads
        probe = self.machine.steadiness_probe()
        if probe is not None and not self.request.measuring.resources:  # else nobody knows what is usual
            self._host = HostState(probe, self.machine.device, threads)
        rounds = Rounds(
            self.model,
            self.pool,
            threads=threads,
            cache=self.request.build.cache,
            groups=self.groups,
            skipped=[int(g) in self.errors or self._is_known(self.operators[g]) for g in self.groups],
            coverage=self.request.measuring.coverage,
            limits=self.limits,
            meter=self.machine.meter(max(threads)),
            probe=probe,
            host=self._host,
            conditions=self.machine.conditions,
        )
        before, settings = {}, {}
        for n in threads:
            before[n] = rounds.whole_model_us(n)
            settings[n] = self._settings(n)

        def so_far() -> list[ThreadResult]:
            return [self._result(n, settings[n], samples[n], None, before[n], None) for n in threads]

        outcome = rounds.run(samples, lambda share: checkpoint(share, so_far))
        if self._host is not None and self._remembered:
            self._host.keep()
        after = {n: rounds.whole_model_us(n, samples[n]) for n in threads}
        for one in samples.values():  # of an earlier process, whose rounds were enough
            gap_us = None if one.launch_gap_us else self.model.launch_gap_us()
            one.launch_gap_us += [] if gap_us is None else [gap_us]
        self._states = {n: state for n in threads if (state := self._state(n, samples[n])) is not None}
        self._measure_energy(samples)
        if self._count is not None:
            self._counted = self._count(threads)
        return [self._result(n, settings[n], samples[n], outcome, before[n], after[n]) for n in threads]

    def _quiet(self, threads: int, samples: Samples) -> QuietRounds:
        noise = self._host.noise(threads) if self._host is not None else 0.0
        return quiet_rounds(samples, noise=noise, target=self.limits.target)

    def _is_unsteady(self, quiet: QuietRounds, median_us: float | None, readings_us: Sequence[float | None]) -> bool:
        """Return whether the rounds scatter too much, or a time before or after them differs from their median."""
        return not quiet.is_steady or any(apart(reading_us, median_us) for reading_us in readings_us)

    def _state(self, threads: int, samples: Samples) -> MachineState | None:
        """Return the state of the machine during the run, and store it for later runs if `remembered` is true.

        Returns None without reference kernels, under background load, and if the user changed resources: the readings
        do not show the machine's own state then.
        """
        probe = self.machine.steadiness_probe()
        changed = self.request.measuring.resources
        if probe is None or not samples.probe_us or any(samples.foreign) or changed:
            return None
        history, found_us = History(self.machine.device, threads, probe.sizes_bytes), np.array(samples.probe_us)
        state = history.state(found_us)
        if self._remembered:
            history.add(found_us)
        return state

    def _between_runs(
        self, threads: int, rounds_us: np.ndarray, median_us: float | None, samples: Samples, group: int | None
    ) -> dict[str, Any]:
        """Return the fields of `Measurement` about other runs (`between_runs`) for an operator or the whole model.

        Args:
            rounds_us: time of each round, microseconds.
            group: index of the operator in `operators`; None for the whole model.
        """
        state = self._states.get(threads)
        if state is None or (group is not None and len(rounds_us) < samples.rounds):
            return {}
        of = [self.operators[group]] if group is not None else [self.operators[g] for g in self.groups]
        flops, moved = sum(least_flops(o) for o in of), sum(o.bytes_read + o.bytes_written for o in of)
        shares = waits(flops, moved, self.machine.device, threads)
        return dataclasses.asdict(between_runs(rounds_us, samples.window_rounds, state, shares, median_us))

    def _measure_energy(self, samples: dict[int, Samples]) -> None:
        """Measure the energy of the whole model and of each heavy operator, if the machine has an energy counter.

        The counter advances every few milliseconds at best, so an operator is called many times in a row. Its energy is
        therefore always that with hot caches, independent of the cache state of its times.
        """
        counter, wanted = self.machine.energy_mj, self.request.measuring.energy
        if wanted == "none" or counter() is None:
            return
        heavy = heavy_operators(samples[max(samples)].matrix(), self.groups, self.request.measuring.coverage)
        for threads in self.request.build.threads:
            self.pool.use(threads)
            self._energy[threads, None] = energy_per_call_mj(counter, self._run_model_once)
            for group in np.flatnonzero(heavy) if wanted == "operators" else ():
                if int(group) not in self.errors:
                    first = int(np.flatnonzero(self.groups == group)[0])
                    run = partial(self._run_for_a_while, first, samples[threads])
                    self._energy[threads, int(group)] = energy_per_call_mj(counter, run)

    def _run_model_once(self) -> int:
        self.model.run_model()
        return 1

    def _run_for_a_while(self, kernel: int, samples: Samples) -> int:
        """Call a kernel for about `_BATCH_US`, at least twice; return the number of calls, or 0 after a failure."""
        times_us = samples.matrix()[:, kernel]
        shortest_us = np.nanmin(times_us) if not np.isnan(times_us).all() else _BATCH_US
        calls = max(int(_BATCH_US / max(shortest_us, 0.1)), 2)
        return calls if self.model.repeat_kernel(kernel, calls) else 0

    def _is_known(self, operator: Operator) -> bool:
        return all(operator.key in self._known.get(n, {}) for n in self.request.build.threads)

    def _settings(self, threads: int) -> Settings:
        """Return the requested settings with effective values, read after a run of the model at this thread count."""
        build = self.request.build
        resources = read_back(of_gpu=build.kind.on_gpu) if build.place is None else {}
        return self.request.settings(
            threads,
            threads_effective=self.pool.effective_threads(),
            core_set_effective=self.pool.effective_core_set(),
            cache_mechanism=self.model.cache_mechanism(build.cache),
            **resources,
        )

    def _result(
        self,
        threads: int,
        settings: Settings,
        samples: Samples,
        outcome: Outcome | None,
        before: float | None,
        after: float | None,
    ) -> ThreadResult:
        overhead_us = samples.overhead_us()
        matrix = samples.matrix() - (overhead_us or 0.0)
        quiet = self._quiet(threads, samples)
        details = self._details(threads, samples, outcome) | placement(settings.core_set_effective)
        whole_us = np.asarray(samples.whole_us, dtype=np.float64)
        whole_error = NO_WHOLE if len(whole_us) and np.isnan(whole_us).all() else samples.failure(WHOLE_MODEL)
        if whole_error is not None:
            before, after = None, None
        median_us = quiet.median_us(samples) if whole_error is None else None
        of_run: dict[str, Any] = {
            "load_before": outcome.load_before if outcome else None,
            "load_after": outcome.load_after if outcome else None,
            "foreign_load": any(samples.foreign),
            "settled": outcome.converged[threads] if outcome else None,
            "disturbed_by": disturbed_by(details, unsteady=self._is_unsteady(quiet, median_us, (before, after))),
            "quiet_share": round(quiet.share, 4),
            "discarded_rounds": samples.discarded,
            "discarded_share": samples.discarded_share,
        }
        results = []
        for group, operator in enumerate(self.operators):
            measurement = self._of_operator(threads, group, matrix[:, self.groups == group], samples, quiet.used)
            if measurement is not None:
                if measurement.error is None:
                    settled = is_narrow(measurement, self.limits.target) if outcome else None
                    own = {"call_overhead_us": overhead_us, "settled": settled}
                    measurement = dataclasses.replace(measurement, **of_run | own)
                results.append(OperatorResult(operator, settings, measurement))
        whole = Measurement(error=whole_error, discarded_rounds=samples.discarded)
        if whole_error is None:
            whole = dataclasses.replace(self._of_model(threads, whole_us, samples, quiet.used), **of_run)
        total, missing = self._sum_us(threads, results)
        timed = {result.operator.key for result in results}
        details["reused_operators"] = len(self._known.get(threads, {}).keys() - timed)
        sums_us = matrix.sum(axis=1)[quiet.used]
        if total is not None and not np.isnan(sums_us).any():  # every kernel was timed in every round
            total = float(np.median(sums_us))
            if whole_error is None:
                details |= _ratios((sums_us + (samples.gap_us() or 0.0)) / whole_us[quiet.used])
        timing = ModelTiming(
            whole_model=whole,
            before_us=before,
            after_us=after,
            sum_of_operators_us=total,
            unmeasured=missing,
            coverage=self.request.measuring.coverage,
            details=details,
        )
        return ThreadResult(threads, settings, tuple(results), timing, complete=outcome is not None)

    def _of_model(self, threads: int, whole_us: np.ndarray, samples: Samples, used: np.ndarray) -> Measurement:
        """Return the measurement of the whole model; arguments as for `_of_operator`."""
        whole = summarize(whole_us[:, None], quiet=used)
        return dataclasses.replace(
            whole,
            **self._energies(threads, None),
            **self._between_runs(threads, whole_us, whole.median_us, samples, None),
            **self._counted.get((threads, None), {}),
        )

    def _of_operator(
        self, threads: int, group: int, columns: np.ndarray, samples: Samples, used: np.ndarray
    ) -> Measurement | None:
        """Return the measurement of an operator; None if the operator was not timed.

        Args:
            group: index of the operator in `operators`.
            columns: times of the operator's kernels, microseconds, shape (rounds, kernels).
            used: mask of the rounds that medians use, shape (rounds,).
        """
        error = self.errors.get(group) or samples.failure(group)
        if error is not None:
            return Measurement(error=error)
        timed = ~np.isnan(columns).any(axis=1)
        rows = columns[timed]
        if not len(rows):
            return None
        if np.median(rows.mean(axis=1)) < _LEAST_US:
            return Measurement(error=f"is not distinguishable from the cost of a call, {samples.overhead_us()} us")
        rows = np.maximum(rows, _LEAST_US)
        measurement = summarize(rows, quiet=used[timed] if used[timed].any() else None)
        return dataclasses.replace(
            widened(measurement, self.machine.device.properties.get(KERNEL_UNCERTAINTY) or 0.0),
            **self._energies(threads, group),
            **self._counted.get((threads, self.operators[group].key), {}),
            **self._between_runs(threads, rows.mean(axis=1), measurement.median_us, samples, group),
        )

    def _energies(self, threads: int, group: int | None) -> dict[str, Any]:
        """Return the energy fields of `Measurement` for an operator, or for the whole model if `group` is None."""
        energy_mj = self._energy.get((threads, group))
        state: Cache = "model" if group is None else "hot"
        return {"energy_mj": energy_mj, "energy_cache": state if energy_mj is not None else None}

    def _sum_us(self, threads: int, results: Sequence[OperatorResult]) -> tuple[float | None, tuple[str, ...]]:
        """Return the sum of medians times occurrences, microseconds, and the keys of the operators without a time.

        The sum is None if an operator has no time.
        """
        times = {key: m.median_us for key, m in self._known.get(threads, {}).items()}
        times |= {r.operator.key: r.measurement.median_us for r in results}
        missing = tuple(o.key for o in self.operators if times.get(o.key) is None)
        if missing:
            return None, missing
        return sum(float(times[o.key] or 0) * int(n) for o, n in zip(self.operators, np.bincount(self.groups))), ()

    def _details(self, threads: int, samples: Samples, outcome: Outcome | None) -> dict[str, Any]:
        """Return the details of a run for `ModelTiming.details`, which are not times of the model."""
        details: dict[str, Any] = {"rounds": samples.rounds, "running_seconds": self.machine.running_seconds()}
        gap_us = samples.gap_us()
        if gap_us is not None:
            details |= {"launch_gap_us": gap_us, "launch_gap_method": LAUNCH_GAP_METHOD}
        failed = {key: count for key, group in numbers(self.operators) if (count := samples.failed[group])}
        if failed:
            details["failed_rounds"] = failed
        uncertainty_us = self.machine.device.properties.get(KERNEL_UNCERTAINTY)
        if uncertainty_us is not None:
            details[KERNEL_UNCERTAINTY] = uncertainty_us
        if samples.conditions:
            details["conditions_windows"] = samples.conditions
        if samples.probe_us:
            windows = zip(samples.window_rounds, samples.probe_us)
            details["gauge_windows_us"] = [[rounds, *(round(us, 3) for us in probed)] for rounds, probed in windows]
            details["gauge_us"] = dict(zip(PROBE_NAMES, np.median(samples.probe_us, axis=0).round(3).tolist()))
            probe = self.machine.steadiness_probe()
            details["gauge_bytes"] = dict(zip(PROBE_NAMES, probe.sizes_bytes)) if probe is not None else None
        if self._host is not None:
            details |= self._host.stored_times(threads, samples.exchange_us)
        state = self._states.get(threads)
        if state is not None and state.runs_before >= FEWEST_RUNS:
            details["off_usual"] = dict(zip(PROBE_NAMES, np.expm1(state.deviation).round(4).tolist()))
        if outcome is not None:
            details["measuring_seconds"] = round(outcome.seconds, 3)
        return details


def _ratios(ratios: np.ndarray) -> dict[str, Any]:
    """Return the entries of `ModelTiming.details` about the ratio of operator sum to whole model in each round."""
    return {
        "ratio_per_round": float(np.median(ratios)),
        "ratio_per_round_ci": [end if np.isfinite(end) else None for end in median_interval(ratios)],
    }
