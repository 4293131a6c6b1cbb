"""Stores explanations in the dataset, next to the explained model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from sqlalchemy import select

from op_profiler.addresses import without_password
from op_profiler.building.recipe import Recipe
from op_profiler.building.request import BuildRequest
from op_profiler.compilers import DEFAULT_COMPILER
from op_profiler.dataset import Dataset, flat_rows, schema
from op_profiler.dataset.explanations import record_explanations
from op_profiler.errors import DatasetError, UsageError
from op_profiler.frontends.frontend import ModelRequest

if TYPE_CHECKING:
    from op_profiler.analysis.explain.explanation import ModelExplanation


def keep(db: str, build: BuildRequest, content: str, machine: str, found: ModelExplanation) -> ModelExplanation:
    """Store an explanation with every run of the same build in a dataset.

    Args:
        db: SQLAlchemy URL of the dataset.
        build: request of the explained build.
        content: content of the model (`ImportedModel.content`).
        machine: `Device.identity` of the machine on which the model was measured.
        found: the explanation.

    Returns:
        The explanation with the keys of these runs, or with a note that gives the reason why it is not stored.
    """
    plain = {one.key: msgspec.to_builtins(one) for one in found.operators}
    try:
        with Dataset.open(db, create=False) as dataset:
            keys = _keys(dataset, build, content, machine)
            for key in keys:
                record_explanations(dataset, key, plain)
    except DatasetError as error:
        why_not = str(error)
    else:
        if keys:
            return msgspec.structs.replace(found, model_keys=keys)
        place = without_password(db)
        why_not = f"{place} has no run of this build of {found.model}; op-profiler collect makes one"
    return msgspec.structs.replace(found, notes=[*found.notes, f"not kept for reports: {why_not}"])


def _keys(dataset: Dataset, build: BuildRequest, content: str, machine: str) -> list[str]:
    """Return the keys of the models of this build, one for each label."""
    labels = {row["label"] for row in dataset.rows(select(schema.models.c.label).distinct())}
    return [
        model.key
        for base_key in (build.base_key(content, machine, label) for label in sorted(labels))
        for model in dataset.models(base_key)
        if model.extracted and build.model_key(base_key, model.asked) == model.key
    ]


def build_of(operator: str, db: str) -> BuildRequest:
    """Return the build of the first model in the dataset that calls an operator, from the model's recipe; if the model
    has no recipe, a build with the model's name, source and batch size.

    Raises:
        UsageError: no model in the dataset calls the operator, or the model cannot be explained.
        DatasetError: the model's recipe cannot be read.
    """
    with Dataset.open(db, create=False, read_only=True) as dataset:
        columns = ("model_key", "model_name")
        rows = flat_rows(dataset, where=f"operator_key = '{operator}'", columns=columns)
        key = next((row["model_key"] for row in rows if row["model_name"]), None)
        model = dataset.find_model(key) if key is not None else None
    if model is None:
        raise UsageError(
            f"{without_password(db)} has no model that calls operator {operator}; op-profiler export names keys, or "
            "give the model"
        )
    if model.recipe is not None:
        asked = Recipe.from_json(model.recipe).request
        if asked.precision != "float32" or asked.compiler != DEFAULT_COMPILER:
            raise UsageError(
                f"operator {operator} is of {model.name} in {asked.precision} by {asked.compiler}; op-profiler explain "
                f"reads the machine code of float32 models by {DEFAULT_COMPILER}"
            )
        return asked
    return BuildRequest(model=ModelRequest(source=model.source, name=model.name, batch_size=model.batch_size))
