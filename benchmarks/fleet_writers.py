"""How many rows per second do many writers store, and is any row lost? 64 writers on PostgreSQL and 8 on SQLite.

    python benchmarks/fleet_writers.py [NAME ...] [--keep FILE]     (5 minutes; --keep goes on)

Each writer is a process that stores rows of ten rounds, ten rows per transaction, for two minutes, and then reports how
many it stored. PostgreSQL waits for its disk, as in production.

Goal: none lost.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

from common import at_most, every, run_of, store
from fleet_common import SHARE, postgresql_server

if TYPE_CHECKING:
    from common import Tables

_SECONDS = 120.0 * SHARE
_WRITERS = {"postgresql": 64, "sqlite": 8}
_ROWS = 10
_START_SECONDS = 10.0  # until all have opened the dataset


def measure(name: str) -> dict[str, Any]:
    """Writers of one kind of database."""
    if name == "sqlite":
        with tempfile.TemporaryDirectory() as folder:
            return written(name, f"sqlite:///{folder}/a.db")
    with postgresql_server("max_connections=200") as server:
        return written(name, server.url)


def written(name: str, url: str) -> dict[str, Any]:
    """What all writers say, beside what is there."""
    from op_profiler.dataset import Dataset

    Dataset.open(url).close()
    _row(0)  # what this imports the writers have
    begin = time.time() + _START_SECONDS
    with ProcessPoolExecutor(_WRITERS[name], mp_context=multiprocessing.get_context("fork")) as writers:
        told = list(writers.map(partial(write, url, begin), range(_WRITERS[name])))
    with Dataset.open(url, read_only=True) as dataset:
        rows = dataset.counts()["measurements"]
    return {
        "database": name,
        "writers": len(told),
        "seconds": _SECONDS,
        "rows": rows,
        "rows_a_second": round(sum(told) / _SECONDS),
        "lost": sum(told) - rows,
        "fewest_of_a_writer": min(told),
        "most_of_a_writer": max(told),
    }


def write(url: str, begin: float, number: int) -> int:
    """Store rows until the time is up; how many."""
    from op_profiler.dataset import Dataset
    from op_profiler.dataset.row import Row
    from op_profiler.measure.measurement import Settings
    from op_profiler.schedules.schedule import UNKNOWN

    operator, device, measurement = _row(number)
    stored = 0
    with Dataset.open(url) as dataset:
        dataset.add_anchor(operator)
        time.sleep(max(begin - time.time(), 0))
        while time.time() < begin + _SECONDS:
            dataset.record_all(
                Row(
                    operator_key=operator.key,
                    schedule=UNKNOWN,
                    settings=Settings(threads=1, cache="hot", cache_mechanism="", streams=stored + row + 1),
                    device=device,
                    measurement=measurement,
                )
                for row in range(_ROWS)
            )
            stored += _ROWS
    return stored


def _row(writer: int) -> tuple[Any, Any, Any]:
    """Operator, device and measurement of a writer's rows."""
    import numpy as np

    from op_profiler.measure.measurement import Device
    from op_profiler.measure.statistics import summarize
    from op_profiler.operators.operator import Operator, TensorSpec

    tensor = TensorSpec((1, 64, 56, 56), "float32")
    operator = Operator(
        name="relu", anchor="nn.relu", op_names=("nn.relu",), inputs=(tensor,), params=(), outputs=(tensor,),
        attrs=({},), layouts={}, structure="", flops=1, bytes_read=1, bytes_written=1,
    )  # fmt: skip
    device = Device(kind="llvm", target="llvm", processor=f"writer {writer}", cores=1)
    return operator, device, summarize(np.random.default_rng(writer).random((10, 1)) + 1)


def reached(tables: Tables) -> bool | None:
    """Return whether the stored tables reach the goal, or None if a number that it needs is missing.

    A database without a row counts as unknown.
    """
    lost = {row["database"]: row["lost"] for row in tables.get("writers", ())}
    return every(at_most(lost.get(database), 0) for database in _WRITERS)


def main() -> None:
    run = run_of(__file__, __doc__, measure, list(_WRITERS))
    rows = [found.result for found in run.found]
    for row in rows:
        print(row, flush=True)
    told = ", ".join(
        f"{r['writers']} writers store {r['rows_a_second']:,} rows a second on {r['database']}" for r in rows
    )
    headline = f"{told}; {sum(r['lost'] for r in rows)} lost"
    store(__file__, headline, {"writers": rows}, whole=len(rows) == len(_WRITERS) and SHARE == 1)


if __name__ == "__main__":
    main()
