"""A cluster as its user sees it: named by an address, given requests, asked what it is doing."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import time
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

import msgspec

from op_profiler.collection.request import CollectRequest
from op_profiler.collection.summary import ModelReport
from op_profiler.dataset.engine import absolute_address, parse_url
from op_profiler.errors import EXIT_ENVIRONMENT, MeasureError, OpProfilerError, UsageError
from op_profiler.fleet import settings, work
from op_profiler.fleet.machine import FleetMachine, this_machine
from op_profiler.fleet.nodes import machine_of, worker_options

if TYPE_CHECKING:
    from distributed import Client, Future
    from distributed.deploy.cluster import Cluster as DaskCluster

    from op_profiler.collection.supervisor import Progress

_FORMS = "tcp://HOST:PORT or tls://HOST:PORT of a scheduler, or local:N for N workers on this machine"
_CONNECT_SECONDS = 10
_WAIT_SECONDS = 300
_AGAIN_SECONDS = 2.0
_HANDED_OUT = 2  # requests a worker, so that none waits for the client
_DEATHS = 2  # each of two workers: `settings`


@dataclasses.dataclass(frozen=True)
class _Job:
    """A request, and which workers can carry it out.

    Attributes:
        needs: Dask's resources, one of each.
    """

    index: int
    request: CollectRequest
    needs: tuple[str, ...]


class Cluster:
    """Machines that measure, behind one address.

    Args:
        name: ``tcp://HOST:PORT`` or ``tls://HOST:PORT`` of a scheduler, or ``local:N``.

    Raises:
        UsageError: the address is none.
        MissingPackageError: no Dask.
        MeasureError: nobody answers there.
    """

    def __init__(self, name: str) -> None:
        settings.configure()
        self._own: DaskCluster | None = None
        if name.startswith(("tcp://", "tls://")):
            self.address, self._security = name, settings.security(name)
        else:
            self._own = _own_cluster(name)
            self.address, self._security = self._own.scheduler_address, None
        self._client = self._connect()
        self._done = 0

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._client.close()
        if self._own is not None:
            self._own.close()

    def _connect(self) -> Client:
        from distributed import Client

        try:
            return Client(self.address, security=self._security, timeout=_CONNECT_SECONDS, set_as_default=False)
        except (OSError, TimeoutError) as error:
            raise MeasureError(
                f"no scheduler answers at {self.address} ({error}); start one with: op-profiler scheduler"
            ) from None

    def workers(self) -> dict[str, tuple[FleetMachine, dict[str, Any]]]:
        """By address, every worker's machine, and what the scheduler knows of the worker."""
        known = self._client.scheduler_info(n_workers=-1)["workers"]
        return {address: (machine_of(told), told) for address, told in known.items()}

    def processing(self) -> dict[str, tuple[str, ...]]:
        """By the address of a worker, the keys of the requests that it carries out or is to carry out next."""
        return {address: tuple(map(str, keys)) for address, keys in self._client.processing().items()}

    def collect(
        self, requests: Sequence[CollectRequest], progress: Progress, *, each: bool = False
    ) -> list[ModelReport]:
        """All that `reports` yields, in the order of the requests."""
        return [report for _, report in sorted(self.reports(requests, progress, each=each), key=lambda one: one[0])]

    def reports(
        self, requests: Sequence[CollectRequest], progress: Progress, *, each: bool = False
    ) -> Iterator[tuple[int, ModelReport]]:
        """Carry out requests wherever a machine is free that can; a few more than there are workers are handed out.

        A worker that dies costs what it was measuring, and its request goes to another. A scheduler that is started
        anew is given again what was not done; what the dataset has by then is not measured again.

        Args:
            each: every request on every distinct device, in place of on any of its kind.

        Yields:
            A number by which the reports can be put in order, and the report; as they come. With `each`, one for a
            request and device. Of a request that took its worker down again and again, one with an error.

        Raises:
            UsageError: the dataset is a file that not every worker can write.
            MeasureError: no worker comes that can carry a request out, or the scheduler stays away.
        """
        self._check_dataset(requests)
        jobs = self._jobs(requests, progress, each=each)
        self._done = 0
        progress.start(len(jobs))
        try:
            with self._listening(progress):
                for index, report in self._carry_out(jobs, progress):
                    self._done += 1
                    progress.step(report.request.build.model.name, self._done)
                    yield index, report
        finally:
            progress.stop()

    @contextlib.contextmanager
    def _listening(self, progress: Progress) -> Iterator[None]:
        """Show what the workers say that they do."""

        def show(event: tuple[float, str]) -> None:
            progress.step(event[1], self._done)

        self._client.subscribe_topic(work.PROGRESS, show)
        yield
        with contextlib.suppress(Exception):  # the client may be closed
            self._client.unsubscribe_topic(work.PROGRESS)

    def _check_dataset(self, requests: Sequence[CollectRequest]) -> None:
        here = this_machine().host_id
        elsewhere = [machine.host for machine, _ in self.workers().values() if machine.host_id != here]
        files = {r.db for r in requests if parse_url(r.db).get_backend_name() == "sqlite"}
        if files and elsewhere:
            raise UsageError(
                f"{files.pop()} is a file of this machine, and the worker on {elsewhere[0]} is not on it; give a "
                "PostgreSQL dataset with --db postgresql://USER@HOST/NAME"
            )

    def _jobs(self, requests: Sequence[CollectRequest], progress: Progress, *, each: bool) -> list[_Job]:
        jobs: list[_Job] = []
        for request in requests:
            kind = request.build.kind.name
            able = (
                [settings.MACHINE] if request.build.place is not None else [settings.MACHINE, settings.measures(kind)]
            )
            self._wait_for(able, progress)
            devices = {m.measures[kind]: None for m, _ in self.workers().values() if kind in m.measures} if each else {}
            for device in devices or (None,):
                jobs.append(_Job(len(jobs), request, (*able, *([device] if device else []))))
        return jobs

    def _wait_for(self, needs: Sequence[str], progress: Progress) -> None:
        """Until there is a worker with these resources."""
        told, until = False, time.monotonic() + _WAIT_SECONDS
        while not any(all(need in about["resources"] for need in needs) for _, about in self.workers().values()):
            if not told:
                progress.note(f"waiting for a worker that {needs[-1]}: op-profiler worker {self.address}")
            if time.monotonic() > until:
                raise MeasureError(f"no worker that {needs[-1]} came to {self.address} within {_WAIT_SECONDS} s")
            told = True
            time.sleep(_AGAIN_SECONDS)

    def _carry_out(self, jobs: Sequence[_Job], progress: Progress) -> Iterator[tuple[int, ModelReport]]:
        from distributed import as_completed

        waiting = collections.deque(jobs)
        deaths: collections.Counter[int] = collections.Counter()
        while waiting:
            handed_out: dict[Future[bytes], _Job] = {}
            with self._reconnecting(progress):
                ended = as_completed(loop=self._client.loop)
                while waiting or handed_out:
                    while waiting and len(handed_out) < _HANDED_OUT * (len(self._client.ncores()) + 1):
                        job = waiting.popleft()
                        future = self._submit(job)
                        handed_out[future] = job
                        ended.add(future)
                    future = next(ended)
                    report = self._taken(future, handed_out[future], deaths, progress)
                    job = handed_out.pop(future)
                    if report is not None:
                        yield job.index, report
                    else:
                        waiting.append(job)  # last, when little is beside it that could have been the reason
            waiting.extend(handed_out.values())

    def _submit(self, job: _Job) -> Future[bytes]:
        # A worker runs in a folder of its own, and would make another file of a relative path.
        encoded = msgspec.msgpack.encode(dataclasses.replace(job.request, db=absolute_address(job.request.db)))
        name = f"{job.request.build.model.name}-{job.index}-{time.time_ns():x}"
        return self._client.submit(work.collect_model, encoded, key=name, resources=dict.fromkeys(job.needs, 1))

    def _taken(
        self, future: Future[bytes], job: _Job, deaths: collections.Counter[int], progress: Progress
    ) -> ModelReport | None:
        """The report of a request that has ended; None where it is to be tried again."""
        from distributed import KilledWorker

        if future.status == "finished":
            finished = msgspec.msgpack.decode(future.result(), type=work.Finished)
            for message in finished.messages:
                progress.problem(f"{finished.machine.host}: {message}")
            return finished.report
        if future.status != "error":
            return None  # the scheduler forgot it
        error = future.exception()
        if not isinstance(error, KilledWorker):
            code = error.exit_code if isinstance(error, OpProfilerError) else EXIT_ENVIRONMENT
            return ModelReport(job.request, error=str(error), error_code=code)
        deaths[job.index] += 1
        if deaths[job.index] < _DEATHS:
            return None
        reason = "workers died of it again and again; measure it with the same command without --cluster"
        return ModelReport(job.request, error=f"put aside: {reason}", error_code=EXIT_ENVIRONMENT)

    @contextlib.contextmanager
    def _reconnecting(self, progress: Progress) -> Iterator[None]:
        """Connect anew where the scheduler was started again inside the block; what was not done is then done again."""
        from distributed.comm.core import CommClosedError

        try:
            yield
        except (CommClosedError, OSError, TimeoutError, RuntimeError) as error:
            if isinstance(error, OpProfilerError):
                raise
            progress.note(f"the scheduler at {self.address} is gone ({error}); waiting for it")
        if self._client.status == "running":
            return
        until = time.monotonic() + _WAIT_SECONDS
        while True:
            with contextlib.suppress(MeasureError):
                self._client = self._connect()
                return
            if time.monotonic() > until:
                raise MeasureError(f"no scheduler came back at {self.address} within {_WAIT_SECONDS} s")
            time.sleep(_AGAIN_SECONDS)


def _own_cluster(name: str) -> DaskCluster:
    """A scheduler of this process with its workers, which end with it."""
    kind, _, rest = name.partition(":")
    if kind == "local" and rest.isdecimal() and int(rest) > 0:
        from distributed import LocalCluster

        options = worker_options(this_machine())
        return LocalCluster(
            n_workers=int(rest), threads_per_worker=1, host="127.0.0.1", dashboard_address=None, **_local(options)
        )
    raise UsageError(f"--cluster {name} is no cluster; give {_FORMS}")


def _local(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name not in ("nthreads", "dashboard")}
