"""What enters the dataset of a plan."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import select

from op_profiler.building.request import BuildRequest
from op_profiler.dataset import Dataset, schema
from op_profiler.frontends.frontend import ModelRequest
from op_profiler.parallel.corun.comparison import compare
from op_profiler.parallel.corun.costs import measure_costs
from op_profiler.parallel.corun.models import Models, in_order
from op_profiler.parallel.corun.storing import record_coruns


@pytest.fixture
def record(branching: Models, tmp_path: Path) -> Callable[[], int]:
    """Stores what a plan without neighbours measured."""
    plan = in_order(branching, 1)
    profile = measure_costs(branching)
    _, run = compare(branching, plan, branching, 1)
    request = BuildRequest(model=ModelRequest(source="local", name="mlp"))
    db = f"sqlite:///{tmp_path / 'd.db'}"
    return lambda: record_coruns(db, [request], branching, profile, plan, run)


def test_nothing_is_stored_of_a_plan_without_neighbours(branching: Models, record: Callable[[], int]) -> None:
    """But for the operators beside their own copies."""
    distinct = len({node.operator.key for node in branching.graph.nodes})
    assert record() == (distinct if len(branching.cores) > 1 else 0)


def test_what_a_collection_stored_of_the_model_stays(record: Callable[[], int], tmp_path: Path) -> None:
    record()
    with Dataset.open(f"sqlite:///{tmp_path / 'd.db'}") as dataset:
        (model,) = dataset.models()
        kept = ("key", "name", "source", "batch_size", "precision", "executor", "target", "device_key", "base_key")
        dataset.add_model(**{name: getattr(model, name) for name in kept}, notes=["collected"])
        operators = dataset.model_operators(model.key)
        dataset.add_operators(model.key, operators, code={operator.key: "kernel" for operator, _ in operators})
    record()
    with Dataset.open(f"sqlite:///{tmp_path / 'd.db'}") as dataset:
        assert dataset.models()[0].notes == ("collected",)
        assert {row["code"] for row in dataset.rows(select(schema.model_operators.c.code))} == {"kernel"}
