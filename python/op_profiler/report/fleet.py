"""The table of a cluster's machines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from op_profiler.option_values import several
from op_profiler.report.tables import numbers, print_line, screen, show_table, texts


def show_fleet(address: str, state: Mapping[str, Any]) -> None:
    """Print a row per worker, and lines about the requests of clients.

    Args:
        state: result of `op_profiler.fleet.state.state_of`.
    """
    workers = state["workers"]
    machines = {worker["host_id"] for worker in workers}
    rows = []
    for worker in workers:
        drift = f", drifts: {worker['deviation']:+.0%}" if worker["drifts"] else ""
        rows.append(
            [
                worker["host"],
                worker["does"],
                worker["status"] + drift,
                *("-" if worker[name] is None else str(worker[name]) for name in ("finished", "failed")),
                ", ".join(worker["tasks"]) or "-",
                str(worker["cores"]),
                f"{worker['memory_bytes'] / 2**30:.0f}",
                worker["processor"],
            ]
        )
    headings = [
        *texts("machine", "does", "state"),
        *numbers("finished", "failed"),
        *texts("has to do"),
        *numbers("cores", "GiB", rank=1),
        *texts("processor", rank=2),
    ]
    console = screen()
    show_table(
        console, f"{address}: {several(len(workers), 'worker')} on {several(len(machines), 'machine')}", headings, rows
    )
    for run in state["runs"]:
        print_line(
            console, f"a run has {run['done']} done" + (f", {run['of'] - run['done']} left" if run["of"] else "")
        )
    for failure in state["failures"]:
        print_line(console, f"failed on {failure['machine'] or 'no machine'}: {failure['name']}: {failure['error']}")
    for reason in state["left_out"]:
        print_line(console, f"left out: {reason}")
    print_line(console, f"{state['per_minute']:g} tasks a minute over the last ten")
    if state["dashboard"]:
        print_line(console, f"Dask's pages: {state['dashboard']}")
