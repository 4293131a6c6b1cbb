"""Tunes the heavy operators of a model: every trial into the dataset, the best into the schedule records."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast, get_args

from op_profiler.collect.study import Study
from op_profiler.measure._base import Cache, Device, Measurement, Settings

if TYPE_CHECKING:
    from pathlib import Path

    from op_profiler.dataset import Row
    from op_profiler.frontends._base import RelayModel
    from op_profiler.measure.trials import BoardRunner, TrialRunner
    from op_profiler.operators.extract import Occurrence
    from op_profiler.schedules.records import Conditions, Record
    from op_profiler.schedules.tuning._base import Candidate, TaskSpec, TrialResult
    from op_profiler.schedules.tuning.loop import Finalist, Search, Trial
    from op_profiler.schedules.tuning.tasks import Tunable

PARTIAL = (100, 300, 500, 1000)
"""Trials after which ``--ifpartial`` reports the best."""
_BUFFERED = 16


@dataclasses.dataclass(frozen=True)
class Tuned:
    """What the search for one anchor came to; all times in microseconds, measured side by side.

    Attributes:
        anchor: workload key of the anchor alone.
        operators: workload keys of the fused operators that hold it.
        default_us: of the schedule that the compiler takes without records; None where it has no time.
        best_us: of the fastest schedule.
        template: of the fastest schedule.
        trials, failed, new: candidates tried; of them failed, and measured by this run.
        partial_us: best after so many trials.
    """

    anchor: str
    operators: tuple[str, ...]
    default_us: float | None
    best_us: float | None
    template: str | None
    trials: int
    failed: int
    new: int
    partial_us: dict[int, float | None]


@dataclasses.dataclass
class ModelTuner(Study):
    """Searches for better schedules.

    Attributes:
        cache: state in which candidates are timed.
        runner: where candidates are timed on boards.
    """

    cache: Cache = "hot"
    runner: BoardRunner | None = None

    def run(self, model: RelayModel) -> list[dict[str, Any]]:
        """Tune one anchor after the other; a `Tuned` each, as plain values."""
        self.announce(stage="fusing")
        items, weight_bytes = tunables_of(model, self.target, set(self.tune.operators))
        results = []
        with contextlib.ExitStack() as stack:
            runner = self._runner(stack, weight_bytes)
            for done, item in enumerate(items):
                self.announce(stage="tuning", share=done / len(items), detail=f"{done + 1} of {len(items)} operators")
                results.append(dataclasses.asdict(self._tune(item, runner, done, len(items))))
        return results

    def _runner(self, stack: contextlib.ExitStack, weight_bytes: int) -> TrialRunner | BoardRunner:
        """On this machine, or on all boards of the key; with flushed weights where a model's do not fit the caches."""
        from op_profiler.measure.trials import BoardRunner, TrialRunner

        request = self.request
        if request.place is not None:
            boards = BoardRunner(request.target, str(self.target), request.place, self.threads)
            runner = stack.enter_context(boards)
            self.runner = runner
            return runner
        largest = self.device.l3_bytes or self.device.l2_bytes or 0
        self.cache = "cold" if weight_bytes > largest / 2 else "hot"
        return stack.enter_context(TrialRunner(str(self.target), self.threads, cache=self.cache, name=request.target))

    def device_of(self, result: TrialResult) -> Device:
        """The machine that a result is from."""
        return self.boards()[result.machine] if result.machine is not None else self.device

    def boards(self) -> dict[str, Device]:
        """The boards that candidates are timed on, by address; empty where that is this machine."""
        return self.runner.devices() if self.runner is not None else {}

    def _tune(self, item: Tunable, runner: TrialRunner | BoardRunner, done: int, count: int) -> Tuned:
        from op_profiler.schedules.tuning.loop import OperatorSearch
        from op_profiler.schedules.tuning.points import candidate_of

        self.dataset.add_anchor(item.anchor)
        keeper = _Keeper(self, item, runner)

        def on_trial(trial: Trial) -> None:
            keeper.add(trial)
            share = (done + min(keeper.count / self.tune.trials, 1.0)) / count
            best = f", best {keeper.best_us:.0f} us" if keeper.best_us < float("inf") else ""
            detail = f"{done + 1} of {count} operators, trial {keeper.count} of {self.tune.trials}{best}"
            self.announce(stage="tuning", share=share, detail=detail)

        file = self.request.record_file()
        present = self._present(item, file)
        known = [candidate_of(record, item.specs, self.target) for record in present]
        champion = next((candidate for candidate in known if candidate is not None), None)
        search = OperatorSearch(
            item.tasks,
            self.target,
            runner,
            tuner=self.tune.tuner,
            trials=self.tune.trials,
            seed=self.tune.seed,
            defaults=(item.default,) if item.default is not None else (),
            champion=champion,
            known=lambda spec: self._known(item, spec),
            on_trial=on_trial,
        ).run()
        keeper.flush()
        winner = winner_of(search, champion)
        if winner is not None:
            self._keep(item, search, winner, runner, present)
        return _tuned(item, search, winner)

    @property
    def conditions(self) -> Conditions:
        """Under which candidates are measured, and what is found holds."""
        from op_profiler.schedules.records import Conditions

        return Conditions(self.threads, self.cache)

    def _present(self, item: Tunable, file: Path | None) -> list[Record]:
        """The records that an anchor has under these conditions."""
        from op_profiler.schedules import records

        known = records.read_records(file)[0] if file is not None and file.is_file() else []
        wanted = records.computation_of(item.tasks[0].template, item.tasks[0].arguments)
        return [r for r in known if r.computation == wanted and r.conditions == self.conditions]

    def _known(self, item: Tunable, spec: TaskSpec) -> Mapping[str, TrialResult]:
        """What was tried before, on this machine or on any of the boards."""
        known: dict[str, TrialResult] = {}
        machines: dict[str | None, Device] = {address: device for address, device in self.boards().items()}
        for address, device in (machines or {None: self.device}).items():
            stored = self.dataset.trials_of(
                item.anchor.key,
                template=spec.template,
                device_key=device.key,
                threads=self.threads,
                cache=self.cache,
            )
            found = {row.schedule.key: trial_result(row.measurement) for row in stored}
            known |= {key: dataclasses.replace(result, machine=address) for key, result in found.items()}
        return known

    def _keep(
        self,
        item: Tunable,
        search: Search,
        winner: Finalist,
        runner: TrialRunner | BoardRunner,
        present: Sequence[Record],
    ) -> None:
        """The best of each template into the dataset as ``tuned``; the winner into the records."""
        from op_profiler.schedules import records

        settings = runner.settings()
        best = {f.candidate.task.template: f for f in reversed(search.finalists)}
        self.dataset.record_all(
            self.row(item, dataclasses.replace(f.schedule, origin="tuned"), settings, f.result) for f in best.values()
        )
        file = self.request.record_file()
        if file is None:
            return
        record = records.Record(
            str(self.target),
            winner.candidate.task.template,
            winner.candidate.task.arguments,
            winner.config,
            (winner.result.median_us / 1e6,),
            timestamp=time.time(),
            conditions=self.conditions,
        )
        if not records.keep(file, record, present):
            self.announce(problem=f"{item.anchor.name}: another run has written a record meanwhile, which stays")

    def row(self, item: Tunable, schedule: Any, settings: Settings, result: TrialResult) -> Row:
        """A row of the dataset for one candidate of an anchor."""
        from op_profiler.dataset import Row

        return Row(
            operator_key=item.anchor.key,
            schedule=schedule,
            settings=settings,
            device=self.device_of(result),
            measurement=measurement_of(result),
        )


