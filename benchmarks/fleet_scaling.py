"""How much more do several boards measure than one? 1, 2, 4 and 8 of given speed behind one scheduler.

    python benchmarks/fleet_scaling.py [NAME ...] [--keep FILE]     (3 minutes; --keep goes on)

A board is a worker whose requests take two seconds of waiting and nothing else: what it is asked for is in the dataset
already. So the cores of this machine are not the limit, and what is left is what the cluster costs. Linear is the
number of requests over the number of boards, in seconds.

Goal: at least 90 % of linear with 8 boards.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from common import run_of, store
from fleet_common import SHARE, cluster_of, waiting_requests

_BOARDS = (1, 2, 4, 8)
_EACH = max(int(20 * SHARE), 1)  # requests a board; 10 at 8 boards reach 86 %: two seconds go before the first
_SECONDS = 2.0  # that each request takes on a board


def measure(name: str) -> dict[str, Any]:
    """Seconds for the requests of some boards."""
    boards = int(name)
    with tempfile.TemporaryDirectory() as folder, cluster_of(Path(folder), boards) as cluster:
        requests = waiting_requests(Path(folder), _EACH * boards, seconds=_SECONDS)
        started = time.monotonic()
        reports = cluster.run(requests)
        seconds = time.monotonic() - started
    failed = sum(report.error is not None for report in reports)
    return {"boards": boards, "requests": len(requests), "failed": failed, "seconds": round(seconds, 2)}


def main() -> None:
    run = run_of(__file__, __doc__, measure, list(map(str, _BOARDS)))
    rows = [
        found.result | {"of_linear_percent": round(100 * _EACH * _SECONDS / found.result["seconds"], 1)}
        for found in run.found
    ]
    for row in rows:
        print(row, flush=True)
    last = rows[-1]
    headline = f"{last['boards']} boards reach {last['of_linear_percent']} % of linear"
    store(__file__, headline, {"boards": rows}, whole=len(rows) == len(_BOARDS) and SHARE == 1)


if __name__ == "__main__":
    main()
