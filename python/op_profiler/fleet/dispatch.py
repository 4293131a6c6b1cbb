"""`Dispatch`: submits tasks to the workers of a cluster, and again if a worker is lost."""

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
    """One run of tasks on a cluster.

    If a worker dies, the measurement in progress is lost, and another worker gets the task. A task during which two
    workers died waits until all other tasks have ended, and is then tried once more while no other task runs; the
    dataset stores this (`quarantine`). If a worker was ended on request, the task is not the reason. A measurement on a
    drifting machine is repeated on another machine, if one is connected; from then on, other machines are preferred. If
    the scheduler is restarted, the unfinished tasks are submitted again; results in the dataset are not measured again.

    Args:
        progress: displays progress and notes.
        each: whether every task runs on every distinct device; otherwise it runs on one device of its kind.
        needs: requirements on machines in addition to the kind of target.
        total: number of tasks; None if it is not known in advance.

    Attributes:
        done: progress, in the caller's unit, that is displayed with the steps of workers; the caller sets it.
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
        """Carry out tasks, and yield each as it ends; tasks are taken from the iterator as workers become free.

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
        """Submit as many jobs as `_most_out` allows; a job is removed from its list only after it was submitted."""
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
        """Return the largest number of submitted jobs: a few for each worker, and for one more worker that may join."""
        return _HANDED_OUT * (len(self._workforce.all()) + 1)

    def _jobs_of(self, task: Task | None) -> list[Job]:
        """Return the job of a task; with `each`, one job per distinct device; for None, no job.

        Waits for a suitable worker if none is connected.
        """
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
        """Return the outcome of a job whose future has ended; None if the job was queued again."""
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
        """Return the outcome of a job whose worker was ended on request; None if the job was queued again."""
        job.ended_workers += 1
        if job.ended_workers == _MOST_LOST:
            reason = f"quarantined: {_MOST_LOST} workers were stopped during this request; give jobs more time"
            return self._given_up(job, reason)
        self._progress.note(f"a worker was stopped while it had {job.task.name}; another worker gets the request")
        (self._suspected if job.deaths >= _DEATHS else self._waiting).appendleft(job)
        return None

    def _given_up(self, job: Job, reason: str) -> EndedTask:
        """Log the failure of a job at the scheduler, because no worker does it, and return the failure."""
        done = events.TaskEnd("", job.task.name, 0.0, reason, None)
        self._cluster.client.log_event(events.FINISHED, msgspec.to_builtins(done))
        return EndedTask(job.index, job.task, error=reason)

    def _nobody(self, job: Job) -> EndedTask | None:
        """Return the outcome of a job for which no worker was found; None if it was queued again for a worker that is
        connected now."""
        job.stored = frozenset()
        if self._workforce.is_anybody_able(job.needs):
            self._waiting.append(job)
            return None
        needs = needs_text({name: amount for name, amount in job.needs.items() if name != settings.MACHINE})
        reason = f"no worker that {needs} was left at {self._cluster.address} for {settings.WAIT_SECONDS} s; start one"
        return self._given_up(job, reason)

    def _judged(self, job: Job, finished: work.TaskOutcome) -> EndedTask | None:
        """Return the outcome of a job that a worker finished; None if it was queued again for another machine."""
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
        """Log the progress of this run at the scheduler, for ``state.state_of``.

        Args:
            total: number of all jobs; None if it is unknown.
        """
        self._next_log = time.monotonic() + _LOG_SECONDS
        client = self._cluster.client
        with contextlib.suppress(OSError, TimeoutError, RuntimeError):  # work goes on though nobody hears of it
            client.log_event(events.RUNS, msgspec.to_builtins(events.ClientRun(client.id, self._ended, total)))

    @contextlib.contextmanager
    def _listening(self) -> Iterator[None]:
        """Display the progress that workers report for this run's tasks, and record which tasks have begun."""

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
        """Connect again if the scheduler is lost inside the block; the caller submits unfinished tasks again."""
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
    """Return a task with an absolute path of its dataset: a worker runs in another folder than this process."""
    request = task.request
    if request.db is None:
        return task
    absolute = dataclasses.replace(request, db=absolute_address(request.db))
    return msgspec.structs.replace(task, request=absolute)


def _stored(task: Task, machines: Iterable[FleetMachine]) -> frozenset[str]:
    """Return the machines, by `Device.identity`, whose result for a task is already in the dataset.

    The result is empty if all machines are alike, or if the dataset cannot be searched from this machine.
    """
    if not isinstance(task, CollectTask) or not task.request.build.on_host:
        return frozenset()
    identities = {machine.measures[kind] for machine in machines for kind in task.kinds}
    if len(identities) < 2:
        return frozenset()
    try:
        return frozenset(stored_for(task.request, identities))
    except (OpProfilerError, OSError):  # the model is only there
        return frozenset()
