"""The machines of a cluster on the screen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def show_fleet(address: str, state: Mapping[str, Any]) -> None:
    """A row a worker, and lines about what clients asked for.

    Args:
        state: of `op_profiler.fleet.state.state_of`.
    """
    from rich.console import Console
    from rich.table import Table

    workers = state["workers"]
    machines = {worker["host_id"] for worker in workers}
    table = Table(title=f"{address}: {len(workers)} workers on {len(machines)} machines", title_justify="left")
    numbers = ("cores", "GiB", "finished", "failed")
    for name in ("machine", "processor", "cores", "GiB", "does", "state", "finished", "failed", "has to do"):
        table.add_column(name, justify="right" if name in numbers else "left")
    for worker in workers:
        drift = f", drifts: {worker['deviation']:+.0%}" if worker["drifts"] else ""
        table.add_row(
            worker["host"],
            worker["processor"],
            str(worker["cores"]),
            f"{worker['memory_bytes'] / 2**30:.0f}",
            worker["does"],
            worker["status"] + drift,
            *("-" if worker[name] is None else str(worker[name]) for name in ("finished", "failed")),
            ", ".join(worker["tasks"]) or "-",
        )
    console = Console()
    console.print(table)
    for run in state["runs"]:
        console.print(f"a run has {run['done']} done" + (f", {run['of'] - run['done']} left" if run["of"] else ""))
    for failure in state["failures"]:
        console.print(
            f"failed on {failure['machine'] or 'no machine'}: {failure['name']}: {failure['error']}", markup=False
        )
    for reason in state["left_out"]:
        console.print(f"left out: {reason}", markup=False)
    console.print(f"{state['per_minute']:g} tasks a minute over the last ten")
    if state["dashboard"]:
        console.print(f"Dask's pages: {state['dashboard']}")
