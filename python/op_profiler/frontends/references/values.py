"""Values of a model: which of its nodes can be compared, and files of arrays."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np


def varying(values: Sequence[Sequence[np.ndarray]]) -> list[int]:
    """Return the indices of the numeric tensors that have equal shapes but different values for different batches.

    Tensors that are equal for all batches are constants, which importers compute themselves.

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


def write_arrays(path: Path, arrays: Sequence[np.ndarray]) -> None:
    """Write arrays to an ``.npz`` file; the name of each array in the file is its index."""
    import numpy as np

    named: dict[str, Any] = {str(place): array for place, array in enumerate(arrays)}
    np.savez(path, **named)


def read_arrays(path: Path) -> list[np.ndarray]:
    """Return the arrays that `write_arrays` wrote to a file."""
    import numpy as np

    with np.load(path, allow_pickle=False) as arrays:
        return [arrays[str(place)] for place in range(len(arrays.files))]
