"""Is anything lost or doubled when workers are killed, one hangs, and the scheduler and PostgreSQL start again?

    python benchmarks/fleet_faults.py [NAME ...] [--keep FILE]     (12 minutes; --keep goes on)

200 requests (a model with a label of its own each, really measured) on four workers of this machine. Every 20 s one
worker's process is killed with -9, by turns. After a sixth of the requests one is stopped for a minute, after a third
the scheduler is killed and started again, after half PostgreSQL.

Goal: all requests finish, no row is missing, none is there twice.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
from common import ROOT, every, run_of, store
from fleet_common import SHARE, cluster_of, postgresql_server, small_requests

if TYPE_CHECKING:
    from common import Tables

_TASKS = int(200 * SHARE)
_WORKERS = 4
_EVERY_SECONDS = 20.0
_STOPPED_SECONDS = 60.0


def measure(name: str) -> dict[str, Any]:
    """All faults in one run."""
    with tempfile.TemporaryDirectory() as text, postgresql_server() as server:
        folder = Path(text)
        with cluster_of(folder, _WORKERS) as cluster:
            requests = small_requests(server.url, _TASKS)
            faults = {
                "workers_killed": 0,
                "workers_stopped": 0,
                "stopped_went_on": 0,
                "schedulers_killed": 0,
                "servers_restarted": 0,
            }
            started, reports = time.monotonic(), []
            with _killing(cluster, faults):
                for report in cluster.reports(requests):
                    reports.append(report)
                    _more(len(reports), cluster, server, faults)
            seconds = time.monotonic() - started
        return {"requests": _TASKS, **_judged(reports, server.url), "seconds": round(seconds), **faults}


@contextlib.contextmanager
def _killing(cluster: Any, faults: dict[str, int]) -> Iterator[None]:
    """A worker's process every so often; its nanny starts another one."""
    over = threading.Event()

    def kill() -> None:
        while not over.wait(_EVERY_SECONDS):
            with contextlib.suppress(psutil.NoSuchProcess):
                # None while the scheduler is started again. The stopped one is another fault: it has to go on.
                found = [one for one in cluster.dask_workers() if one.status() != psutil.STATUS_STOPPED]
                if found:
                    found[faults["workers_killed"] % len(found)].send_signal(signal.SIGKILL)
                    faults["workers_killed"] += 1

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _more(done: int, cluster: Any, server: Any, faults: dict[str, int]) -> None:
    if done == _TASKS // 6:
        threading.Thread(target=_stop, args=(cluster, faults)).start()
    if done == _TASKS // 3:
        cluster.restart_scheduler()
        faults["schedulers_killed"] += 1
    if done == _TASKS // 2:
        server.stop("immediate")
        server.start()
        faults["servers_restarted"] += 1


def _stop(cluster: Any, faults: dict[str, int]) -> None:
    while not (found := cluster.dask_workers()):
        time.sleep(1)
    process = found[0]
    process.send_signal(signal.SIGSTOP)
    faults["workers_stopped"] += 1
    time.sleep(_STOPPED_SECONDS)
    with contextlib.suppress(psutil.NoSuchProcess):
        process.send_signal(signal.SIGCONT)
        faults["stopped_went_on"] += 1


def _judged(reports: list[Any], url: str) -> dict[str, Any]:
    """What the dataset has beside what was asked for."""
    sys.path.insert(0, str(ROOT / "python"))
    from op_profiler.dataset import Dataset

    with Dataset.open(url, read_only=True) as dataset:
        labels = [model.label for model in dataset.models() if model.label]
        rows = {model.label: len(dataset.model_operators(model.key)) for model in dataset.models()}
        timed = dataset.counts()
    operators = max(rows.values(), default=0)
    return {
        "finished": sum(report.error is None for report in reports),
        "errors": sorted({report.error for report in reports if report.error is not None})[:3],
        "models_lost": _TASKS - len(set(labels)),
        "models_doubled": len(labels) - len(set(labels)),
        "measurements_expected": operators * _TASKS,
        "measurements": timed["complete"],
    }


def reached(tables: Tables) -> bool | None:
    """Return whether the stored tables reach the goal, or None if a number that it needs is missing."""
    rows = tables.get("faults", ())
    return every(
        row["finished"] == row["requests"]
        and row["measurements"] == row["measurements_expected"]
        and row["models_lost"] == row["models_doubled"] == 0
        for row in rows
    )


def main() -> None:
    run = run_of(__file__, __doc__, measure, ["all"])
    (row,) = [found.result for found in run.found]
    print(row, flush=True)
    headline = f"{row['finished']} of {row['requests']} requests finished, "
    headline += f"{row['measurements']} of {row['measurements_expected']} measurements, "
    headline += f"{row['models_doubled']} models doubled, after {row['workers_killed']} killed workers"
    row["errors"] = "; ".join(row["errors"]) or "none"
    store(__file__, headline, {"faults": [row]}, whole=run.whole and SHARE == 1)


if __name__ == "__main__":
    main()
