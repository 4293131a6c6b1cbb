"""`Cluster`: a client's connection to a cluster, which provides its workers and events."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from op_profiler.child_processes import COMMAND, public_command
from op_profiler.errors import MeasureError, OpProfilerError, UsageError
from op_profiler.fleet import settings
from op_profiler.fleet.kubernetes import kubernetes_cluster
from op_profiler.fleet.machine import FleetMachine, this_machine
from op_profiler.fleet.nodes import check_scheduler, machine_of, worker_options
from op_profiler.fleet.slurm import slurm_cluster

if TYPE_CHECKING:
    from distributed import Client
    from distributed.deploy.cluster import Cluster as DaskCluster

    from op_profiler.fleet.kubernetes import KubernetesCluster

_FORMS = (
    "tcp://HOST:PORT or tls://HOST:PORT of a scheduler, local:N for N workers on this machine, slurm:FILE for "
    "jobs, or kubernetes:FILE for pods"
)
Workers = dict[str, tuple[FleetMachine, dict[str, Any]]]
"""For each worker, by address: its machine, and the scheduler's metadata of the worker."""

_CONNECT_SECONDS = 10
_WAIT_SECONDS = settings.WAIT_SECONDS
_AGAIN_SECONDS = 2.0
_OF_WORKERS = ("nthreads", "dashboard")
"""Options of a worker that a cluster on this machine does not support."""


class Cluster(contextlib.AbstractContextManager["Cluster"]):
    """A connection to a cluster of machines that measure, as a context manager.

    For ``local:N``, ``slurm:FILE`` and ``kubernetes:FILE`` it also starts the cluster, and ends it with the connection.

    Args:
        name: address ``tcp://HOST:PORT`` or ``tls://HOST:PORT`` of a running scheduler; or ``local:N``, ``slurm:FILE``
            or ``kubernetes:FILE`` for a new cluster of this command.

    Raises:
        UsageError: the address has another form.
        MissingPackageError: Dask is not installed.
        MeasureError: no scheduler answers.

    Attributes:
        address: address of the scheduler.
        client: Dask's connection to the scheduler; `reconnect` replaces it.
        accepts_workers: whether other workers may join; False for ``local:N``, whose certificates are temporary.
        left_out: reasons why workers get no tasks, by address, as of the last call of `workers`.
    """

    def __init__(self, name: str) -> None:
        settings.configure()
        self.left_out: dict[str, str] = {}
        self.accepts_workers = not name.startswith("local:")
        self._own: DaskCluster | KubernetesCluster | None = None
        if name.startswith(("tcp://", "tls://")):
            settings.check_address(name)
            self.address, self._security = name, settings.security(name)
        else:
            self._own = _own_cluster(name)
            self.address, self._security = self._own.scheduler_address, self._own.security
        try:
            self.client = self._connect()
        except BaseException:
            if self._own is not None:
                self._own.close()
            raise

    def __exit__(self, *_: object) -> None:
        with _errors_as_notes("the connection to the scheduler did not end well"):
            self.client.close()
        if self._own is not None:
            with _errors_as_notes(
                "workers of this command could not be removed; they end themselves when they get no requests"
            ):
                self._own.close()

    def _connect(self) -> Client:
        from distributed import Client

        try:
            if self.address.startswith("tcp://"):
                check_scheduler(self.address, _CONNECT_SECONDS)
            return Client(self.address, security=self._security, timeout=_CONNECT_SECONDS, set_as_default=False)
        except (OSError, TimeoutError, ValueError) as error:
            reason = str(error)
            if not reason or isinstance(error, ValueError):  # which Tornado raises where the other side speaks no TLS
                reason = (
                    "the server does not use TLS, or has other certificates: it prints tcp:// or tls:// when it starts"
                )
            raise MeasureError(
                f"no scheduler answers at {self.address} ({reason}); start one with: op-profiler scheduler"
            ) from None

    def workers(self) -> Workers:
        """Return the connected workers of this version of op_profiler; the others are stored in `left_out`."""
        known = self.client.scheduler_info(n_workers=-1)["workers"]
        ours: Workers = {}
        self.left_out = {}
        for address, metadata in known.items():
            try:
                ours[address] = (machine_of(metadata), metadata)
            except OpProfilerError as error:
                self.left_out[address] = str(error)
        return ours

    def processing(self) -> dict[str, tuple[str, ...]]:
        """Return for each worker, by address, Dask's keys of the tasks that it carries out or is assigned."""
        return {address: tuple(map(str, keys)) for address, keys in self.client.processing().items()}

    def events(self, topic: str) -> list[tuple[float, Any]]:
        """Return the stored events of a topic, each with its time (seconds since 1970), oldest first."""
        return list(self.client.get_events(topic))

    def clients(self) -> set[str]:
        """Return Dask's names of the connected clients."""

        def names(dask_scheduler: Any) -> list[str]:
            return list(dask_scheduler.clients)

        return set(self.client.run_on_scheduler(names))

    @property
    def dashboard(self) -> str | None:
        """Address of Dask's dashboard; None if it is not available, or if the scheduler serves this command only."""
        if self._own is not None:
            return None
        about = self.client.scheduler_info(n_workers=0)["services"]
        return str(self.client.dashboard_link) if about.get("dashboard") and settings.has_dashboard() else None

    def reconnect(self) -> None:
        """Replace the client if it lost its scheduler; wait until the scheduler answers again.

        Raises:
            MeasureError: the scheduler does not answer within `settings.WAIT_SECONDS`.
        """
        if self.client.status == "running":
            return
        until = time.monotonic() + _WAIT_SECONDS
        while True:
            with contextlib.suppress(MeasureError):
                self.client, gone = self._connect(), self.client
                with contextlib.suppress(OSError, TimeoutError, RuntimeError):
                    gone.close(timeout=0)
                return
            if time.monotonic() > until:
                raise MeasureError(f"no scheduler came back at {self.address} within {_WAIT_SECONDS} s")
            time.sleep(_AGAIN_SECONDS)


@contextlib.contextmanager
def _errors_as_notes(what: str) -> Iterator[None]:
    """Print errors inside the block as notes: at the end of a command, all results are already stored."""
    try:
        yield
    except Exception as error:  # of Kubernetes, SLURM, Dask or the network
        print(f"note: {what}: {error or type(error).__name__}", file=sys.stderr)


def _own_cluster(name: str) -> DaskCluster | KubernetesCluster:
    """Start a scheduler and its workers, which end with this process."""
    kind, _, rest = name.partition(":")
    if kind == "local" and rest.isdecimal() and int(rest) > 0:
        from distributed import LocalCluster
        from distributed.security import Security

        return LocalCluster(
            n_workers=int(rest),
            threads_per_worker=1,
            host="127.0.0.1",
            protocol="tls",
            security=Security.temporary(),  # other users of this machine reach its ports, too
            dashboard_address=None,
            worker_dashboard_address="127.0.0.1:0",
            env={COMMAND: public_command()},
            **{name: value for name, value in worker_options(this_machine()).items() if name not in _OF_WORKERS},
        )
    if kind == "slurm" and rest:
        return slurm_cluster(Path(rest))
    if kind == "kubernetes" and rest:
        return kubernetes_cluster(Path(rest))
    raise UsageError(f"--cluster {name} is no cluster; give {_FORMS}")
