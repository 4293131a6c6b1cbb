"""`state_of`: the state of a cluster, with its machines and their current and finished tasks."""

from __future__ import annotations

import time
from typing import Any

import msgspec

from op_profiler.fleet import events
from op_profiler.fleet.cluster import Cluster
from op_profiler.fleet.machine import has_drifted

_RATE_SECONDS = 600.0
_FAILURES = 5


def state_of(address: str) -> dict[str, Any]:
    """Return the state of a cluster as JSON-serializable values.

    Returns:
        ``workers``: for each worker the fields of `FleetMachine`; what it ``does``, as text; the address of its
        ``metrics`` for Prometheus; its ``address``; Dask's ``status``; its current ``tasks``; the numbers of
        ``finished`` and ``failed`` tasks of its machine among the tasks that the scheduler still stores; the last known
        ``deviation`` (`work.TaskOutcome`) of its machine, and whether the machine ``drifts``. ``runs``: for each
        unfinished run of a client, the number of tasks that are ``done`` and the number ``of`` all tasks. ``failures``:
        the last few ``error`` texts, with the ``name`` of the task and its ``machine``. ``left_out``: reasons why
        workers get no tasks. ``per_minute``: average number of tasks that ended per minute, in the last ten minutes.
        ``dashboard``: address of Dask's dashboard; None if it is not available.

    Raises:
        MeasureError: no scheduler answers.
    """
    with Cluster(address) as cluster:
        processing = cluster.processing()
        ended = [(when, msgspec.convert(event, events.TaskEnd)) for when, event in cluster.events(events.FINISHED)]
        runs = [msgspec.convert(event, events.ClientRun) for _, event in cluster.events(events.RUNS)]
        clients, workers = cluster.clients(), cluster.workers()
        hosts = {machine.host_id: machine.host for machine, _ in workers.values()}
        return {
            "workers": [
                {
                    "address": worker,
                    "status": about["status"],
                    **msgspec.to_builtins(machine),
                    "does": machine.does,
                    "metrics": f"http://{about['host']}:{about['services']['dashboard']}/metrics",
                    "tasks": [
                        key.rsplit("-", 2)[0] for key in processing.get(worker, ())
                    ],  # the task's name in one of `Dispatch`
                    **_past([done for _, done in ended if done.host_id == machine.host_id]),
                }
                for worker, (machine, about) in sorted(workers.items())
            ],
            "runs": [
                {"done": run.done, "of": run.of}
                for client, run in {run.client: run for run in runs}.items()
                if client in clients and run.done != run.of
            ],
            "failures": [
                {"machine": hosts.get(done.host_id), "name": done.name, "error": done.error}
                for _, done in ended
                if done.error is not None
            ][-_FAILURES:],
            "left_out": list(cluster.left_out.values()),
            "per_minute": round(sum(when > time.time() - _RATE_SECONDS for when, _ in ended) / _RATE_SECONDS * 60, 2),
            "dashboard": cluster.dashboard,
        }


def _past(ended: list[events.TaskEnd]) -> dict[str, Any]:
    """Return the fields of ``workers`` in `state_of` about a machine's ended tasks, which are given oldest first."""
    known = [done.deviation for done in ended if done.deviation is not None]
    last = known[-1] if known else None
    return {
        "finished": sum(done.error is None for done in ended),
        "failed": sum(done.error is not None for done in ended),
        "deviation": last,
        "drifts": has_drifted(last),
    }