class _Keeper:
    """Stores trials a batch at a time, so that a kill costs seconds of searching."""

    def __init__(self, tuner: ModelTuner, item: Tunable, runner: TrialRunner | BoardRunner) -> None:
        self._tuner = tuner
        self._item = item
        self._runner = runner
        self._settings: Settings | None = None
        self._rows: list[Row] = []
        self.count = 0
        self.best_us = float("inf")

    def add(self, trial: Trial) -> None:
        self.count += 1
        self.best_us = min(self.best_us, trial.result.median_us)
        if not trial.new:
            return
        if self._settings is None:
            self._settings = self._runner.settings()
        self._rows.append(self._tuner.row(self._item, trial.schedule, self._settings, trial.result))
        if len(self._rows) >= _BUFFERED:
            self.flush()

    def flush(self) -> None:
        self._tuner.dataset.record_all(self._rows)
        self._rows = []


def measurement_of(result: TrialResult) -> Measurement:
    """A trial as the dataset keeps it."""
    import numpy as np

    from op_profiler.measure.statistics import summarize

    if result.error is not None:
        return Measurement(error=f"{result.failure}: {result.error}")
    return summarize(np.asarray(result.samples_us)[:, None])


def trial_result(measurement: Measurement) -> TrialResult:
    """The inverse of `measurement_of`."""
    from op_profiler.schedules.tuning._base import Failure, TrialResult

    if measurement.error is not None:
        kind, _, text = measurement.error.partition(": ")
        failure = cast(Failure, kind) if kind in get_args(Failure) else "run"
        return TrialResult(failure=failure, error=text or kind)
    samples = tuple(row[0] for row in measurement.samples_us)
    return TrialResult(samples_us=samples, stopped_early=len(samples) == 1)


