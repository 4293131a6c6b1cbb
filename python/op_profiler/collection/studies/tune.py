"""The study ``--iftune``: searches schedules for heavy operators, stores every trial, and records the winners."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, cast, get_args

import numpy as np

from op_profiler.collection.studies.in_model import MOST_CANDIDATES, InModel, OperatorCandidates, is_faster
from op_profiler.collection.studies.report import TuningResult
from op_profiler.collection.studies.study import Study
from op_profiler.compilers.compiler import compiler_in_use
from op_profiler.cores import usable_cores
from op_profiler.dataset import Row
from op_profiler.errors import MeasureError, ModelError
from op_profiler.measure.disturbance import UNSTEADY
from op_profiler.measure.limits import Limits
from op_profiler.measure.measurement import Cache, Device, Measurement, Settings
from op_profiler.measure.quiet_rounds import quiet_means
from op_profiler.measure.statistics import summarize
from op_profiler.operators.cost import size_bytes
from op_profiler.schedules import record_files, records
from op_profiler.schedules.records import Conditions
from op_profiler.targets.remote.trial_runner import BoardRunner
from op_profiler.tuning.candidate import Failure, TrialResult
from op_profiler.tuning.search import OperatorSearch, candidate_of
from op_profiler.tuning.trials.runner import TrialLimits, TrialRunner

if TYPE_CHECKING:
    from op_profiler.collection.studies.in_model import Decision
    from op_profiler.compilers.imported_model import ImportedModel
    from op_profiler.compilers.tvm_types import Target
    from op_profiler.schedules.records import Record
    from op_profiler.schedules.schedule import Schedule
    from op_profiler.tuning.candidate import Candidate, TaskSpec
    from op_profiler.tuning.search import Finalist, Search, Trial
    from op_profiler.tuning.tunable import Tunable

    _Found = tuple[Tunable, Search, Candidate | None, Cache]

PARTIAL = (100, 300, 500, 1000)
"""Numbers of trials after which ``--ifpartial`` reports the best schedule."""
_BUFFERED = 16
_GPU_BUILD_SECONDS = 10.0  # as AutoTVM has it: what takes longer is unrolled far too much
_GPU_RUN_SECONDS = 5.0  # of 226 kernels on an H100 two did not end, and all others waited
_GPU_TUNER = "trees"  # a search holds the turn while its tuner thinks: xgb_knob takes seconds, this half of one
_CORES_OF_SEARCH = 3
"""Number of cores per parallel search on a GPU: while a search waits for its slowest build, others use the cores."""


@dataclasses.dataclass
class ModelTuner(Study):
    """The study that searches for better schedules.

    Attributes:
        cache: cache state in which candidates of the current operator are timed.
        runner: runner that times candidates on boards; None on this machine.
        decided_in: ``model`` if the finalists are compared in the model; None if they are compared in isolation.
        began: seconds since 1970, the time stamp of the records.
    """

    cache: Cache = "hot"
    runner: BoardRunner | None = None
    decided_in: Cache | None = None
    began: float = dataclasses.field(default_factory=time.time)

    def run(self, model: ImportedModel) -> list[dict[str, Any]]:
        """Search schedules for each anchor, then choose among the finalists in the model.

        Returns:
            The fields of a `TuningResult` for each anchor.
        """
        self.announce(stage="fusing")
        items = tunables_of(model, self.target, self.operators, self.tune.space)[0]
        place = self._in_model(model)
        self.decided_in = "model" if place is not None else None
        states = place.cache_states(items) if place is not None else {}
        if self.build.place is None and self.build.kind.on_gpu:
            found = self._searched_at_once(items, states)
        else:
            found = self._searched_in_turn(items, states)
        self.announce(stage="tuning", share=1.0, detail="the finalists in the model")
        decisions = place.decide([self._entry(*one) for one in found]) if place is not None else {}
        return [dataclasses.asdict(self._decided(*one, decisions.get(one[0]))) for one in found]

    def _searched_in_turn(self, items: Sequence[Tunable], states: Mapping[str, Cache]) -> list[_Found]:
        found = []
        with contextlib.ExitStack() as stack:
            runners: dict[Cache, TrialRunner | BoardRunner] = {}
            for done, item in enumerate(items):
                self.announce(stage="tuning", share=done / len(items), detail=f"{done + 1} of {len(items)} operators")
                if self.build.place is None:  # on boards all trials run hot
                    self.cache = self._cache_of_trials(item) or states.get(item.anchor.key, "hot")
                if self.cache not in runners:
                    runners[self.cache] = self._runner(stack)
                found.append(self._search(item, runners[self.cache], done, len(items)))
        return found

    def _searched_at_once(self, items: Sequence[Tunable], states: Mapping[str, Cache]) -> list[_Found]:
        """Run several searches in parallel: while one search uses the GPU, dataset or compiler, the others build."""
        turn, cores = threading.Lock(), usable_cores()
        several = max(min(cores // _CORES_OF_SEARCH, len(items)), 1)

        def searched(number: int) -> _Found:
            with turn, contextlib.ExitStack() as stack:
                own = dataclasses.replace(self)
                own.cache = own._cache_of_trials(items[number]) or states.get(items[number].anchor.key, "hot")
                runner = own._runner(stack, cores=max(cores // several, 1), turn=turn)
                return own._search(items[number], runner, number, len(items))

        with ThreadPoolExecutor(several) as pool:
            return list(pool.map(searched, range(len(items))))

    def _cache_of_trials(self, item: Tunable) -> Cache | None:
        """Return the cache state with the most earlier trials of an anchor, to continue its search; None if untried."""
        counts: dict[Cache, int] = {"hot": 0, "cold": 0}
        for state in counts:
            self.cache = state
            counts[state] = sum(len(self._known(item, spec)) for spec in item.tasks)
        most = max(counts, key=counts.__getitem__)
        return most if counts[most] else None

    def _in_model(self, model: ImportedModel) -> InModel | None:
        """Return the model in which schedules are compared; None if they have to be compared in isolation.

        They are compared in isolation on boards, which searches occupy, under the executor ``vm``, and if the model
        does not run as a whole.
        """
        if self.build.place is not None or self.build.executor == "vm":
            return None
        try:
            return InModel(self, model)
        except (ModelError, MeasureError) as error:
            self.announce(problem=f"schedules are chosen in isolation, since the model does not run: {error}")
            return None

    def _runner(
        self, stack: contextlib.ExitStack, cores: int | None = None, turn: threading.Lock | None = None
    ) -> TrialRunner | BoardRunner:
        """Return a runner that times candidates on this machine, or on all boards with the requested key."""
        build = self.build
        if build.place is not None:
            boards = BoardRunner(build.target, str(self.target), build.place, self.threads)
            self.runner = stack.enter_context(boards)
            return self.runner
        runner = TrialRunner(
            str(self.target),
            self.threads,
            limits=TrialLimits(build_seconds=_GPU_BUILD_SECONDS, run_seconds=_GPU_RUN_SECONDS)
            if build.kind.on_gpu
            else None,
            cache=self.cache,
            name=build.target,
            cores=cores,
            turn=turn,
        )
        return stack.enter_context(runner)

    def device_of(self, result: TrialResult) -> Device:
        """Return the device on which a trial was measured."""
        return self.boards()[result.machine] if result.machine is not None else self.device

    def boards(self) -> dict[str, Device]:
        """Return the boards that candidates are timed on, by address; empty if candidates are timed on this machine."""
        return self.runner.devices() if self.runner is not None else {}

    def _search(self, item: Tunable, runner: TrialRunner | BoardRunner, done: int, count: int) -> _Found:
        """Search schedules for one anchor; return anchor, search, champion (schedule in use so far) and cache state."""
        self.dataset.add_anchor(item.anchor)
        keeper = _Keeper(self, item, runner)

        def on_trial(trial: Trial) -> None:
            keeper.add(trial)
            share = (done + min(keeper.count / self.tune.trials, 1.0)) / count
            best = f", best {keeper.best_us:.0f} us" if keeper.best_us < float("inf") else ""
            detail = f"{done + 1} of {count} operators, trial {keeper.count} of {self.tune.trials}{best}"
            self.announce(stage="tuning", share=share, detail=detail)

        known = [candidate_of(record, item.specs, self.target) for record in self._present(item, self.cache)]
        champion = next((candidate for candidate in known if candidate is not None), None)
        search = OperatorSearch(
            item.tasks,
            self.target,
            runner,
            tuner=self.tune.tuner or (_GPU_TUNER if self.build.kind.on_gpu else compiler_in_use().tuner),
            trials=self.tune.trials,
            seed=self.tune.seed,
            defaults=(item.default,) if item.default is not None else (),
            champion=champion,
            known=lambda spec: self._known(item, spec),
            on_trial=on_trial,
        ).run()
        keeper.flush()
        best = {f.candidate.task.template: f for f in reversed(search.finalists)}
        settings = runner.settings() if best else None
        rows = [
            self.row(item, dataclasses.replace(f.schedule, origin="tuned"), settings, f.result)
            for f in best.values()
            if settings is not None
        ]
        self.dataset.repeated(lambda: self.dataset.record_all(rows))
        return item, search, champion, self.cache

    def _conditions(self, cache: Cache) -> Conditions:
        """Return the conditions of the records of an operator whose candidates were timed in this cache state."""
        return Conditions(self.threads, self.decided_in or cache)

    def _present(self, item: Tunable, cache: Cache) -> list[Record]:
        """Return the records of an anchor in the record file that have the conditions of this study."""
        file = self.build.record_file()
        known = record_files.read_records(file)[0] if file is not None and file.exists() else []
        wanted = records.computation_of(item.tasks[0].template, item.tasks[0].arguments)
        return [r for r in known if r.computation == wanted and r.conditions == self._conditions(cache)]

    def _entry(self, item: Tunable, search: Search, champion: Candidate | None, cache: Cache) -> OperatorCandidates:
        """Return the candidates to compare in the model, without the default schedule.

        In this order: the best finalist of each template, the champion, the other finalists; at most `MOST_CANDIDATES`.
        """
        others = [f for f in search.finalists if f is not search.default]
        first = [next(f for f in others if f.candidate.task == task) for task in {f.candidate.task: 0 for f in others}]
        used = [f for f in others if f.candidate == champion]
        chosen = {f.candidate: self.record(f, cache) for f in (*first, *used, *others)}
        kept = tuple(chosen.values())[:MOST_CANDIDATES]
        return OperatorCandidates(item, kept, chosen[used[0].candidate] if used else None)

    def record(self, finalist: Finalist, cache: Cache) -> Record:
        """Return a finalist as a record with its time in isolation."""
        return records.Record(
            str(self.target),
            finalist.candidate.task.template,
            finalist.candidate.task.arguments,
            finalist.config,
            (finalist.result.median_us / 1e6,),
            timestamp=self.began,
            conditions=self._conditions(cache),
        )

    def _decided(
        self, item: Tunable, search: Search, champion: Candidate | None, cache: Cache, decision: Decision | None
    ) -> TuningResult:
        """Write the record of an anchor's fastest schedule, and return the result of its search.

        The fastest schedule is that in the model; if schedules were not compared in the model, that in isolation.
        """
        if decision is None and self.decided_in == "model":
            return _tuned(item, search, None, None)
        winner = winner_of(search, champion)
        if decision is not None:
            alike = [f for f in search.finalists if self.record(f, cache) == decision.winner]
            winner = alike[0] if alike else search.default
        file = self.build.record_file()
        if winner is not None and file is not None:
            record = self.record(winner, cache)
            if decision is not None:
                record = dataclasses.replace(record, seconds=(decision.winner_us / 1e6,))
            if not record_files.keep(file, record, self._present(item, cache)):
                self.announce(problem=f"{item.anchor.name}: another run has written a record meanwhile, which stays")
        return _tuned(item, search, winner, decision)

    def _known(self, item: Tunable, spec: TaskSpec) -> Mapping[str, TrialResult]:
        """Return earlier trials of a template on this machine or on any board, by schedule key.

        Trials that exceeded the time limit are left out, because background load can cause that.
        """
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
            lasting = {key: result for key, result in found.items() if result.failure != "timeout"}
            known |= {key: dataclasses.replace(result, machine=address) for key, result in lasting.items()}
        return known

    def row(self, item: Tunable, schedule: Schedule, settings: Settings, result: TrialResult) -> Row:
        """Return a dataset row with the measurement of one candidate of an anchor."""
        return Row(
            operator_key=item.anchor.key,
            schedule=schedule,
            settings=settings,
            device=self.device_of(result),
            measurement=measurement_of(result),
        )


class _Keeper:
    """Stores the trials of a search in batches of `_BUFFERED`, so that a kill loses only seconds of the search."""

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
        dataset = self._tuner.dataset
        dataset.repeated(lambda: dataset.record_all(self._rows))
        self._rows = []


def measurement_of(result: TrialResult) -> Measurement:
    """Convert the result of a trial to a measurement for the dataset."""
    if result.error is not None:
        return Measurement(error=f"{result.failure}: {result.error}")
    samples = np.asarray(result.samples_us)
    quiet = quiet_means(samples, target=Limits.target)
    return dataclasses.replace(
        summarize(samples[:, None], quiet=quiet.used),
        foreign_load=result.foreign_load,
        disturbed_by=None if quiet.is_steady else UNSTEADY,
    )


def trial_result(measurement: Measurement) -> TrialResult:
    """Convert a stored measurement back to the result of a trial; the inverse of `measurement_of`."""
    if measurement.error is not None:
        kind, _, text = measurement.error.partition(": ")
        failure = cast(Failure, kind) if kind in get_args(Failure) else "run"
        return TrialResult(failure=failure, error=text or kind)
    samples = tuple(row[0] for row in measurement.samples_us)
    stopped_early = len(samples) == 1
    return TrialResult(samples_us=samples, stopped_early=stopped_early, foreign_load=measurement.foreign_load)


def tunables_of(
    model: ImportedModel, target: Target, keys: Collection[str] | None = None, space: str | None = None
) -> tuple[list[Tunable], int]:
    """Return the tunable operators of a model, without building it, and the size of all its weights in bytes.

    Args:
        keys: workload keys of the requested operators; None for all heavy operators.
        space: search space, one of `Compiler.spaces`; None for the compiler's default.
    """
    compiler = compiler_in_use()
    items, occurrences = compiler.tunables(model, target, keys, space or compiler.spaces[0])
    return items, sum(size_bytes(t) for o in occurrences for t in o.operator.params)


def winner_of(search: Search, champion: Candidate | None) -> Finalist | None:
    """Return the fastest finalist if it is significantly faster than the champion; otherwise the champion.

    If the champion is None or not a finalist, the default schedule takes the place of the champion. If there are no
    finalists, the result is None.

    Args:
        champion: schedule in use so far; None if there is no record.
    """
    first = search.finalists[0] if search.finalists else None
    known = next((f for f in search.finalists if f.candidate == champion), search.default)
    if first is None or known is None or first is known:
        return first
    times = [np.asarray(f.result.samples_us) for f in (first, known)]
    return first if is_faster(*times) else known


def _tuned(item: Tunable, search: Search, winner: Finalist | None, decision: Decision | None) -> TuningResult:
    return TuningResult(
        anchor=item.anchor.key,
        operators=item.operators,
        default_us=search.default.result.median_us if search.default else None,
        best_us=winner.result.median_us if winner else None,
        template=winner.candidate.task.template if winner else None,
        trials=len(search.trials),
        failed=sum(1 for t in search.trials if t.result.error is not None),
        new=sum(1 for t in search.trials if t.new),
        default_in_model_us=decision.default_us if decision else None,
        best_in_model_us=decision.winner_us if decision else None,
        partial_us={n: search.best_after(n) for n in PARTIAL if n <= len(search.trials)},
    )
