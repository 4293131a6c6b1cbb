"""`Collection`: looks up stored results, and starts and supervises a worker process for each remaining model."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import secrets
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from op_profiler.collection import lookup
from op_profiler.collection.denormals import notes_on
from op_profiler.collection.progress import Progress, shown
from op_profiler.collection.request import CollectRequest, Studies
from op_profiler.collection.resume import StoredResults
from op_profiler.collection.studies.report import StudyReport
from op_profiler.collection.summary import ModelReport, ThreadReport
from op_profiler.collection.worker_process import WorkerOutcome, run_worker
from op_profiler.collection.worker_task import Work, WorkerTask
from op_profiler.dataset import Dataset
from op_profiler.errors import EXIT_ENVIRONMENT, OpProfilerError
from op_profiler.frontends.frontend import Frontend
from op_profiler.measure.background import report_background_load
from op_profiler.measure.measurement import Device
from op_profiler.option_values import threads_text
from op_profiler.resources import applied
from op_profiler.resources.resource import ResourceError
from op_profiler.schedules import records

if TYPE_CHECKING:
    from op_profiler.dataset.row import Failure

_MOST_CRASHES = 20
_MOST_STUDY_CRASHES = 3
_WHOLE = (0.0, 1.0)
_STAGES_OF_THE_WHOLE = (
    "compiling",
    "reading loops",
    "loading",
    "looking at values",
    "comparing with float32",
    "measuring",
)
"""Stages in which a crash may be due to the whole model, so that its operators are then measured one by one."""
_STUDIES: tuple[Work, ...] = ("tune", "compare", "vendor")
_TIMES_AS_LONG = {"tune": 6.0}
"""Estimated duration of studies, relative to measuring the model (default 1), for the progress bar."""


class Collection(contextlib.AbstractContextManager["Collection"]):
    """Collection of the models of one command into one dataset.

    Args:
        db: SQLAlchemy URL; the dataset is created if it does not exist.

    Attributes:
        deviation: largest deviation of a reference kernel from the machine's reference state during this collection,
            relative to the kernel's usual time; negative if the kernel was faster. None if unknown.
    """

    def __init__(self, db: str) -> None:
        self._db = db
        self._dataset: Dataset | None = None
        self.deviation: float | None = None
        self._looked_at_load = False

    def __exit__(self, *_: object) -> None:
        if self._dataset is not None:
            self._dataset.close()

    @property
    def dataset(self) -> Dataset:
        """The dataset, which is opened at the first access."""
        if self._dataset is None:
            self._dataset = Dataset.open(self._db)
        return self._dataset

    def run(self, frontend: Frontend, requests: Sequence[CollectRequest], progress: Progress) -> list[ModelReport]:
        """Collect one model after the other, and return a report for each request.

        If there are several requests, an unknown model becomes a report with an error, and the others are collected.

        Raises:
            OpProfilerError: a request is not valid, the only request names an unknown model, or the dataset cannot be
                used.
        """
        for request in requests:
            request.check()
        if len(requests) == 1:
            frontend.check(requests[0].build.model)
        self.dataset  # noqa: B018 - opened here, since what is wrong with it is the error of no model
        reports = []
        with shown(progress, len(requests)):
            for index, request in enumerate(requests):
                collect = self._studied if request.studies else self._one
                reports.append(collect(frontend, request, progress, index))
        for report in reports:
            if report.error is not None:
                progress.problem(f"error: {report.request.build.model.title}: {report.error}")
        return reports

    def _studied(self, frontend: Frontend, request: CollectRequest, progress: Progress, index: int) -> ModelReport:
        """Collect the model with default schedules, run the studies, and collect the model as requested."""
        without = dataclasses.replace(request.of(schedules=records.NONE), studies=Studies())
        asked = [work for work in _STUDIES if getattr(request.studies, work)]
        again: list[Work] = ["measure"] if request.build.schedules != records.NONE else []
        spans = iter(_spans(["measure", *asked, *again]))
        base = self._one(frontend, without, progress, index, next(spans))
        if not base.threads:
            return base
        heavy = frozenset(operator.key for operator, _ in base.heavy())
        found, seconds = StudyReport(), dict(base.stage_seconds)
        for work in asked:
            task = WorkerTask(request, work=work, operators=heavy)
            outcome = self._study(task, progress, index, next(spans))
            _add(seconds, outcome.seconds)
            if outcome.result is None:
                reason = outcome.error or f"the process died ({outcome.crash}) while {outcome.stage}"
                found = dataclasses.replace(found, problems=(*found.problems, f"{work}: {reason}"))
            else:
                found = found.with_result(work, outcome.result)
        report = base
        if again:
            report = self._one(frontend, request, progress, index, next(spans))
            _add(seconds, report.stage_seconds)
        return dataclasses.replace(report, base=base, studies=found, stage_seconds=seconds)

    def _study(self, task: WorkerTask, progress: Progress, index: int, span: tuple[float, float]) -> WorkerOutcome:
        """Run one study; if its process crashes, run it again, using the results that were stored before the crash."""
        seconds = dict[str, float]()
        for _ in range(_MOST_STUDY_CRASHES):
            outcome = run_worker(task, progress, index, span)
            _add(seconds, outcome.seconds)
            if outcome.crash is None:
                break
        outcome.seconds = seconds
        return outcome

    def _one(
        self,
        frontend: Frontend,
        request: CollectRequest,
        progress: Progress,
        index: int,
        span: tuple[float, float] = _WHOLE,
    ) -> ModelReport:
        progress.step(f"{request.build.model.title}: looking up", index + span[0])
        run_id = secrets.token_hex(8)
        try:
            frontend.check(request.build.model)
            found = self._stored_results(frontend, request, run_id)
        except OpProfilerError as error:
            return ModelReport(request, error=str(error), error_code=error.exit_code)
        if found is not None and (request.dry_run or found.answered >= set(request.build.threads)):
            outcome = WorkerOutcome(done=True, model_key=found.key)
        else:
            outcome = self._work_with_resources(WorkerTask(request, run_id=run_id), progress, index, span)
        return self._report(request, outcome, run_id)

    def _stored_results(self, frontend: Frontend, request: CollectRequest, run_id: str) -> lookup.StoredModel | None:
        """Return the stored model that matches a request; None if it is not stored.

        The result is also None if only a worker can identify the model, by lowering it or by opening the machine.
        """
        content, machine, dataset = frontend.fingerprint(request.build.model), request.machine(), self.dataset
        if content is None or machine is None:
            return None
        return lookup.find(dataset, request, request.base_key(content, machine), run_id)

    def _work_with_resources(
        self, task: WorkerTask, progress: Progress, index: int, span: tuple[float, float]
    ) -> WorkerOutcome:
        """Run workers with the requested resources, which child processes inherit, and restore the resources."""
        request = task.request
        if request.build.on_host and not request.dry_run and not self._looked_at_load:
            self._looked_at_load = True
            report_background_load(request.requested_resources(max(request.build.threads))["core_set"], progress.note)
        try:
            with applied(task.request.measuring.resources):
                return self._work(task, progress, index, span)
        except ResourceError as error:
            return WorkerOutcome(error=str(error), code=error.exit_code)

    def _work(self, task: WorkerTask, progress: Progress, index: int, span: tuple[float, float]) -> WorkerOutcome:
        """Run workers until the task is done; after a crash, start a new worker that skips the crashing operator."""
        key, seconds = "", dict[str, float]()
        for _ in range(_MOST_CRASHES):
            outcome = run_worker(task, progress, index, span)
            _add(seconds, outcome.seconds)
            outcome.seconds = seconds
            key = outcome.model_key = outcome.model_key or key
            if outcome.one_by_one is not None and not task.one_by_one:
                task = dataclasses.replace(
                    task, one_by_one=True, reason=outcome.one_by_one, excluded={**task.excluded, **outcome.excluded}
                )
                continue
            if outcome.crash is None:
                return outcome
            reason = f"the process died ({outcome.crash}) while {outcome.stage}"
            if outcome.operator is not None:
                task = dataclasses.replace(task, excluded={**task.excluded, outcome.operator: reason})
            elif task.one_by_one or outcome.stage not in _STAGES_OF_THE_WHOLE:
                outcome.error, outcome.code = f"{reason} {task.request.build.model.title}", EXIT_ENVIRONMENT
                return outcome
            task = dataclasses.replace(task, one_by_one=True, reason=task.reason or reason)
        outcome.error, outcome.code = f"{_MOST_CRASHES} worker processes died; {outcome.crash}", EXIT_ENVIRONMENT
        return outcome

    def _report(self, request: CollectRequest, outcome: WorkerOutcome, run_id: str) -> ModelReport:
        """Return the results of the model in the dataset; results with this `run_id` count as measured by this run."""
        key = outcome.model_key
        operators = tuple((o, len(positions)) for o, positions in self.dataset.model_operators(key))
        threads: dict[int, ThreadReport] = {}
        there = StoredResults(self.dataset, request, key, run_id)
        for count in () if request.dry_run else request.build.threads:
            stored, timing = there.rows(count), there.timing(count)
            if not stored and timing is None:
                continue
            complete = [row for row in stored.values() if row.complete]
            new = sum(1 for row in complete if row.run_id == run_id)
            if new and timing is not None:
                self._note_deviation(timing.timing.details.get("off_usual") or {})
            threads[count] = ThreadReport(
                settings=timing.settings if timing else next(iter(stored.values())).settings,
                timing=timing.timing if timing else None,
                measurements={k: row.measurement for k, row in stored.items()},
                measured=new,
                reused=len(complete) - new,
            )
        found, layers = self.dataset.find_model(key), self.dataset.layers_of(key)
        timings = [one.timing for one in threads.values() if one.timing is not None]
        shares = [timing.details.get("denormal") or {} for timing in timings]
        return ModelReport(
            request,
            key,
            operators,
            threads,
            outcome.error or _failure_of_the_whole(threads),
            outcome.code,
            (
                *(found.notes if found else outcome.notes),
                *notes_on(max(shares, key=len, default={}), [operator for operator, _ in operators], layers),
            ),
            agreement=found.agreement if found else None,
            launches=self.dataset.launches_of(key),
            templates=self.dataset.templates_of(key) if request.dry_run else {},
            layers=layers,
            batch_size=found.batch_size if found else None,
            kept_failures=self._kept_failures(request, key, run_id),
            run_id=run_id,
            stage_seconds=outcome.seconds,
        )

    def _note_deviation(self, shares: Mapping[str, float]) -> None:
        known = [] if self.deviation is None else [self.deviation]
        self.deviation = max((*known, *shares.values()), key=abs, default=None)

    def _kept_failures(self, request: CollectRequest, key: str, run_id: str) -> tuple[Failure, ...]:
        """Return the failures, under the request's settings, of operators that have a time in the dataset."""
        return tuple(
            f
            for f in self.dataset.failures(key)
            if f.timed_at is not None
            and (f.run_id == run_id or f.timed_at < f.failed_at)
            and (f.settings.cache, f.settings.threads in request.build.threads) == (request.build.cache, True)
        )


