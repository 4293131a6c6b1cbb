"""Selects the values of a model's nodes that can be compared: tensors of numbers that depend on the inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


def varying(values: Sequence[Sequence[np.ndarray]]) -> list[int]:
    """Return the indices of the numeric tensors that depend on the inputs; the others are constants, which importers
    compute themselves.

    Args:
        values: one list of tensors for each batch of inputs.
    """
    import numpy as np

    first, *others = values
    found = []
    for place, one in enumerate(first):
        alike = all(one.shape == other[place].shape for other in others)
        same = all(np.array_equal(one, other[place], equal_nan=one.dtype.kind == "f") for other in others)
        if one.dtype.kind in "fiu" and one.size and alike and not same:
            found.append(place)
    return found
