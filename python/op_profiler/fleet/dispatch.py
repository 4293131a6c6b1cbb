"""Hands tasks to the workers of a cluster, and again where one was lost."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import itertools
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from op_profiler.collection.lookup import stored_for
from op_profiler.dataset.engine import absolute_address, parse_url
from op_profiler.errors import EXIT_ENVIRONMENT, MeasureError, OpProfilerError, UsageError
from op_profiler.fleet import builds, events, settings, work
from op_profiler.fleet.machine import FleetMachine, has_drifted, this_machine
from op_profiler.fleet.needs import Needs, meets, told
from op_profiler.fleet.tasks import Answer, CollectTask, Task

if TYPE_CHECKING:
    from distributed import Future

    from op_profiler.collection.progress import Progress
    from op_profiler.fleet.cluster import Cluster

_WAIT_SECONDS = settings.WAIT_SECONDS
_AGAIN_SECONDS = 2.0
_KNOWN_SECONDS = 1.0
_HANDED_OUT = 2  # tasks a worker, so that none waits for the client
_DEATHS = 2  # of workers, from which on a task is suspected


@dataclasses.dataclass(frozen=True)
class Ended:
    """A task that is over.

    Attributes:
        index: of the task among those that were handed out; with `each`, of the task and its device.
        machine: that did it; None where none could.
        answer: None for a failure.
        error, error_code: why there is no answer.
    """

    index: int
    task: Task
    machine: FleetMachine | None = None
    answer: Answer | None = None
    error: str = ""
    error_code: int = EXIT_ENVIRONMENT


@dataclasses.dataclass
class _Job:
    """A task on its way.

    Attributes:
        needs: what a worker has to have.
        stored: machines of which the dataset has it, by `Device.identity`; one of them is enough.
        deaths: workers that died while they carried it out.
        drifted: machines that drifted while they did, by `FleetMachine.host_id`.
        alone: whoever measures it builds it too.
        build: by a worker that only builds; None where nobody was asked.
    """

    index: int
    task: Task
    needs: Needs
    stored: frozenset[str] = frozenset()
    deaths: int = 0
    drifted: set[str] = dataclasses.field(default_factory=set)
    alone: bool = False
    build: Future[bytes] | None = None


class Dispatch:
    """One run of tasks over a cluster.

    A worker that dies costs what it was measuring, and its task goes to another one. A task that took two workers down
    waits until nothing else is left, and is tried once more, alone. What a machine measured while it drifted is
    measured on another one too, where there is one; from then on the others are preferred. A scheduler that is started
    anew is given again what was not done: what the dataset has by then is not measured again. Workers that only build
    do so ahead of those that measure (`builds`).

    Args:
        each: every task on every distinct device, in place of on any of its kind.
        needs: what machines have to have beside the kind of target.
        total: how many tasks there are; None where that shows later.

    Attributes:
        done: of the tasks, for the progress; the caller counts.
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
        self._tell_again = 0.0
        self.done = 0.0
        self._here = this_machine().host_id
        self._jobs = itertools.count()
        self._waiting: collections.deque[_Job] = collections.deque()
        self._suspected: collections.deque[_Job] = collections.deque()
        self._handed_out: dict[Future[bytes], _Job] = {}
        self._begun: set[str] = set()
        self._doing: dict[str, str] = {}
        self._marked: dict[str, float] = {}  # deviation by host_id
        self._strangers: set[str] | None = None  # workers that cannot write a dataset of this machine
        self._task: Task | None = None  # taken, and not among the jobs yet
        self._workers_known: dict[str, tuple[FleetMachine, dict[str, Any]]] = {}
        self._workers_known_at = -_KNOWN_SECONDS

    def run(self, tasks: Iterable[Task]) -> Iterator[Ended]:
        """Carry out tasks, which are taken as workers become free.

        Raises:
            UsageError: the dataset is a file that not every worker can write.
            MeasureError: no worker comes that can carry a task out, or the scheduler stays away.
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

    def _carry_out(self, left: Iterator[Task]) -> Iterator[Ended]:
        from distributed import as_completed

        ended = as_completed(loop=self._cluster.client.loop)
        while True:
            for future in self._hand_out(left):
                ended.add(future)
            if not self._handed_out:
                self._tell(self._ended)
                return
            self._note_strangers()
            future = next(ended)
            over = self._over(future, self._handed_out[future])
            del self._handed_out[future]
            if over is not None:
                self._ended += 1
                yield over
            if time.monotonic() > self._tell_again:
                self._tell(self._total)

    def _hand_out(self, left: Iterator[Task]) -> Iterator[Future[bytes]]:
        """Enough that no worker waits for this process; a job is taken off a list once the scheduler has it."""
        while len(self._handed_out) < self._most_out():
            if not self._waiting:
                self._task = self._task or next(left, None)
                self._waiting.extend(self._jobs_of(self._task))
                self._task = None
            jobs = self._waiting or (self._suspected if not self._handed_out else None)
            if not jobs:
                return
            yield self._submit(jobs[0])
            jobs.popleft()

    def _most_out(self) -> int:
        """Tasks: some for each worker that measures, and what others may build ahead of these."""
        machines = [machine for machine, _ in self._workers().values()]
        ahead = any(job.build is not None for job in self._handed_out.values())
        measuring = sum(not machine.builds for machine in machines)
        return _HANDED_OUT * (measuring + 1) + (sum(machine.builds for machine in machines) if ahead else 0)

    def _jobs_of(self, task: Task | None) -> list[_Job]:
        """A task, or with `each` one for a device."""
        if task is None:
            return []
        task = _with_absolute_paths(task)
        able: Needs = dict.fromkeys(map(settings.measures, task.kinds), 1) | self._needs
        if _is_file(task.request.db):
            self._refuse_strangers(task)
            able[settings.on_host(self._here)] = 1
        self._wait_for(able)
        able[settings.MACHINE] = 1
        there = [machine for machine, about in self._workers().values() if meets(about["resources"], able)]
        devices = {m.measures[kind]: None for m in there for kind in task.kinds} if self._each else {}
        wanted = [able | {device: 1} for device in devices] or [able]
        stored = frozenset() if self._each else _stored(task, there)
        return [_Job(next(self._jobs), task, needs, stored) for needs in wanted]

    def _submit(self, job: _Job) -> Future[bytes]:
        key = f"{job.task.name}-{job.index}-{time.time_ns():x}"
        needs = job.needs | self._where_it_is_stored(job)
        options: dict[str, Any] = {"resources": needs}
        if steady := self._steady_workers(job):
            options["workers"] = steady
        job.build = None if job.alone else self._built_elsewhere(job.task, needs, key)
        encoded = msgspec.msgpack.encode(job.task)
        future = self._cluster.client.submit(work.carry_out, encoded, job.build, key=key, **options)
        self._handed_out[future] = job
        return future

    def _built_elsewhere(self, task: Task, needs: Needs, key: str) -> Future[bytes] | None:
        """The build of a task by a worker that only builds; None where nobody can for those that may measure it."""
        workers = self._workers().values()
        measuring = [machine for machine, about in workers if meets(about["resources"], needs)]
        build = builds.build_for(task, measuring)
        if build is None or not any(meets(about["resources"], build.needs) for _, about in workers):
            return None
        encoded = msgspec.msgpack.encode(build)
        return self._cluster.client.submit(builds.carry_out, encoded, key=f"build of {key}", resources=build.needs)

    def _over(self, future: Future[bytes], job: _Job) -> Ended | None:
        """What came of a job; None where it is to be done again."""
        from distributed import KilledWorker
        from distributed.scheduler import NoValidWorkerError, NoWorkerError

        if future.status == "finished":
            return self._judged(job, msgspec.msgpack.decode(future.result(), type=work.Finished))
        if future.status != "error":
            self._waiting.append(job)  # the scheduler forgot it
            return None
        error = future.exception()
        if job.build is not None and job.build.status == "error":
            reason = f"its build on another machine was lost ({type(job.build.exception()).__name__})"
            self._progress.problem(f"{job.task.name}: {reason}; it is built where it is measured")
            job.alone = True
            self._waiting.appendleft(job)
            return None
        if isinstance(error, NoValidWorkerError | NoWorkerError):
            return self._nobody(job)
        if not isinstance(error, KilledWorker):
            code = error.exit_code if isinstance(error, OpProfilerError) else EXIT_ENVIRONMENT
            return Ended(job.index, job.task, error=str(error), error_code=code)
        job.deaths += future.key in self._begun  # else it only stood in line on that worker
        if job.deaths < _DEATHS:
            self._waiting.appendleft(job)
            return None
        if job.deaths == _DEATHS:
            self._progress.note(f"{job.task.name} took {_DEATHS} workers down; it is tried once more at the end, alone")
            self._suspected.append(job)
            return None
        reason = f"put aside: {job.deaths} workers died of it; measure it with the same command without --cluster"
        return Ended(job.index, job.task, error=reason)

    def _nobody(self, job: _Job) -> Ended | None:
        """What comes of a job that no worker was there for; None where one is there that was not asked."""
        job.stored = frozenset()
        if any(meets(about["resources"], job.needs) for _, about in self._cluster.workers().values()):
            self._waiting.append(job)
            return None
        needs = told({name: amount for name, amount in job.needs.items() if name != settings.MACHINE})
        reason = f"no worker that {needs} was left at {self._cluster.address} for {_WAIT_SECONDS} s; start one"
        return Ended(job.index, job.task, error=reason)

    def _judged(self, job: _Job, finished: work.Finished) -> Ended | None:
        """The answer to a job; None where it is to be measured on another machine too."""
        machine = finished.machine
        for message in finished.messages:
            self._progress.problem(f"{machine.host}: {message}")
        answer: Answer = msgspec.msgpack.decode(finished.answer, type=job.task.ANSWER)
        found = Ended(job.index, job.task, machine, answer)
        if not has_drifted(finished.deviation):
            if finished.deviation is not None:
                self._marked.pop(machine.host_id, None)
            return found
        assert finished.deviation is not None
        if machine.host_id not in self._marked:
            self._progress.problem(f"{machine.host} has drifted: {finished.deviation:+.0%} off its usual time")
        self._marked[machine.host_id] = finished.deviation
        job.drifted.add(machine.host_id)
        if self._each or not self._steady_workers(job):
            return found
        self._waiting.append(job)
        return None

    def _steady_workers(self, job: _Job) -> list[str]:
        """Workers that can do a job and are not on machines that drift; empty where that is no choice."""
        if not self._marked and not job.drifted:
            return []
        return [
            address
            for address, (machine, about) in self._workers().items()
            if machine.host_id not in self._marked.keys() | job.drifted and meets(about["resources"], job.needs)
        ]

    def _where_it_is_stored(self, job: _Job) -> Needs:
        """One of the machines that only look a job up; any of its kind where they are away, or drift."""
        if not job.stored:
            return {}
        there = {
            identity
            for machine, about in self._workers().values()
            if machine.host_id not in self._marked.keys() | job.drifted and meets(about["resources"], job.needs)
            for identity in machine.measures.values()
        }
        holders = sorted(job.stored & there)
        return {holders[job.index % len(holders)]: 1} if holders else {}

    # Workers that come and go

    def _workers(self) -> dict[str, tuple[FleetMachine, dict[str, Any]]]:
        """`Cluster.workers`, as they were a moment ago."""
        if time.monotonic() > self._workers_known_at + _KNOWN_SECONDS:
            self._workers_known, self._workers_known_at = self._cluster.workers(), time.monotonic()
        return self._workers_known

    def _refuse_strangers(self, task: Task) -> None:
        """Before anything is measured; later they only get nothing."""
        if self._strangers is not None:
            return
        others = [machine for machine, _ in self._workers().values() if machine.host_id != self._here]
        elsewhere = [machine.host for machine in others if not machine.builds]
        if elsewhere:
            raise UsageError(
                f"{task.request.db} is a file of this machine, and the worker on {elsewhere[0]} is not on it; give a "
                "PostgreSQL dataset with --db postgresql://USER@HOST/NAME"
            )
        self._strangers = set()

    def _note_strangers(self) -> None:
        """Say which workers came meanwhile that get nothing."""
        if self._strangers is None:
            return
        for machine, _ in self._workers().values():
            if machine.host_id not in self._strangers | {self._here} and not machine.builds:
                self._strangers.add(machine.host_id)
                self._progress.note(
                    f"the worker that came on {machine.host} gets nothing of this: the dataset is a file of this "
                    "machine. A PostgreSQL dataset is for several"
                )

    def _wait_for(self, needs: Needs) -> None:
        """Until there is a worker that meets them."""
        noted, until, address = False, time.monotonic() + _WAIT_SECONDS, self._cluster.address
        while not any(meets(about["resources"], needs) for _, about in self._workers().values()):
            if not noted:
                here = {machine.host_id: machine.host for machine, _ in self._workers().values()}.values()
                which = f"; {', '.join(here)} does not" if here else ""
                self._progress.note(f"waiting for a worker that {told(needs)}: op-profiler worker {address}{which}")
            if time.monotonic() > until:
                raise MeasureError(f"no worker that {told(needs)} came to {address} within {_WAIT_SECONDS} s")
            noted = True
            time.sleep(_AGAIN_SECONDS)

    # What the scheduler is told, and tells

    def _tell(self, total: int | None) -> None:
        """How far this run is, for who asks the scheduler."""
        self._tell_again = time.monotonic() + _KNOWN_SECONDS
        client = self._cluster.client
        with contextlib.suppress(OSError, TimeoutError, RuntimeError):  # work goes on though nobody hears of it
            client.log_event(events.RUNS, msgspec.to_builtins(events.Run(client.id, self._ended, total)))

    @contextlib.contextmanager
    def _listening(self) -> Iterator[None]:
        """Show what the workers say that they do."""

        def take(event: tuple[float, Any]) -> None:
            doing = msgspec.convert(event[1], events.Doing)
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
        """Connect anew where the scheduler was started again inside the block; what was not done is then done again."""
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
    """A worker runs in a folder of its own, and would make another dataset of a relative path."""
    request = task.request
    if request.db is None:
        return task
    absolute = dataclasses.replace(request, db=absolute_address(request.db))
    return msgspec.structs.replace(task, request=absolute)


def _stored(task: Task, machines: Iterable[FleetMachine]) -> frozenset[str]:
    """Those of several different machines of which the dataset has what a task asks for."""
    if not isinstance(task, CollectTask) or not task.request.build.on_host:
        return frozenset()
    identities = {machine.measures[kind] for machine in machines for kind in task.kinds}
    if len(identities) < 2:
        return frozenset()
    try:
        return frozenset(stored_for(task.request, identities))
    except (OpProfilerError, OSError):  # the model is only there
        return frozenset()


def _is_file(db: str | None) -> bool:
    return db is not None and parse_url(db).get_backend_name() == "sqlite"
