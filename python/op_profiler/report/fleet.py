"""The machines of a cluster on the screen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def show_fleet(address: str, workers: Sequence[Mapping[str, Any]]) -> None:
    """A row a worker."""
    from rich.console import Console
    from rich.table import Table

    machines = {worker["host_id"] for worker in workers}
    table = Table(title=f"{address}: {len(workers)} workers on {len(machines)} machines", title_justify="left")
    for name in ("machine", "processor", "cores", "GiB", "measures", "state", "runs"):
        table.add_column(name, justify="right" if name in ("cores", "GiB") else "left")
    for worker in workers:
        table.add_row(
            worker["host"],
            worker["processor"],
            str(worker["cores"]),
            f"{worker['memory_bytes'] / 2**30:.0f}",
            ", ".join(worker["measures"]) or "boards",
            worker["status"],
            ", ".join(worker["requests"]) or "-",
        )
    Console().print(table)
