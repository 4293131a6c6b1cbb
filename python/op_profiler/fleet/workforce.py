"""`Workforce`: the workers of a cluster during a run: who is connected, drifts or fails, and may get which task."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec

from op_profiler.errors import EXIT_ENVIRONMENT, EXIT_MISSING_PACKAGE, MeasureError, UsageError
from op_profiler.fleet import settings
from op_profiler.fleet.events import FINISHED, TaskEnd
from op_profiler.fleet.machine import FleetMachine, has_drifted, this_machine
from op_profiler.fleet.needs import Needs, meets, needs_text

if TYPE_CHECKING:
    from op_profiler.collection.progress import Progress
    from op_profiler.fleet.cluster import Cluster, Workers
    from op_profiler.fleet.jobs import Job

_WAIT_SECONDS = settings.WAIT_SECONDS
_AGAIN_SECONDS = 2.0
_KNOWN_SECONDS = 1.0
_MARK_SECONDS = 600.0  # for which others are preferred to a machine; then it gets work again, which shows how it is
_OF_THE_MACHINE = (EXIT_ENVIRONMENT, EXIT_MISSING_PACKAGE)
_MOST_FAILURES = 3  # one after the other, from which on a machine is marked
_MOST_MACHINES = 3  # that a request is tried on, where each could not do it
_CLOSES = "closing-worker"  # that Dask keeps among the events of a worker, by its address


class Workforce:
    """The connected workers of a cluster, which may join and leave.

    Args:
        progress: displays notes about workers that a run waits for, drifting machines, and workers that get no tasks.

    Attributes:
        here: `FleetMachine.host_id` of the machine on which this process runs.
    """

    def __init__(self, cluster: Cluster, progress: Progress) -> None:
        self._cluster, self._progress = cluster, progress
        self.here = this_machine().host_id
        self._drifting = self._drifting_already()  # until when, by host_id
        self._broken: dict[str, float] = {}  # likewise
        self._failures: dict[str, int] = {}  # one after the other
        self._left_out: set[str] = set()
        self._strangers: set[str] | None = None  # workers that cannot write a dataset of this machine
        self._known: Workers = {}
        self._known_at = -_KNOWN_SECONDS

    def _drifting_already(self) -> dict[str, float]:
        """Return the machines that drifted in their last task of any client, each with the time until it is avoided."""
        ended = [(when, msgspec.convert(event, TaskEnd)) for when, event in self._cluster.events(FINISHED)]
        last = {done.host_id: (when, done.deviation) for when, done in ended if done.deviation is not None}
        until = {
            host: when + _MARK_SECONDS - time.time()
            for host, (when, deviation) in last.items()
            if has_drifted(deviation)
        }
        return {host: time.monotonic() + seconds for host, seconds in until.items() if seconds > 0}

    def all(self) -> Workers:
        """Return `Cluster.workers`, read at most `_KNOWN_SECONDS` ago; print notes about workers that are left out."""
        if time.monotonic() > self._known_at + _KNOWN_SECONDS:
            self._known, self._known_at = self._cluster.workers(), time.monotonic()
            for address, reason in self._cluster.left_out.items():
                if address not in self._left_out:
                    self._left_out.add(address)
                    self._progress.note(f"{reason}; it gets nothing")
        return self._known

    def able(self, needs: Needs) -> dict[str, FleetMachine]:
        """Return the workers that meet the requirements, by address."""
        return {
            address: machine for address, (machine, about) in self.all().items() if meets(about["resources"], needs)
        }

    def is_anybody_able(self, needs: Needs) -> bool:
        """Return whether a worker meets the requirements right now."""
        return any(meets(about["resources"], needs) for _, about in self._cluster.workers().values())

    def wait_for(self, needs: Needs) -> None:
        """Wait until a worker that meets the requirements is connected.

        Raises:
            MeasureError: no such worker connected within `settings.WAIT_SECONDS`.
            UsageError: no such worker can connect, because the cluster accepts no other workers.
        """
        noted, until, address = False, time.monotonic() + _WAIT_SECONDS, self._cluster.address
        while not self.able(needs):
            if self.all() and not self._cluster.accepts_workers:
                raise UsageError(
                    f"no worker of this machine {needs_text(needs)}, and no other machine can join a cluster local:N; "
                    "reduce --needs, or name a scheduler with other machines by --cluster"
                )
            if not noted:
                here = {machine.host_id: machine.host for machine, _ in self.all().values()}.values()
                which = f"; {', '.join(here)} does not" if here else ""
                self._progress.note(
                    f"waiting for a worker that {needs_text(needs)}: op-profiler worker {address}{which}"
                )
            if time.monotonic() > until:
                raise MeasureError(f"no worker that {needs_text(needs)} came to {address} within {_WAIT_SECONDS} s")
            noted = True
            time.sleep(_AGAIN_SECONDS)

    def ended_on_request(self, address: str) -> bool:
        """Return whether a worker ended on request: the time limit of its job was reached, or a user ended it."""
        events = self._cluster.events(address)
        return any(isinstance(event, dict) and event.get("action") == _CLOSES for _, event in events)

    # Those that cannot write a dataset that is a file of this machine

    def refuse_strangers(self, db: str) -> None:
        """Reject a cluster with workers on other machines, which cannot write to a dataset in a file of this machine.

        Workers that connect after the first call are not rejected, but get no tasks.

        Args:
            db: address of the dataset, for the message.

        Raises:
            UsageError: a worker is on another machine.
        """
        if self._strangers is not None:
            return
        elsewhere = [machine.host for machine, _ in self.all().values() if machine.host_id != self.here]
        if elsewhere:
            raise UsageError(
                f"{db} is a file of this machine, and the worker on {elsewhere[0]} is not on it; give a "
                "PostgreSQL dataset with --db postgresql://USER@HOST/NAME"
            )
        self._strangers = set()

    def note_strangers(self) -> None:
        """Print a note about each worker on another machine that has connected since `refuse_strangers`."""
        if self._strangers is None:
            return
        for machine, _ in self.all().values():
            if machine.host_id not in self._strangers | {self.here}:
                self._strangers.add(machine.host_id)
                self._progress.note(
                    f"the worker that came on {machine.host} gets nothing of this: the dataset is a file of this "
                    "machine. A PostgreSQL dataset is for several"
                )

    # Those that others are preferred to, for a while

    def has_drifted(self, job: Job, machine: FleetMachine, deviation: float | None) -> bool:
        """Record the deviation of a machine that carried out a job.

        Returns:
            True if the machine drifted and another suitable machine is connected.
        """
        if not has_drifted(deviation):
            if deviation is not None:
                self._drifting.pop(machine.host_id, None)
            return False
        assert deviation is not None
        if machine.host_id not in self._drifting:
            self._progress.problem(f"{machine.host} has drifted: {deviation:+.0%} off its usual time")
        self._drifting[machine.host_id] = time.monotonic() + _MARK_SECONDS
        job.drifted.add(machine.host_id)
        return bool(self.others(job))

    def has_failed(self, job: Job, machine: FleetMachine, error_code: int) -> bool:
        """Record whether a job failed because of the machine, such as a full disk or a missing package.

        Returns:
            True if the machine was the cause, and another suitable machine is connected on which the job may succeed.
        """
        if error_code not in _OF_THE_MACHINE:
            self._failures.pop(machine.host_id, None)
            return False
        self._failures[machine.host_id] = self._failures.get(machine.host_id, 0) + 1
        if self._failures[machine.host_id] == _MOST_FAILURES:
            failing = f"{machine.host} could not carry out {_MOST_FAILURES} requests one after the other"
            self._progress.problem(f"{failing}; it gets none for {_MARK_SECONDS:.0f} s where others can do them")
        if self._failures[machine.host_id] >= _MOST_FAILURES:
            self._broken[machine.host_id] = time.monotonic() + _MARK_SECONDS
        job.failed_on.add(machine.host_id)
        return len(job.failed_on) < _MOST_MACHINES and bool(self.others(job))

    def others(self, job: Job) -> list[str]:
        """Return the addresses of the workers that can do a job and are not on machines to avoid.

        Machines to avoid have drifted or failed, recently or in this job. The result is empty if there are none of
        these, or if no other worker can do the job.
        """
        avoided = self._avoided(job)
        if not avoided:
            return []
        return [address for address, machine in self.able(job.needs).items() if machine.host_id not in avoided]

    def _avoided(self, job: Job) -> set[str]:
        now = time.monotonic()
        marked = {host for marks in (self._drifting, self._broken) for host, until in marks.items() if until > now}
        return marked | job.drifted | job.failed_on

    def where_it_is_stored(self, job: Job) -> Needs:
        """Return a requirement that only machines with a stored result for the job meet; empty if none of these
        machines is suitable."""
        if not job.stored:
            return {}
        avoided = self._avoided(job)
        able = [machine for machine in self.able(job.needs).values() if machine.host_id not in avoided]
        there = {identity for machine in able for identity in machine.measures.values()}
        holders = sorted(job.stored & there)
        return {holders[job.index % len(holders)]: 1} if holders else {}
