"""Columns of a kernel's loops for regressions: fewer than the kernel model uses.

The kernel model has a cost for each class of instructions. Trees with all these counts overfit to what the operators of
a network have in common. The total number of instructions and the share of slow ones predict other operators as well.
"""

from __future__ import annotations

import numpy as np

from op_profiler.compilers.executed import CLASSES
from op_profiler.prediction.latency.traffic import NAMES as LOOP_NAMES
from op_profiler.prediction.latency.traffic import PARTS

SLOW = ("scalar_loads", "gathered", "inserted", "selected", "exponentials", "functions", "odd_lanes")
"""Instruction classes whose share of all instructions is a column."""
_COUNTS = [[LOOP_NAMES.index(f"{part}_{name}") for name in CLASSES] for part in PARTS]
_OTHERS = [at for at, name in enumerate(LOOP_NAMES) if not any(at in columns for columns in _COUNTS)]
_AT = [CLASSES.index(name) for name in SLOW]

NAMES: tuple[str, ...] = (
    *(LOOP_NAMES[at] for at in _OTHERS),
    "executed_instructions",
    *(f"{name}_share" for name in SLOW),
)
"""Names of the columns that `loop_columns` returns."""


def loop_columns(loops: np.ndarray) -> np.ndarray:
    """Return the columns of kernels with known loops.

    Args:
        loops: shape (kernels, len(LOOP_NAMES)), see `op_profiler.prediction.latency.traffic`.

    Returns:
        Shape (kernels, len(NAMES)), float32.
    """
    counts = sum(np.exp2(loops[:, columns], dtype=np.float64) - 1.0 for columns in _COUNTS)
    total = np.maximum(counts.sum(axis=1, keepdims=True), 1.0)
    columns = [loops[:, _OTHERS], np.log2(total), counts[:, _AT] / total]
    return np.concatenate(columns, axis=1, dtype=np.float32, casting="same_kind")
