"""Assigns tasks to the workers of a cluster, and again if a worker was lost."""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import dataclasses
import itertools
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from op_profiler.collection.lookup import stored_for
from op_profiler.dataset.address import absolute_address, parse_url
from op_profiler.errors import EXIT_ENVIRONMENT, OpProfilerError
from op_profiler.fleet import events, settings, work
from op_profiler.fleet.jobs import EndedTask, Job
from op_profiler.fleet.machine import FleetMachine
from op_profiler.fleet.needs import Needs, needs_text
from op_profiler.fleet.tasks import Answer, CollectTask, Task
from op_profiler.fleet.workforce import Workforce

if TYPE_CHECKING:
    from distributed import Future

    from op_profiler.collection.progress import Progress
    from op_profiler.fleet.cluster import Cluster

_LOG_SECONDS = 1.0
_HANDED_OUT = 2  # tasks a worker, so that none waits for the client
_DEATHS = 2  # of workers, from which on a task is suspected
_MOST_LOST = 20  # workers that died or were stopped while they had a task, though none may have begun it


class Dispatch:
    """One run of tasks over a cluster.

    If a worker dies, the measurement in progress is lost and its task goes to another worker. A task during which two
    workers died waits until all other tasks have ended, and is then tried once more, alone; the dataset stores this
    (`quarantine`). A worker that was ended on request did not die because of its task. A measurement on a drifting
    machine is repeated on another machine, if there is one; from then on, other machines are preferred. If the
    scheduler is restarted, it gets the unfinished tasks again; results in the dataset are not measured again.

    Args:
        each: run every task on every distinct device, not on any device of its kind.
        needs: requirements on machines besides the kind of target.
        total: number of tasks; None if it is not known in advance.

    Attributes:
        done: share of the tasks that are done, for the progress; set by the caller.
    """

    def __init__(
        self,
        cluster: Cluster,
        progress: Progress,
        *,
        each: bool = False,
        needs: Needs | None = None,
        total: int | None = None,
    ) -> None:
        self._cluster, self._progress, self._each, self._total = cluster, progress, each, total
        self._needs = needs or {}
        self._ended = 0
        self._next_log = 0.0
        self.done = 0.0
        self._workforce = Workforce(cluster, progress)
        self._jobs = itertools.count()
        self._waiting: collections.deque[Job] = collections.deque()
        self._suspected: collections.deque[Job] = collections.deque()
        self._handed_out: dict[Future[bytes], Job] = {}
        self._ours: set[str] = set()  # keys of tasks that are out
        self._begun: set[str] = set()  # of these
        self._devices: dict[tuple[str, ...], dict[str, None]] = {}  # that were there last, by kinds of targets
        self._jobs_each = 1  # a task, at most
        self._task: Task | None = None  # taken, and not among the jobs yet

    def run(self, tasks: Iterable[Task]) -> Iterator[EndedTask]:
        """Carry out tasks; a task is taken from the iterator when a worker becomes free.

        Raises:
            UsageError: the dataset is a file that not every worker can write.
            MeasureError: no suitable worker connects, or the scheduler does not answer.
        """
        left = iter(tasks)
        if link := self._cluster.dashboard:
            self._progress.note(f"Dask's pages: {link}")
        while True:
            with self._reconnecting(), self._listening():
                yield from self._carry_out(left)
                return
            self._waiting.extend(self._handed_out.values())
            self._handed_out.clear()

    def _carry_out(self, left: Iterator[Task]) -> Iterator[EndedTask]:
        from distributed import as_completed

        ended = as_completed(loop=self._cluster.client.loop)
        while True:
            for future in self._hand_out(left):
                ended.add(future)
            if not self._handed_out:
                self._log_progress(self._ended)
                return
            self._workforce.note_strangers()
            future = next(ended)
            over = self._over(future, self._handed_out[future])
            del self._handed_out[future]
            self._ours.discard(future.key)
            self._begun.discard(future.key)
            if over is not None:
                self._ended += 1
                yield over
            if time.monotonic() > self._next_log:
                self._log_progress(None if self._total is None else self._total * self._jobs_each)

    def _hand_out(self, left: Iterator[Task]) -> Iterator[Future[bytes]]:
        """Submit enough jobs that no worker waits; a job is removed from its list after the scheduler has it."""
        while len(self._handed_out) < self._most_out():
            if not self._waiting:
                self._task = self._task or next(left, None)
                self._waiting.extend(self._jobs_of(self._task))
                self._task = None
            jobs = self._waiting or (self._suspected if not self._handed_out else None)
            if not jobs:
                return
            future = self._submit(jobs[0])
            jobs.popleft()
            yield future

    def _most_out(self) -> int:
        """Return the largest number of submitted tasks: a few for each worker, and for one that may join."""
        return _HANDED_OUT * (len(self._workforce.all()) + 1)

    def _jobs_of(self, task: Task | None) -> list[Job]:
        """Return the job of a task, or with `each` one job per device."""
        if task is None:
            return []
        task = _with_absolute_paths(task)
        able: Needs = dict.fromkeys(map(settings.measures, task.kinds), 1) | self._needs
        db = task.request.db
        if db is not None and parse_url(db).get_backend_name() == "sqlite":
            self._workforce.refuse_strangers(db)
            able[settings.on_host(self._workforce.here)] = 1
        if task.kinds not in self._devices:  # of a later task that nobody is left for, its own jobs end
            self._workforce.wait_for(able)
        able[settings.MACHINE] = 1
        there = self._workforce.able(able).values()
        there_now = dict.fromkeys(m.measures[kind] for m in there for kind in task.kinds)
        devices = self._devices[task.kinds] = there_now or self._devices.get(task.kinds, {})
        wanted = [able | {device: 1} for device in devices if self._each] or [able]
        self._jobs_each = max(self._jobs_each, len(wanted))
        stored = frozenset() if self._each else _stored(task, there)
        return [Job(next(self._jobs), task, needs, stored) for needs in wanted]

    def _submit(self, job: Job) -> Future[bytes]:
        key = f"{job.task.name}-{job.index}-{time.time_ns():x}"
        needs = job.needs | self._workforce.where_it_is_stored(job)
        options: dict[str, Any] = {"resources": needs}
        if others := self._workforce.others(job):
            options["workers"] = others
        self._ours.add(key)
        task = job.task
        if isinstance(task, CollectTask) and job.deaths >= _DEATHS:
            task = msgspec.structs.replace(task, deaths=job.deaths)
        encoded = msgspec.msgpack.encode(task)
        future = self._cluster.client.submit(work.carry_out, encoded, key=key, **options)
        self._handed_out[future] = job
        return future

    def _over(self, future: Future[bytes], job: Job) -> EndedTask | None:
        """Return the outcome of a job; None if it must be repeated."""
        from distributed import KilledWorker
        from distributed.scheduler import NoValidWorkerError, NoWorkerError

        if future.status == "finished":
            # A worker may end before the answer is here, and those that Dask asks next too.
            with contextlib.suppress(KilledWorker, concurrent.futures.CancelledError):
                return self._judged(job, msgspec.msgpack.decode(future.result(), type=work.TaskOutcome))
        if future.status != "error":
            self._waiting.append(job)  # the scheduler forgot it
            return None
        error = future.exception()
        if isinstance(error, NoValidWorkerError | NoWorkerError):
            return self._nobody(job)
        if not isinstance(error, KilledWorker):
            code = error.exit_code if isinstance(error, OpProfilerError) else EXIT_ENVIRONMENT
            return EndedTask(job.index, job.task, error=str(error), error_code=code)
        if self._workforce.ended_on_request(error.last_worker.address):
            return self._handed_on(job)
        job.deaths += future.key in self._begun  # else it only stood in line on that worker
        job.lost += 1
        if job.deaths < _DEATHS and job.lost < _MOST_LOST:
            self._waiting.appendleft(job)
            return None
        if job.deaths == _DEATHS and job.lost < _MOST_LOST:
            note = f"{_DEATHS} workers died while they measured {job.task.name}"
            self._progress.note(f"{note}; it is retried once, after all other models")
            self._suspected.append(job)
            return None
        died = max(job.deaths, job.lost)
        reason = f"quarantined: {died} workers died during this request; repeat the command without --cluster"
        return self._given_up(job, reason)

    def _handed_on(self, job: Job) -> EndedTask | None:
        """Return the outcome of a job whose worker was ended on request, no crash; None if it must be repeated."""
        job.ended_workers += 1
        if job.ended_workers == _MOST_LOST:
            reason = f"quarantined: {_MOST_LOST} workers were stopped during this request; give jobs more time"
            return self._given_up(job, reason)
        self._progress.note(f"a worker was stopped while it had {job.task.name}; another worker gets the request")
        (self._suspected if job.deaths >= _DEATHS else self._waiting).appendleft(job)
        return None

    def _given_up(self, job: Job, reason: str) -> EndedTask:
        """Report the end of a job from this process, because no worker does."""
        done = events.TaskEnd("", job.task.name, 0.0, reason, None)
        self._cluster.client.log_event(events.FINISHED, msgspec.to_builtins(done))
        return EndedTask(job.index, job.task, error=reason)

    def _nobody(self, job: Job) -> EndedTask | None:
        """Return the outcome of a job for which no worker was found; None if a suitable worker is connected now."""
        job.stored = frozenset()
        if self._workforce.is_anybody_able(job.needs):
            self._waiting.append(job)
            return None
        needs = needs_text({name: amount for name, amount in job.needs.items() if name != settings.MACHINE})
        reason = f"no worker that {needs} was left at {self._cluster.address} for {settings.WAIT_SECONDS} s; start one"
        return self._given_up(job, reason)

    def _judged(self, job: Job, finished: work.TaskOutcome) -> EndedTask | None:
        """Return the answer to a job; None if it must be measured on another machine too."""
        machine = finished.machine
        for message in finished.messages:
            self._progress.problem(f"{machine.host}: {message}")
        failed = self._workforce.has_failed(job, machine, finished.error_code)
        drifted = self._workforce.has_drifted(job, machine, finished.deviation)
        if failed or (drifted and not self._each):
            self._waiting.append(job)
            return None
        if finished.answer is None:
            return EndedTask(job.index, job.task, machine, error=finished.error, error_code=finished.error_code)
        answer: Answer = msgspec.msgpack.decode(finished.answer, type=job.task.ANSWER)
        return EndedTask(job.index, job.task, machine, answer)

    # Events that the scheduler gets, and sends

    def _log_progress(self, total: int | None) -> None:
        """Log the progress of this run at the scheduler, which reports it on request."""
        self._next_log = time.monotonic() + _LOG_SECONDS
        client = self._cluster.client
        with contextlib.suppress(OSError, TimeoutError, RuntimeError):  # work goes on though nobody hears of it
            client.log_event(events.RUNS, msgspec.to_builtins(events.ClientRun(client.id, self._ended, total)))

    @contextlib.contextmanager
    def _listening(self) -> Iterator[None]:
        """Show the progress that the workers report."""

        def take(event: tuple[float, Any]) -> None:
            doing = msgspec.convert(event[1], events.Activity)
            if doing.key not in self._ours:
                return
            self._begun.add(doing.key)
            if doing.text:
                self._progress.step(f"{doing.host}: {doing.text}", self.done)

        client = self._cluster.client
        client.subscribe_topic(events.PROGRESS, take)
        try:
            yield
        finally:
            with contextlib.suppress(Exception):  # the client may be closed
                client.unsubscribe_topic(events.PROGRESS)

    @contextlib.contextmanager
    def _reconnecting(self) -> Iterator[None]:
        """Connect again if the scheduler was restarted inside the block; unfinished tasks are then repeated."""
        from distributed.comm.core import CommClosedError

        try:
            yield
        except (CommClosedError, OSError, TimeoutError, RuntimeError) as error:
            running = self._cluster.client.status == "running"
            if isinstance(error, OpProfilerError) or (running and not isinstance(error, CommClosedError)):
                raise
            self._progress.note(f"the scheduler at {self._cluster.address} is gone ({error}); waiting for it")
            self._cluster.reconnect()


def _with_absolute_paths(task: Task) -> Task:
    """Return an absolute path, because a worker runs in a separate folder, where a relative path is another dataset."""
    request = task.request
    if request.db is None:
        return task
    absolute = dataclasses.replace(request, db=absolute_address(request.db))
    return msgspec.structs.replace(task, request=absolute)


def _stored(task: Task, machines: Iterable[FleetMachine]) -> frozenset[str]:
    """Return the machines, among several different ones, whose results for a task are in the dataset already."""
    if not isinstance(task, CollectTask) or not task.request.build.on_host:
        return frozenset()
    identities = {machine.measures[kind] for machine in machines for kind in task.kinds}
    if len(identities) < 2:
        return frozenset()
    try:
        return frozenset(stored_for(task.request, identities))
    except (OpProfilerError, OSError):  # the model is only there
        return frozenset()
