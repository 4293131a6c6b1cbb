"""Measures one compiled model and turns the samples into measurements of its operators."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from op_profiler.collection.counting import Count, Counted
from op_profiler.collection.request import CollectRequest
from op_profiler.measure.between_runs import FEWEST_RUNS, History, MachineState, between_runs, waits
from op_profiler.measure.energy import energy_per_call_mj
from op_profiler.measure.host_state import HostState
from op_profiler.measure.measurement import Cache, Measurement, ModelTiming, Settings
from op_profiler.measure.rounds import Limits, Outcome, Rounds
from op_profiler.measure.samples import Samples, heavy_operators
from op_profiler.measure.statistics import median_interval, summarize
from op_profiler.measure.steadiness import PROBE_NAMES
from op_profiler.operators.operator import Operator
from op_profiler.resources import read_back
from op_profiler.targets.machine import Machine, TimedModel

NO_WHOLE = "the runtime there cannot run the model as a whole: there is only the sum of its operators"
_BATCH_US = 2e4
"""Of calls between two looks at the clock while energy is measured."""
_LEAST_US = 0.001
"""What times are stored in steps of; a round that its call cost more than is taken for as long."""


@dataclasses.dataclass(frozen=True)
class OperatorResult:
    """One operator at one thread count."""

    operator: Operator
    settings: Settings
    measurement: Measurement


@dataclasses.dataclass(frozen=True)
class ThreadResult:
    """Everything at one thread count: the operators, and the model beside them."""

    threads: int
    settings: Settings
    operators: tuple[OperatorResult, ...]
    timing: ModelTiming
    complete: bool


Checkpoint = Callable[[float, Callable[[], list[ThreadResult]]], None]
"""Takes the share that is done, and what tells the results so far."""


class Session:
    """One loaded model under one request.

    Args:
        model: on its device, ready to run.
        kernel_operators: the operator behind each kernel of `model`, in the same order.
        count: what takes counters of each kernel after the rounds.
        known: by thread count and workload key, what needs not be timed again (hot and cold operators that another
            model brought in); it counts in the sum.
        remembered: whether the state of the machine in this run tells later runs what is usual.
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
        """Run every kernel once with TVM's own checks, in order; remember what fails.

        Args:
            step: called before each kernel, so that the last call tells which one took the process down.
        """
        for index, group in enumerate(self.groups):
            step(self.operators[group])
            error = self.model.kernel_error(index)
            if error is not None:
                self.errors[int(group)] = error

    def measure(self, samples: dict[int, Samples], checkpoint: Checkpoint) -> list[ThreadResult]:
        """Run the rounds.

        Args:
            samples: by thread count, empty or what an earlier process of the same request left; added to.
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
        after = {n: rounds.whole_model_us(n) for n in threads}
        for one in samples.values():  # of an earlier process, whose rounds were enough
            gap_us = None if one.launch_gap_us else self.model.launch_gap_us()
            one.launch_gap_us += [] if gap_us is None else [gap_us]
        self._states = {n: state for n in threads if (state := self._state(n, samples[n])) is not None}
        self._measure_energy(samples)
        if self._count is not None:
            self._counted = self._count(threads)
        return [self._result(n, settings[n], samples[n], outcome, before[n], after[n]) for n in threads]

    def _state(self, threads: int, samples: Samples) -> MachineState | None:
        """The state that the run found the machine in, kept for the runs after it; None without a probe, under foreign
        load, which is no state of the machine, and with resources that the user changed."""
        probe = self.machine.steadiness_probe()
        changed = self.request.measuring.resources
        if probe is None or not samples.probe_us or any(samples.foreign) or changed:
            return None
        history, found_us = History(self.machine.device, threads, probe.sizes_bytes), np.array(samples.probe_us)
        state = history.state(found_us)
        if self._remembered:
            history.add(found_us)
        return state

    def _between_runs(self, threads: int, rounds_us: np.ndarray, samples: Samples, group: int | None) -> dict[str, Any]:
        """The fields of `Measurement` about other runs, of an operator; None: of the whole model."""
        state = self._states.get(threads)
        if state is None or (group is not None and len(rounds_us) < samples.rounds):
            return {}
        of = [self.operators[group]] if group is not None else [self.operators[g] for g in self.groups]
        flops, moved = sum(o.flops for o in of), sum(o.bytes_read + o.bytes_written for o in of)
        shares = waits(flops, moved, self.machine.device, threads)
        return dataclasses.asdict(between_runs(rounds_us, samples.window_rounds, state, shares))

    def _measure_energy(self, samples: dict[int, Samples]) -> None:
        """Energy of the whole model and of each heavy operator, where the machine has a counter.

        A counter moves every few milliseconds at best, so an operator is called many times in a row: its energy is that
        of hot caches, whatever state its times are of.
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
        """Call a kernel for some milliseconds, at least twice; how often."""
        times_us = samples.matrix()[:, kernel]
        shortest_us = np.nanmin(times_us) if not np.isnan(times_us).all() else _BATCH_US
        calls = max(int(_BATCH_US / max(shortest_us, 0.1)), 2)
        return calls if self.model.repeat_kernel(kernel, calls) else 0

    def _is_known(self, operator: Operator) -> bool:
        return all(operator.key in self._known.get(n, {}) for n in self.request.build.threads)

    def _settings(self, threads: int) -> Settings:
        """Asked for, and read back of the pool, which has just run the model with so many threads."""
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
        load_before, load_after = (outcome.load_before, outcome.load_after) if outcome else (None, None)
        foreign = any(samples.foreign)
        settled = outcome.settled if outcome else None
        overhead_us = samples.overhead_us()
        matrix = samples.matrix() - (overhead_us or 0.0)
        results = []
        for group, operator in enumerate(self.operators):
            columns = matrix[:, self.groups == group]
            rows = columns[~np.isnan(columns).any(axis=1)]
            if group in self.errors:
                measurement = Measurement(error=self.errors[group])
            elif len(rows) and np.median(rows.mean(axis=1)) < _LEAST_US:
                measurement = Measurement(error=f"cannot be told from the cost of a call, {overhead_us} us")
            elif len(rows):
                rows = np.maximum(rows, _LEAST_US)
                measurement = summarize(rows, load_before=load_before, load_after=load_after, foreign_load=foreign)
                energies = self._energies(threads, group) | self._counted.get((threads, operator.key), {})
                again = self._between_runs(threads, rows.mean(axis=1), samples, group)
                measurement = dataclasses.replace(
                    measurement, settled=settled, call_overhead_us=overhead_us, **energies, **again
                )
            else:
                continue
            results.append(OperatorResult(operator, settings, measurement))
        whole_us = np.asarray(samples.whole_us, dtype=np.float64)
        if len(whole_us) and np.isnan(whole_us).all():
            whole, before, after = Measurement(error=NO_WHOLE), None, None
        else:
            whole = summarize(
                whole_us[:, None],
                load_before=load_before,
                load_after=load_after,
                foreign_load=foreign,
            )
            again = self._between_runs(threads, whole_us, samples, None)
            whole = dataclasses.replace(whole, settled=settled, **self._energies(threads, None), **again)
            whole = dataclasses.replace(whole, **self._counted.get((threads, None), {}))
        timing = self._timing(threads, whole, results, samples, matrix, outcome, before, after)
        return ThreadResult(threads, settings, tuple(results), timing, complete=outcome is not None)

    def _energies(self, threads: int, group: int | None) -> dict[str, Any]:
        """The fields of `Measurement` about the energy of an operator; None: of the whole model."""
        energy_mj = self._energy.get((threads, group))
        state: Cache = "model" if group is None else "hot"
        return {"energy_mj": energy_mj, "energy_cache": state if energy_mj is not None else None}

    def _timing(
        self,
        threads: int,
        whole: Measurement,
        results: Sequence[OperatorResult],
        samples: Samples,
        matrix: np.ndarray,
        outcome: Outcome | None,
        before: float | None,
        after: float | None,
    ) -> ModelTiming:
        times = {key: m.median_us for key, m in self._known.get(threads, {}).items()}
        times |= {r.operator.key: r.measurement.median_us for r in results}
        missing = tuple(o.key for o in self.operators if times.get(o.key) is None)
        counts = np.bincount(self.groups)
        total = None if missing else sum(float(times[o.key] or 0) * int(n) for o, n in zip(self.operators, counts))
        details: dict[str, Any] = {"rounds": samples.rounds, "running_seconds": self.machine.running_seconds()}
        gap_us = samples.gap_us()
        if gap_us is not None:
            details["launch_gap_us"] = gap_us
        if samples.conditions:
            details["conditions_windows"] = samples.conditions
        ratios = (matrix.sum(axis=1) + (gap_us or 0.0)) / np.asarray(samples.whole_us)
        if total is not None and not np.isnan(ratios).any():  # every kernel was timed in every round
            details["ratio_per_round"] = float(np.median(ratios))
            details["ratio_per_round_ci"] = [end if np.isfinite(end) else None for end in median_interval(ratios)]
        if samples.probe_us:
            windows = zip(samples.window_rounds, samples.probe_us)
            details["gauge_windows_us"] = [[rounds, *(round(us, 3) for us in probed)] for rounds, probed in windows]
            details["gauge_us"] = dict(zip(PROBE_NAMES, np.median(samples.probe_us, axis=0).round(3).tolist()))
            probe = self.machine.steadiness_probe()
            details["gauge_bytes"] = dict(zip(PROBE_NAMES, probe.sizes_bytes)) if probe is not None else None
        if self._host is not None:
            details |= self._host.told(threads, samples.exchange_us)
        state = self._states.get(threads)
        if state is not None and state.runs_before >= FEWEST_RUNS:
            details["off_usual"] = dict(zip(PROBE_NAMES, np.expm1(state.deviation).round(4).tolist()))
        if outcome is not None:
            details |= {
                "repeated_rounds": outcome.repeated_rounds,
                "measuring_seconds": round(outcome.seconds, 3),
            }
        return ModelTiming(
            whole_model=whole,
            before_us=before,
            after_us=after,
            sum_of_operators_us=total,
            unmeasured=missing,
            coverage=self.request.measuring.coverage,
            details=details,
        )

    def restore(self, stored: dict[str, Measurement], whole: Measurement) -> Samples:
        """Samples of one thread count from what an earlier process stored; empty where they do not fit together.

        Hot and cold operators may have been timed in some of the rounds only (`Rounds._wanted`). In which is not told,
        and nothing depends on it: they come back in the first ones. What a call took then was taken off; what it takes
        now is put in its place, as it will be taken off of all rounds.
        """
        rounds = len(whole.samples_us)
        overheads_us = [kept.call_overhead_us for kept in stored.values() if kept.error is None]
        now_us = self.model.call_overhead_us() if overheads_us else None
        if any((one is None) != (now_us is None) for one in overheads_us):
            return Samples()  # an older version timed calls in another way
        matrix = np.full((rounds, len(self.groups)), np.nan)
        for group, operator in enumerate(self.operators):
            columns = np.flatnonzero(self.groups == group)
            kept = stored.get(operator.key)
            if kept is None or kept.error is not None:
                continue
            rows = np.asarray(kept.samples_us)
            expected = len(rows) if self.request.build.cache != "model" and len(rows) < rounds else rounds
            if rows.shape != (expected, len(columns)):
                return Samples()
            matrix[: len(rows), columns] = rows + (now_us or 0.0)
        return Samples(
            [row[0] for row in whole.samples_us],
            matrix.tolist(),
            [whole.foreign_load] * rounds,
            call_overhead_us=[] if now_us is None else [now_us],
        )
