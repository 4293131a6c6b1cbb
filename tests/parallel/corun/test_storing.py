"""What enters the dataset of a plan."""

from __future__ import annotations

from pathlib import Path

from op_profiler.building.request import BuildRequest
from op_profiler.frontends.frontend import ModelRequest
from op_profiler.parallel.corun.comparison import compare
from op_profiler.parallel.corun.costs import measure_costs
from op_profiler.parallel.corun.models import Models, in_order
from op_profiler.parallel.corun.storing import record_coruns


def test_nothing_is_stored_of_a_plan_without_neighbours(branching: Models, tmp_path: Path) -> None:
    """But for the operators beside their own copies."""
    plan = in_order(branching, 1)
    profile = measure_costs(branching)
    _, run = compare(branching, plan, branching, 1)
    request = BuildRequest(model=ModelRequest(source="local", name="mlp"))
    db = f"sqlite:///{tmp_path / 'd.db'}"
    count = record_coruns(db, [request], branching, profile, plan, run)
    distinct = len({node.operator.key for node in branching.graph.nodes})
    assert count == (distinct if len(branching.cores) > 1 else 0)
