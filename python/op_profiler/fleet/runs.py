"""Runs commands on a cluster: collects models, samples operators, calibrates machines and runs models side by side."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence

from op_profiler.collection.progress import Progress, shown
from op_profiler.collection.request import CollectRequest
from op_profiler.collection.sampling.calibrate import CalibrationResult
from op_profiler.collection.sampling.draw import Draw
from op_profiler.collection.sampling.run import EmptyBatches, SampleReport
from op_profiler.collection.summary import ModelReport
from op_profiler.errors import DatasetError, OpProfilerError, UsageError
from op_profiler.fleet.cluster import Cluster
from op_profiler.fleet.dispatch import Dispatch
from op_profiler.fleet.jobs import EndedTask
from op_profiler.fleet.machine import FleetMachine
from op_profiler.fleet.needs import Needs
from op_profiler.fleet.tasks import CalibrateTask, CollectTask, CorunTask, SampleTask
from op_profiler.parallel.corun.request import CorunRequest

_MOST_FAILED = 5
"""Number of consecutive failed batches after which a run ends, because the next ones would fail too."""


def collect(
    cluster: Cluster,
    requests: Sequence[CollectRequest],
    progress: Progress,
    *,
    each: bool = False,
    needs: Needs | None = None,
) -> list[ModelReport]:
    """Carry out requests as `reports` does, and return all reports in the order of the requests."""
    found = reports(cluster, requests, progress, each=each, needs=needs)
    return [report for _, report in sorted(found, key=lambda one: one[0])]


def reports(
    cluster: Cluster,
    requests: Sequence[CollectRequest],
    progress: Progress,
    *,
    each: bool = False,
    needs: Needs | None = None,
) -> Iterator[tuple[int, ModelReport]]:
    """Carry out collection requests on free machines of a cluster, by the rules of `Dispatch`.

    Args:
        each: whether every request is carried out on every distinct device; otherwise on one device of its kind.
        needs: requirements on machines in addition to the kind of target (`parse_needs`).

    Yields:
        Pairs of a number, by which reports can be sorted in the order of the requests, and a report, in the order in
        which they arrive; with `each`, one pair for each request and device. The report of a request that could not be
        carried out contains an error.

    Raises:
        UsageError: the dataset is a file that not every worker can write.
        MeasureError: no suitable worker connects, or the scheduler does not answer.
    """
    dispatch = Dispatch(cluster, progress, each=each, needs=needs, total=len(requests))
    with shown(progress, len(requests)):
        for ended in dispatch.run(map(CollectTask, requests)):
            dispatch.done += 1
            task, report = ended.task, ended.answer
            assert isinstance(task, CollectTask)
            if not isinstance(report, ModelReport):
                report = ModelReport(task.request, error=ended.error, error_code=ended.error_code)
            progress.step(ended.task.name, dispatch.done)
            yield ended.index, report


def sample(
    cluster: Cluster,
    draw: Draw,
    request: CollectRequest,
    progress: Progress,
    *,
    count: int | None,
    budget_seconds: float | None,
    each: bool = False,
    needs: Needs | None = None,
) -> SampleReport:
    """Measure batches of sampled operators on a cluster (as `measure_batches` does on one machine).

    Each batch is measured on one machine.

    Args:
        count: no batch is submitted after this number of operators was measured; None for no limit.
        budget_seconds: no batch is submitted after this time; None for no limit. Submitted batches are finished.
        each: whether every batch is measured on every distinct device; `count` is then for all devices together.
        needs: as for `reports`.

    Raises:
        UsageError, MeasureError: as for `reports`.
        OpProfilerError: several batches in a row failed, or had no measured operator (`EmptyBatches`).
    """
    whole, started = SampleReport(ended=""), time.monotonic()
    dispatch = Dispatch(cluster, progress, each=each, needs=needs)
    numbers, out = itertools.count(), dict[int, int]()  # about how many operators are being measured, by batch
    total = float(count) if count is not None else (budget_seconds or 0.0)

    def batches() -> Iterator[SampleTask]:
        """Yield tasks for batches until enough operators are measured or in progress, by their expected numbers."""
        while not _ended(whole, started, count, budget_seconds):
            if count is not None and whole.operators + sum(out.values()) >= count:
                return
            number = next(numbers)
            out[number] = draw.points_of(number)
            yield SampleTask(request, draw, number)

    failed, empty = 0, EmptyBatches(count, budget_seconds)
    with shown(progress, 1):
        while not _ended(whole, started, count, budget_seconds):
            for ended in dispatch.run(batches()):
                assert isinstance(ended.task, SampleTask)
                if not each:  # else other devices still have it
                    out.pop(ended.task.number, None)
                failed = 0 if _count(whole, ended, progress) else failed + 1
                if failed == _MOST_FAILED:
                    raise OpProfilerError(f"{failed} batches failed one after the other; the last: {whole.errors[-1]}")
                if not whole.ended:
                    empty.check(whole)
                done = whole.operators if count is not None else time.monotonic() - started
                dispatch.done = min(done / total, 1.0) if total else 0.0
            out.clear()  # fewer operators came of them than was expected
    whole.seconds = round(time.monotonic() - started, 1)
    return whole


def _ended(whole: SampleReport, started: float, count: int | None, budget_seconds: float | None) -> bool:
    """Return whether a sampling run must end, and store the reason in `whole`."""
    if not whole.ended and budget_seconds is not None and time.monotonic() - started >= budget_seconds:
        whole.ended = "budget"
    if not whole.ended and count is not None and whole.operators >= count:
        whole.ended = "count"
    return bool(whole.ended)


def _count(whole: SampleReport, ended: EndedTask, progress: Progress) -> bool:
    """Add the result of a batch to the report; return whether the batch could be measured.

    A result without a batch ends the run, because the draw has no more batches.

    Raises:
        UsageError: the request cannot be measured with any batch.
    """
    if not isinstance(ended.answer, SampleReport):
        if ended.error_code == UsageError.exit_code:
            raise UsageError(ended.error)
        whole.errors.append(f"{ended.task.name}: {ended.error}")
        progress.problem(f"error: {whole.errors[-1]}")
        return False
    if ended.answer.batches:
        whole.add(ended.answer)
    else:
        whole.ended = "exhausted"
    return not ended.answer.error_code


def calibrate(
    cluster: Cluster,
    request: CollectRequest,
    progress: Progress,
    *,
    budget_seconds: float,
    seed: int,
    needs: Needs | None = None,
) -> list[tuple[FleetMachine, CalibrationResult]]:
    """Calibrate every distinct machine of a cluster; with `needs`, only the machines that meet these requirements.

    Args:
        budget_seconds, seed: as for `op_profiler.collection.sampling.calibrate.calibrate`.

    Raises:
        DatasetError: the calibration of a machine failed; the other machines are calibrated nevertheless.
        UsageError, MeasureError: as for `reports`.
    """
    dispatch = Dispatch(cluster, progress, each=True, needs=needs)
    found: list[tuple[FleetMachine, CalibrationResult]] = []
    failed: list[EndedTask] = []
    with shown(progress, 1):
        for ended in dispatch.run([CalibrateTask(request, budget_seconds, seed)]):
            if isinstance(ended.answer, CalibrationResult) and ended.machine is not None:
                found.append((ended.machine, ended.answer))
            else:
                failed.append(ended)
    if failed:
        done = f"; calibrated: {', '.join(machine.host for machine, _ in found)}" if found else ""
        raise DatasetError("; ".join(ended.error for ended in failed) + done)
    return found


def corun(
    cluster: Cluster,
    requests: Sequence[CorunRequest],
    progress: Progress,
    *,
    each: bool = False,
    needs: Needs | None = None,
) -> list[EndedTask]:
    """Run models side by side on machines of a cluster.

    Args:
        each, needs: as for `reports`.

    Returns:
        The ended task of each request, and with `each` of each request and device, in the order of the requests. Its
        answer is a `CorunAnswer`.

    Raises:
        UsageError, MeasureError: as for `reports`.
    """
    dispatch = Dispatch(cluster, progress, each=each, needs=needs, total=len(requests))
    found: list[EndedTask] = []
    with shown(progress, len(requests)):
        for ended in dispatch.run(map(CorunTask, requests)):
            found.append(ended)
            dispatch.done += 1
            progress.step(ended.task.name, dispatch.done)
    return sorted(found, key=lambda ended: ended.index)
