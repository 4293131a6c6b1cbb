"""Is every row of different machines behind one scheduler attributed to its device?

    python benchmarks/fleet_heterogeneous.py [NAME ...] [--keep FILE]     (3 minutes; --keep goes on)

The cluster has two workers that claim to be other machines, and an emulated board behind a tracker. Models are
collected on every distinct device of this processor's kind, and on the board. The rows are compared with the machine
that the worker reported, and with the board's serial number.

Goal: every row names its device.
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common import ROOT, every, run_of, store
from fleet_common import cluster_of, on_board, postgresql_server, small_requests

if TYPE_CHECKING:
    from common import Tables

_MODELS = 3
_SERIAL = "0000000000b0a4d"


def measure(name: str) -> dict[str, Any]:
    """Rows by device, beside who says to have measured them."""
    sys.path.insert(0, str(ROOT / "tests" / "boards"))
    from lab import Lab, built_board

    from op_profiler.dataset import Dataset
    from op_profiler.dataset.maintain import contents

    with tempfile.TemporaryDirectory() as text, postgresql_server() as server:
        folder = Path(text)
        lab = Lab(built_board(), folder)
        try:
            _with_serial_number(lab)
            with cluster_of(folder, 2, other_machines=True) as cluster:
                requests = small_requests(server.url, _MODELS)
                there = [on_board(request, lab.port) for request in requests]
                ended = [*cluster.ended(requests, each=True), *cluster.ended(there)]
        finally:
            lab.stop()
        done = [one for one in ended if one.answer is not None and one.answer.error is None]
        with Dataset.open(server.url, read_only=True) as dataset:
            found = [(_expected(one), rows_by_device(dataset, one.answer.model_key)) for one in done]
            kinds = sorted(device["kind"] for device in contents(dataset).devices)
    machines = Counter(expected for expected, _ in found)
    return {
        "machines": len(machines),
        "kinds": ", ".join(kinds),
        "requests": len(ended),
        "failed": len(ended) - len(done),
        "models_on_each": ", ".join(map(str, sorted(machines.values()))),
        "rows": sum(sum(rows.values()) for _, rows in found),
        "rows_of_another_device": sum(
            count for expected, rows in found for machine, count in rows.items() if expected not in machine
        ),
    }


def _with_serial_number(lab: Any) -> None:
    """A board that is told by it."""
    board = lab.board()
    board.stop()
    board.files = {"proc/cpuinfo": f"Hardware : Xilinx Zynq\nSerial : {_SERIAL}\n"}
    board.start()
    lab.wait_until_offered(board.address)


def _expected(ended: Any) -> str:
    """What a device's identity has to hold: the worker's own word of its machine, or the serial number of the board."""
    if ended.task.request.build.place is None:
        return str(ended.machine.measures["llvm"])
    words = (Path("/proc/version").read_text().strip(), _SERIAL)
    return hashlib.sha256("\n".join(words).encode()).hexdigest()[:16]


def rows_by_device(dataset: Any, model_key: str) -> dict[str, int]:
    """How many measurements of a model name which machine, by `Device.identity`."""
    from sqlalchemy import func, select

    from op_profiler.dataset.schema import devices, measurements

    machine = (devices.c.host_fingerprint, devices.c.machine_id)
    query = select(*machine, func.count().label("rows")).join(measurements, measurements.c.device_key == devices.c.key)
    rows = dataset.rows(query.where(measurements.c.model_key == model_key).group_by(*machine))
    return {f"{row['host_fingerprint']} {row['machine_id']}": row["rows"] for row in rows}


def reached(tables: Tables) -> bool | None:
    """Return whether the stored tables reach the goal, or None if a number that it needs is missing."""
    rows = [row for row in tables.get("machines", ()) if row["rows"]]
    return every(row["rows_of_another_device"] == 0 for row in rows)


def main() -> None:
    run = run_of(__file__, __doc__, measure, ["all"])
    (row,) = [found.result for found in run.found]
    print(row, flush=True)
    headline = f"{row['machines']} machines, {row['rows_of_another_device']} of {row['rows']} rows "
    headline += "of another device than measured them"
    store(__file__, headline, {"machines": [row]}, whole=run.whole)


if __name__ == "__main__":
    main()
