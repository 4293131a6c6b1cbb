"""Stores and reads the explanations that ``op-profiler explain`` found for a model's operators; only the latest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import select

from op_profiler.dataset import schema
from op_profiler.dataset.engine import utc_now
from op_profiler.dataset.statements import upsert
from op_profiler.dataset.store import Dataset


def record_explanations(dataset: Dataset, model_key: str, found: Mapping[str, Mapping[str, Any]]) -> None:
    """Store explanations of operators of a model; they replace earlier explanations of the same operators.

    Args:
        found: JSON-serializable fields of `analysis.explain.explanation.OperatorExplanation`, by workload key.

    Raises:
        DatasetError: the database fails.
    """
    now = utc_now()
    rows = [
        {"model_key": model_key, "operator_key": key, "found": one, "explained_at": now} for key, one in found.items()
    ]
    with dataset.transaction() as connection:
        upsert(connection, schema.explanations, rows, replace=("found", "explained_at"))


def explanations_of(dataset: Dataset, model_key: str) -> dict[str, tuple[str, dict[str, Any]]]:
    """Return the explanations of a model's operators by workload key: the time (UTC) and the contents of each.

    Raises:
        DatasetError: the database fails.
    """
    table = schema.explanations
    rows = dataset.rows(select(table).where(table.c.model_key == model_key))
    return {row["operator_key"]: (row["explained_at"], row["found"]) for row in rows}
