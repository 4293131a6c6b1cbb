"""Looks up the stored model that matches a request, and which of its results are stored."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable
from typing import TYPE_CHECKING

from op_profiler.collection.resume import StoredResults
from op_profiler.dataset import Dataset
from op_profiler.errors import DatasetError, MissingPackageError
from op_profiler.frontends import FRONTENDS

if TYPE_CHECKING:
    from op_profiler.collection.request import CollectRequest


@dataclasses.dataclass(frozen=True)
class StoredModel:
    """A stored model that matches a request.

    Attributes:
        key: key of the model in the dataset.
        answered: requested thread counts at which nothing has to be measured.
    """

    key: str
    answered: frozenset[int]


def find(dataset: Dataset, request: CollectRequest, base_key: str, run_id: str | None) -> StoredModel | None:
    """Return the stored model that is equal to a new build of the request; None if the dataset has no such model.

    Nothing is built. A build looks up schedule records for some of its computations. A stored model matches if these
    records are the same now as when it was built, or are still missing. If several models match, the one with results
    at the most thread counts is returned.

    Args:
        base_key: `CollectRequest.base_key`.
        run_id: as in `StoredResults`.
    """
    found = []
    for model in dataset.models(base_key):
        if model.extracted and request.build.model_key(base_key, model.asked) == model.key:
            earlier = StoredResults(dataset, request, model.key, run_id)
            answered = frozenset(n for n in request.build.threads if earlier.answers(n))
            found.append(StoredModel(model.key, answered))
    return max(found, key=lambda one: len(one.answered), default=None)


def stored_for(request: CollectRequest, machines: Iterable[str]) -> dict[str, StoredModel]:
    """Return, by machine, the stored model that matches a request; machines without such a model are left out.

    The result is empty if the dataset cannot be read, or if only lowering can identify the model.

    Args:
        machines: `Device.identity` of the machines to look up.

    Raises:
        OpProfilerError, OSError: a file of the model or of its inputs cannot be read on this machine.
    """
    model = request.build.model
    content = FRONTENDS.get(model.source).fingerprint(model)
    if content is None:
        return {}
    with contextlib.suppress(DatasetError, MissingPackageError), Dataset.open(request.db, read_only=True) as dataset:
        found = {machine: find(dataset, request, request.base_key(content, machine), None) for machine in machines}
        return {machine: one for machine, one in found.items() if one is not None}
    return {}
