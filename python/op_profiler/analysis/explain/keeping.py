"""What an explanation found, kept beside the model in the dataset, where reports find it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from op_profiler.addresses import without_password
from op_profiler.errors import DatasetError

if TYPE_CHECKING:
    from op_profiler.analysis.explain.explanation import ModelExplanation
    from op_profiler.building.request import BuildRequest
    from op_profiler.dataset import Dataset


def keep(db: str, build: BuildRequest, content: str, machine: str, found: ModelExplanation) -> str:
    """Store it beside every run of the same build.

    Args:
        content: of the model (`ImportedModel.content`).
        machine: `Device.identity` of the one that it was measured on.

    Returns:
        Why nothing was stored; empty where it was.
    """
    from op_profiler.dataset import Dataset
    from op_profiler.dataset.explanations import record_explanations

    plain = {one.key: msgspec.to_builtins(one) for one in found.operators}
    try:
        with Dataset.open(db, create=False) as dataset:
            keys = _keys(dataset, build, content, machine)
            for key in keys:
                record_explanations(dataset, key, plain)
    except DatasetError as error:
        return f"not kept for reports: {error}"
    if keys:
        return ""
    place = without_password(db)
    return f"not kept for reports: {place} has no run of this build of {found.model}; op-profiler collect makes one"


def _keys(dataset: Dataset, build: BuildRequest, content: str, machine: str) -> list[str]:
    """Of the models that this build gives, one for each label."""
    from sqlalchemy import select

    from op_profiler.dataset import schema

    labels = {row["label"] for row in dataset.rows(select(schema.models.c.label).distinct())}
    return [
        model.key
        for base_key in (build.base_key(content, machine, label) for label in sorted(labels))
        for model in dataset.models(base_key)
        if model.extracted and build.model_key(base_key, model.asked) == model.key
    ]
