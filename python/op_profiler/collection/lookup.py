"""Look-up of the stored model that matches a request, and of what the dataset has of it."""

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
class Found:
    """A stored model.

    Attributes:
        key: of the model in the dataset.
        answered: thread counts of the request at which nothing needs to be measured.
    """

    key: str
    answered: frozenset[int]


def find(dataset: Dataset, request: CollectRequest, base_key: str, run_id: str | None) -> Found | None:
    """The stored model that a build would give; None where there is none. Nothing is built for it.

    A build asks for the schedule records of some computations. A stored model is what a build would give as long as the
    records of those that its own build asked for are the same today, none among them.

    Args:
        base_key: `CollectRequest.base_key`.
        run_id: as in `StoredResults`.
    """
    found = []
    for model in dataset.models(base_key):
        if model.extracted and request.build.model_key(base_key, model.asked) == model.key:
            earlier = StoredResults(dataset, request, model.key, run_id)
            answered = frozenset(n for n in request.build.threads if earlier.answers(n))
            found.append(Found(model.key, answered))
    return max(found, key=lambda one: len(one.answered), default=None)


def stored_for(request: CollectRequest, machines: Iterable[str]) -> dict[str, Found]:
    """Return the stored results of a request by machine; empty where the dataset cannot be read, or where only lowering
    identifies the model.

    Args:
        machines: `Device.identity` of those that are looked for.

    Raises:
        OpProfilerError, OSError: a file that the model or its input is made of cannot be read here.
    """
    model = request.build.model
    content = FRONTENDS.get(model.source).fingerprint(model)
    if content is None:
        return {}
    with contextlib.suppress(DatasetError, MissingPackageError), Dataset.open(request.db, read_only=True) as dataset:
        found = {machine: find(dataset, request, request.base_key(content, machine), None) for machine in machines}
        return {machine: one for machine, one in found.items() if one is not None}
    return {}
