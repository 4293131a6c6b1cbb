"""The models that rows of a flat table were measured in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import select

from op_profiler.dataset import keys, schema
from op_profiler.dataset.row import Row
from op_profiler.dataset.store import Dataset
from op_profiler.measure.measurement import Measurement, ModelTiming
from op_profiler.operators.operator import Operator

Measured = tuple[dict[str, Any], Row, Operator]
_NOTE = "imported from a flat table: only the operators that it holds are known"


def add_models(dataset: Dataset, rows: Sequence[Measured]) -> None:
    """Store models, where they call their operators, and their own latency, as far as the flat table says; inside the
    caller's transaction. What the dataset knows of them already stays, but for a latency that is older and no better.

    A model is stored as not extracted: the table need not hold all its operators.
    """
    inside = [item for item in rows if item[1].model_key]
    seen: set[str] = set()
    for flat, row, operator in inside:
        dataset.add_anchor(operator)
        if row.device.key not in seen and dataset.find_device(row.device.key) is None:
            dataset.add_device(row.device)
        if row.model_key not in seen:
            _add_model(dataset, flat, row)
        seen |= {row.device.key, row.model_key}
    _add_links(dataset, inside)
    timed = sorted((item for item in inside if item[0]["whole_model_us"] is not None), key=_measured_at)
    newest = {keys.timing_key(row.model_key, row.device.key, row.settings): (flat, row) for flat, row, _ in timed}
    for flat, row in newest.values():
        _add_timing(dataset, flat, row)


def _measured_at(item: Measured) -> str:
    return item[0]["measured_at"]


def _add_model(dataset: Dataset, flat: dict[str, Any], row: Row) -> None:
    if dataset.find_model(row.model_key) is not None:
        return
    dataset.add_model(
        key=row.model_key,
        name=flat["model_name"],
        source=flat["model_source"],
        batch_size=flat["batch_size"],
        precision=row.settings.precision,
        executor="default" if row.settings.executor == "graph" else row.settings.executor,
        target=row.device.target,
        notes=[_NOTE],
        device_key=row.device.key,
        label=flat["run_label"] or "",
    )


def _add_links(dataset: Dataset, rows: Sequence[Measured]) -> None:
    """Not by `Dataset.add_operators`, which would put them in place of all that a model has."""
    table = schema.model_operators
    pairs = select(table.c.model_key, table.c.operator_key)
    pairs = pairs.where(table.c.model_key.in_({row.model_key for _, row, _ in rows}))
    present = {(row["model_key"], row["operator_key"]) for row in dataset.rows(pairs)}
    links = {}
    for flat, row, operator in rows:
        identity = (row.model_key, operator.key)
        if identity not in present and flat["occurrences"] is not None:
            links[identity] = {
                "model_key": row.model_key,
                "operator_key": operator.key,
                "name": flat["operator_name"],
                "occurrences": flat["occurrences"],
                "positions": flat["positions"] or [],
                "schedule_key": None,
                "launches": flat["launches"],
                "layers": flat["layers"],
            }
    if links:
        with dataset.read() as connection:  # the connection of the transaction that this is inside of
            connection.execute(table.insert(), list(links.values()))


def _add_timing(dataset: Dataset, flat: dict[str, Any], row: Row) -> None:
    """The latency of a model, as of the newest row that tells it; what is there with its rounds stays."""
    timing = ModelTiming(
        whole_model=Measurement(median_us=flat["whole_model_us"]),
        before_us=None,
        after_us=None,
        sum_of_operators_us=None,
        details=flat["timing_details"] or {},
    )
    told = {name: flat[name] for name in ("project_revision", "user_revision", "measured_at")}
    dataset.record_model_timing(row.model_key, row.settings, row.device, timing, **told)
