"""Which model of the dataset is the one that a request asks for, and what of it is there."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from op_profiler.collection.resume import StoredResults

if TYPE_CHECKING:
    from op_profiler.collection.request import CollectRequest
    from op_profiler.dataset import Dataset


@dataclasses.dataclass(frozen=True)
class Found:
    """A stored model.

    Attributes:
        key: of the model in the dataset.
        answered: thread counts of the request at which nothing needs to be measured.
    """

    key: str
    answered: frozenset[int]


def find(dataset: Dataset, request: CollectRequest, base_key: str, since: str) -> Found | None:
    """The stored model that a build would give; None where there is none. Nothing is built for it.

    A build asks for the schedule records of some computations. A stored model is what a build would give as long as the
    records of those that its own build asked for are the same today, none among them.

    Args:
        base_key: `CollectRequest.base_key`.
        since: when the command began.
    """
    found = []
    for model in dataset.models(base_key):
        if model.extracted and request.build.model_key(base_key, model.asked) == model.key:
            earlier = StoredResults(dataset, request, model.key, since)
            answered = frozenset(n for n in request.build.threads if earlier.answers(n))
            found.append(Found(model.key, answered))
    return max(found, key=lambda one: len(one.answered), default=None)
