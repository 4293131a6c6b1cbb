"""How much longer does a cluster take than the plain command, and how many tasks per second does it distribute?

    python benchmarks/fleet_overhead.py [NAME ...] [--keep FILE]     (15 minutes; --keep goes on)

`models`: 40 small models (single operators of different sizes) with the plain command and with `--cluster local:1`,
each with a separate dataset and separate caches. `tasks`: 10,000 requests whose results are already in the dataset,
through one worker, and the memory of the requesting process after a tenth of them and at the end.

Goal: at most 5 % longer; the memory grows by at most 5 %.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
from common import ROOT, at_most, every, run_of, store
from fleet_common import SHARE, cluster_of, stored_requests

if TYPE_CHECKING:
    from common import Tables

_MODELS = int(40 * SHARE)
_TASKS = int(10_000 * SHARE)
_FLAT_PERCENT = 5


def measure(name: str) -> dict[str, Any]:
    """One of both."""
    with tempfile.TemporaryDirectory() as folder:
        return models(Path(folder)) if name == "models" else tasks(Path(folder))


def models(folder: Path) -> dict[str, Any]:
    """Seconds of both ways, one after the other."""
    plain, cluster = (_collect(folder / way, way) for way in ("plain", "cluster"))
    return {
        "models": _MODELS,
        "plain_s": round(plain, 1),
        "cluster_s": round(cluster, 1),
        "longer_percent": round(100 * (cluster / plain - 1), 1),
    }


def _collect(folder: Path, way: str) -> float:
    folder.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "OP_PROFILER_CACHE": str(folder / "cache")}
    command = [
        sys.executable,
        str(ROOT / "benchmarks" / "fleet_common.py"),
        f"sqlite:///{folder}/a.db",
        str(_MODELS),
    ]
    started = time.monotonic()
    subprocess.run([*command, *(["local:1"] if way == "cluster" else [])], check=True, env=environment)
    return time.monotonic() - started


def tasks(folder: Path) -> dict[str, Any]:
    """Requests that need nothing to be measured."""
    with cluster_of(folder, 1) as cluster:
        requests = stored_requests(folder, _TASKS)
        me, early = psutil.Process(), 0
        started = time.monotonic()
        failed = 0
        for done, report in enumerate(cluster.reports(requests), 1):
            failed += report.error is not None
            if done == _TASKS // 10:
                early = me.memory_info().rss
        seconds = time.monotonic() - started
    late = me.memory_info().rss
    return {
        "tasks": _TASKS,
        "failed": failed,
        "tasks_a_second": round(_TASKS / seconds, 1),
        "memory_after_a_tenth_mib": round(early / 2**20),
        "memory_at_the_end_mib": round(late / 2**20),
        "peak_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10),
    }


def reached(tables: Tables) -> bool | None:
    """Return whether the stored tables reach the goal, or None if a number that it needs is missing.

    Memory counts as flat if it grows by at most `_FLAT_PERCENT` between a tenth of the tasks and their end.
    """
    grown = [(row["memory_at_the_end_mib"], row["memory_after_a_tenth_mib"]) for row in tables.get("tasks", ())]
    return every(
        [
            every(at_most(row["longer_percent"], 5) for row in tables.get("models", ())),
            every(at_most(late, early * (100 + _FLAT_PERCENT) / 100) for late, early in grown),
        ]
    )


def main() -> None:
    run = run_of(__file__, __doc__, measure, ["models", "tasks"])
    found = {one.name: one.result for one in run.found}
    for result in found.values():
        print(result, flush=True)
    if len(found) == 2:
        both = found["models"], found["tasks"]
        headline = f"{both[0]['longer_percent']} % longer than plain; {both[1]['tasks_a_second']} tasks a second"
        store(__file__, headline, {name: [result] for name, result in found.items()}, whole=SHARE == 1)


if __name__ == "__main__":
    main()
