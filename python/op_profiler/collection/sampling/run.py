"""`measure_batches`: measures batches of operators until the requested number or the time limit is reached."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from op_profiler.building.build import fuse_operators
from op_profiler.building.requested_target import compiled_for
from op_profiler.collection.progress import shown
from op_profiler.collection.request import CollectRequest
from op_profiler.collection.sampling.batch import BATCH_SIZES, Batch
from op_profiler.collection.sampling.batches import batch_name, sampled
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.errors import (
    EXIT_ENVIRONMENT,
    EXIT_FAILURES_RECORDED,
    EXIT_OK,
    ModelError,
    OpProfilerError,
)
from op_profiler.frontends import FRONTENDS
from op_profiler.frontends.frontend import ModelRequest
from op_profiler.frontends.sample import AROUND_SAMPLED, batch_path, kept_batches, refused_by, write_batch
from op_profiler.json_text import brief
from op_profiler.measure.turns import WAITING, compiling
from op_profiler.targets.llvm.identity import processor_name
from op_profiler.targets.target import resolve_target, tvm_identity, use_build_for

if TYPE_CHECKING:
    from op_profiler.building.request import BuildRequest
    from op_profiler.collection.progress import Progress
    from op_profiler.collection.summary import ModelReport
    from op_profiler.collection.supervisor import Collection

MOST_EMPTY = 10
"""A run ends after this number of consecutive batches without a measured operator; more would probably fail too."""
_lowering = threading.Lock()  # one at a time in a process: the compiler is watched meanwhile


@dataclasses.dataclass
class SampleReport:
    """Results of a sampling run.

    Attributes:
        batches: number of batches.
        operators: number of sampled operators in batches with a time, including batches that an earlier run of the
            same command measured.
        measured, reused, failed: numbers of measurements that are new, were read from the dataset, or failed; these
            include operators that only surround sampled ones, such as copies.
        timings: number of times, new or reused.
        disturbed: number of times that predictors leave out, by reason.
        errors: errors of batches that could not be measured, and of operators that could not be lowered.
        error_code: `EXIT_ENVIRONMENT` if the machine or the dataset caused an error: a retry, or another machine, may
            help.
        models: keys of the batches in the dataset.
        seconds: duration of the run.
        ended: reason for the end: ``count``, ``budget`` or ``exhausted``.
    """

    batches: int = 0
    operators: int = 0
    measured: int = 0
    reused: int = 0
    failed: int = 0
    timings: int = 0
    disturbed: dict[str, int] = dataclasses.field(default_factory=dict)
    errors: list[str] = dataclasses.field(default_factory=list)
    error_code: int = EXIT_OK
    models: list[str] = dataclasses.field(default_factory=list)
    seconds: float = 0.0
    ended: str = "exhausted"

    __repr__ = brief

    def add(self, other: SampleReport) -> None:
        """Add the counts of another run; end and duration of this run are not changed."""
        for name in ("batches", "operators", "measured", "reused", "failed", "timings", "errors", "models"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.disturbed = dict(Counter(self.disturbed) + Counter(other.disturbed))
        self.error_code = self.error_code or other.error_code

    def fail(self, batch: str, error: str, code: int) -> None:
        """Store why times of a batch are missing; if `code` is `EXIT_ENVIRONMENT`, store it as `error_code`."""
        self.errors.append(f"{batch}: {error}")
        if code == EXIT_ENVIRONMENT:
            self.error_code = code


@dataclasses.dataclass
class EmptyBatches:
    """Detects a run that would never end, because it draws operators until `count` are measured, but none can be.

    Attributes:
        count, budget_seconds: as for `measure_batches`; a run with a budget ends in any case.
    """

    count: int | None
    budget_seconds: float | None
    _operators: int = 0
    _empty: int = 0

    def check(self, report: SampleReport) -> None:
        """Check the results of the run; call this method after each batch.

        Raises:
            OpProfilerError: no operator of the last `MOST_EMPTY` batches was measured; the message contains the error
                of the last batch.
        """
        self._empty = 0 if report.operators > self._operators else self._empty + 1
        self._operators = report.operators
        if self._empty >= MOST_EMPTY and self.count is not None and self.budget_seconds is None:
            last = f"; the last: {report.errors[-1]}" if report.errors else ""
            kind = OpProfilerError if report.error_code == EXIT_ENVIRONMENT else ModelError
            raise kind(
                f"{report.operators} of {self.count} operators, and none came of {self._empty} batches one after the "
                f"other{last}. Give other --kinds, --models or --target; what was measured is stored"
            )


def measure_batches(
    batches: Iterator[Batch],
    request: CollectRequest,
    collection: Collection,
    progress: Progress,
    *,
    count: int | None,
    budget_seconds: float | None,
) -> SampleReport:
    """Measure batch after batch; batches that are already in the dataset are not measured again.

    Args:
        request: request without a model.
        count: end after the batch with which this number of operators is reached; None for no limit.
        budget_seconds: after this time no further batch begins; the first batch is always measured. None for no limit.

    Raises:
        OpProfilerError: the request cannot be carried out, the dataset cannot be opened, or too many batches in a row
            had no measured operator (`EmptyBatches`).
    """
    request.check()
    _ = collection.dataset  # one that cannot be opened is refused now, and not batch after batch
    report = SampleReport()
    started = time.monotonic()
    empty = EmptyBatches(count, budget_seconds)
    with shown(progress, 1):
        for batch in batches:
            report.seconds = time.monotonic() - started
            if budget_seconds is not None and report.batches and report.seconds >= budget_seconds:
                report.ended = "budget"
                break
            steps = _Within(
                progress, batch.label, report.operators, _share_done(report, started, count, budget_seconds)
            )
            _measure(batch, request, collection, steps, report)
            if count is not None and report.operators >= count:
                report.ended = "count"
                break
            empty.check(report)
    report.seconds = round(time.monotonic() - started, 1)
    return report


def _share_done(
    report: SampleReport, started: float, count: int | None, budget_seconds: float | None
) -> Callable[[float], float]:
    """Return a function from the finished share of the current batch to the finished share of the run.

    A batch is assumed to have the average number of operators of the batches before it. Without `count` and
    `budget_seconds`, the length of the run is unknown, and the function returns 0.
    """
    operators, usual = report.operators, report.operators / report.batches if report.batches else BATCH_SIZES[0]

    def share(of_batch: float) -> float:
        if count is not None:
            return min((operators + of_batch * usual) / count, 1.0)
        return min((time.monotonic() - started) / budget_seconds, 1.0) if budget_seconds else 0.0

    return share


def _measure(
    batch: Batch, request: CollectRequest, collection: Collection, progress: Progress, report: SampleReport
) -> None:
    """Measure a batch; if it does not run as a whole, measure it again without the operators that failed."""
    report.batches += 1
    found = _collected(batch, frozenset(), request, collection, progress, report)
    broken = _broken(found) if found is not None else frozenset()
    if broken:
        _collected(batch, broken, request, collection, progress, report)


def _collected(
    batch: Batch,
    without: frozenset[str],
    request: CollectRequest,
    collection: Collection,
    progress: Progress,
    report: SampleReport,
) -> ModelReport | None:
    """Collect a batch without the operators in `without`, and add its results to the report.

    Returns:
        The results of the batch; None if the batch could not be created.
    """
    try:
        name = written(batch, request.build, progress, without=without)
    except OpProfilerError as error:
        report.fail(batch.label, str(error), error.exit_code)
        progress.problem(f"error: {batch.label}: {error}")
        return None
    found = collection.run(FRONTENDS.get("sample"), [of_batch(batch, name, request)], progress)[0]
    if not without:
        if _has_times(found):
            with batch_path(name).open() as file:
                report.operators += sum(1 for _ in file) - 1  # the first line says what the file is
        for reason in refused_by(name):
            report.fail(batch.label, reason, EXIT_FAILURES_RECORDED)
    if found.model_key:
        report.models.append(found.model_key)
    for threads in found.threads.values():
        report.measured += threads.measured
        report.reused += threads.reused
        report.failed += threads.failed
        report.timings += threads.timings
        report.disturbed = dict(Counter(report.disturbed) + threads.disturbed)
    if found.error is not None:
        report.fail(batch.label, found.error, found.error_code)
    return found


def _has_times(found: ModelReport) -> bool:
    """Return whether any sampled operator was measured; operators around the sampled ones do not count."""
    around = {operator.key for operator, _ in found.operators if list(operator.op_names) in AROUND_SAMPLED}
    times = [item for thread in found.threads.values() for item in thread.measurements.items()]
    return any(time.error is None and key not in around for key, time in times)


def _broken(found: ModelReport) -> frozenset[str]:
    """Return the workload keys of the operators that failed, if the model did not run as a whole."""
    whole = [
        thread for thread in found.threads.values() if thread.timing and thread.timing.whole_model.error is not None
    ]
    return frozenset(key for thread in whole for key, time in thread.measurements.items() if time.error is not None)


def of_batch(batch: Batch, name: str, request: CollectRequest) -> CollectRequest:
    """Return the request that collects a batch as a model.

    Args:
        name: name of the file that contains the batch.
        request: request without a model.
    """
    return request.of(model=ModelRequest(source="sample", name=name), precision=batch.precision)


def written(
    batch: Batch,
    request: BuildRequest,
    progress: Progress,
    *,
    target: str = "",
    processor: str = "",
    without: frozenset[str] = frozenset(),
) -> str:
    """Write a batch to a file, unless the file exists already, and return the name of the batch.

    Args:
        target: complete target of the machine that will measure the batch; empty for this machine.
        processor: processor of the machine that will measure the batch; empty for this machine.
        without: workload keys of operators to leave out.

    Raises:
        ModelError: no operator of the batch can be measured.
    """
    machine = request.target if not request.on_host else [request.target, processor or processor_name()]
    use_build_for(request.target, compiler=request.compiler)
    identity = batch.identity() if callable(batch.identity) else batch.identity
    parts = [identity, machine, tvm_identity(request.target, request.compiler)]
    base = batch_name(batch.label, [*parts, sorted(without)] if without else parts)
    records = request.usable_records()

    def named(asked: Iterable[str]) -> str:
        """Return the name of the batch; of the schedule records, only those that its operators look up affect it."""
        used = records.digest(asked)
        return f"{base}-{used}" if used else base

    for name, asked in kept_batches(base):
        if named(asked) == name:
            return name
    refused: list[str] = []
    with _lowering, compiling(lambda text: progress.step(text, 0.0)):
        progress.step("lowering", 0.0)
        load_tvm()
        resolved = compiled_for(request.kind, batch.precision, resolve_target(target or request.target))
        fused = fuse_operators(records, resolved, lambda: batch.operators(resolved, refused.append))
        name = named(fused.asked)
        kept = [sampled(operator) for operator in fused.occurrences if operator.operator.key not in without]
        if not kept:
            raise ModelError("none of its operators can be measured" + "".join(f"; {reason}" for reason in refused[:3]))
        write_batch(name, kept, fused.asked, refused, steps=batch.steps)
    return name


@dataclasses.dataclass(frozen=True)
class _Within:
    """Reports the progress of one batch as part of the progress of the run."""

    outer: Progress
    label: str
    operators: int
    share: Callable[[float], float]

    def start(self, models: int) -> None:
        """Do nothing, because the progress of the run is shown already."""

    def stop(self) -> None:
        """Do nothing, because the progress of the run is shown until the run ends."""

    def step(self, description: str, done_models: float) -> None:
        _, waits, holder = description.partition(WAITING)
        doing = waits + holder if waits else description.rpartition(": ")[2]
        self.outer.step(f"{self.operators} operators; {self.label}: {doing}", self.share(done_models))

    def note(self, text: str) -> None:
        self.outer.note(text)

    def problem(self, text: str) -> None:
        self.outer.problem(text)