def describe_machine(request: CollectRequest, progress: Progress) -> Device:
    """Return the device that a request is measured on; if there are several boards, a free one.

    Raises:
        OpProfilerError: the machine does not exist or does not answer, or the worker crashed.
    """
    outcome = run_worker(WorkerTask(request, work="describe"), progress, 0, _WHOLE)
    if outcome.crash is not None:
        raise OpProfilerError(f"the process died ({outcome.crash}) while {outcome.stage}")
    if outcome.result is None:
        raise OpProfilerError(outcome.error or "the process reported no result")
    (fields,) = outcome.result
    return Device(**fields)


def _spans(works: Sequence[Work]) -> list[tuple[float, float]]:
    """Return the begin and end of each work within the progress of a model, from 0 to 1, one after the other."""
    ends = list(itertools.accumulate(_TIMES_AS_LONG.get(work, 1.0) for work in works))
    return [(begin / ends[-1], end / ends[-1]) for begin, end in zip([0.0, *ends], ends)]


def _failure_of_the_whole(threads: dict[int, ThreadReport]) -> str | None:
    """Return why a model has no time as a whole, at the thread counts concerned; None if it has all these times."""
    errors = {
        f"measured operator by operator, since {error}"
        if thread.measurements
        else f"{threads_text(count)}: {error}": None
        for count, thread in threads.items()
        if thread.timing is not None and (error := thread.timing.whole_model.error) is not None
    }
    return "; ".join(errors) or None


def _add(seconds: dict[str, float], more: Mapping[str, float]) -> None:
    """Add the durations `more` of stages to the durations `seconds`, in place."""
    for stage, spent in more.items():
        seconds[stage] = seconds.get(stage, 0.0) + spent
