"""How much more do several boards measure than one? 1, 2, 4 and 8 emulated boards behind one scheduler.

    python benchmarks/fleet_scaling.py [NAME ...] [--keep FILE]     (25 minutes; --keep goes on)

The boards are behind one tracker, with a worker each. Their kernels wait for 1.5 s each, whatever else runs on this
machine. The cores of this machine are therefore not the limit, as with real boards, and the rest of the time is the
cost of the cluster: distributing, looking up, lowering, sending, storing. A request also uses a core for seconds, some
of them for the emulation, which real boards do not need: with kernels of a tenth of the time, eight boards would keep
two cores busy and wait for them. The result contains how busy the cores were.

All requests are of one small model under different labels, so that it is built once. Every board measures once before
the clock starts, and has requests left when the clock stops, because requests that start and end together would wait
for this machine's cores. *Linear* is the rate of one board times the number of boards.

Goal: at least 90 % of linear with 8 boards.
"""

from __future__ import annotations

import itertools
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
from common import ROOT, at_least, every, run_of, store
from fleet_common import SHARE, cluster_of, small_requests

if TYPE_CHECKING:
    from common import Tables

_BOARDS = (1, 2, 4, 8)
_KERNEL_SECONDS = 1.5 * SHARE
_EACH = 1  # requests a board while the clock runs


def measure(name: str) -> dict[str, Any]:
    """How many requests some boards do a minute."""
    sys.path.insert(0, str(ROOT / "tests" / "boards"))
    from lab import Lab, built_board

    boards = int(name)
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        lab = Lab(built_board(), folder)
        try:
            for _ in range(boards):
                lab.board(_KERNEL_SECONDS)
            with cluster_of(folder, boards, "--boards", f"pynq@127.0.0.1:{lab.port}") as cluster:
                asked = small_requests(f"sqlite:///{folder}/boards.db", boards * (_EACH + 2))
                reports = cluster.reports([request.of(target="pynq") for request in asked])
                first = list(itertools.islice(reports, boards))
                psutil.cpu_percent()
                started = time.monotonic()
                timed = list(itertools.islice(reports, boards * _EACH))
                seconds = time.monotonic() - started
                busy_percent = psutil.cpu_percent()
                reports.close()  # what is still out is not waited for
        finally:
            lab.stop()
    found = [report.threads[1].measurements.values() for report in timed if 1 in report.threads]
    times = sorted(one.median_us for measured in found for one in measured if one.median_us is not None)
    return {
        "boards": boards,
        "requests": len(timed),
        "failed": sum(report.error is not None for report in (*first, *timed)),
        "fastest_kernel_s": round(times[0] / 1e6, 3),
        "slowest_kernel_s": round(times[-1] / 1e6, 3),
        "seconds": round(seconds, 1),
        "cores_busy_percent": round(busy_percent, 1),
        "requests_a_minute": round(60 * len(timed) / seconds, 2),
    }


def reached(tables: Tables) -> bool | None:
    """Return whether the stored tables reach the goal, or None if a number that it needs is missing."""
    return every(at_least(row["of_linear_percent"], 90) for row in tables.get("boards", ()) if row["boards"] == 8)


def main() -> None:
    run = run_of(__file__, __doc__, measure, list(map(str, _BOARDS)))
    rows = [found.result for found in run.found]
    one_board = rows[0]["requests"] / rows[0]["seconds"] / rows[0]["boards"]
    for row in rows:
        row["of_linear_percent"] = round(100 * row["requests"] / row["seconds"] / (row["boards"] * one_board), 1)
        print(row, flush=True)
    last = rows[-1]
    headline = f"{last['boards']} boards reach {last['of_linear_percent']} % of linear"
    store(__file__, headline, {"boards": rows}, whole=len(rows) == len(_BOARDS) and SHARE == 1)


if __name__ == "__main__":
    main()