def tunables_of(model: RelayModel, target: Any, keys: set[str] | None) -> tuple[list[Tunable], int]:
    """What can be tuned in a model, without building it, and the bytes of all its weights.

    Args:
        keys: workload keys of the operators that are asked for; None for all that are heavy.
    """
    from op_profiler.operators.cost import HEAVY, size_bytes
    from op_profiler.operators.lower import optimize
    from op_profiler.schedules.record import recorded_schedules
    from op_profiler.schedules.templates import register_templates
    from op_profiler.schedules.tuning.tasks import tunables

    register_templates()
    occurrences = optimize(model, target)
    heavy = [o for o in occurrences if o.operator.anchor in HEAVY]
    wanted: list[Occurrence] = [o for o in heavy if keys is None or o.operator.key in keys]
    with recorded_schedules() as choices:
        for occurrence in {o.operator.key: o for o in wanted}.values():
            choices.weigh(occurrence, target)
    weights = sum(size_bytes(t) for o in occurrences for t in o.operator.params)
    return tunables(wanted, choices), weights


def winner_of(search: Search, champion: Candidate | None) -> Finalist | None:
    """The fastest, if it surely is faster than the champion, or where there is none, than the default; else these.

    Args:
        champion: what has been used so far.
    """
    first = search.finalists[0] if search.finalists else None
    known = next((f for f in search.finalists if f.candidate == champion), search.default)
    return first if first is None or known is None or _is_faster(first.result, known.result) else known


def _is_faster(one: TrialResult, other: TrialResult) -> bool:
    """Whether it surely is: the 95 % interval of the ratio of what was timed in turns says so."""
    import numpy as np

    from op_profiler.measure.statistics import median_interval

    ratios = [theirs / mine for mine, theirs in zip(one.samples_us, other.samples_us)]
    return median_interval(np.asarray(ratios))[0] > 1.0


def _tuned(item: Tunable, search: Search, winner: Finalist | None) -> Tuned:
    return Tuned(
        anchor=item.anchor.key,
        operators=item.operators,
        default_us=search.default.result.median_us if search.default else None,
        best_us=winner.result.median_us if winner else None,
        template=winner.candidate.task.template if winner else None,
        trials=len(search.trials),
        failed=sum(1 for t in search.trials if t.result.error is not None),
        new=sum(1 for t in search.trials if t.new),
        partial_us={n: search.best_after(n) for n in PARTIAL if n <= len(search.trials)},
    )
