"""Features of a GPU kernel's launches (`Kernel.launches`).

The features do not depend on the GPU: how many blocks run at once is a property of the device.
"""

from __future__ import annotations

import math

import numpy as np

from op_profiler.compilers.loop_nest import WORK, Kernel, LaunchedWork

WARP = 32
NAMES: tuple[str, ...] = (
    "launches",
    "blocks",
    "warps",
    "shared_bytes",
    *(f"thread_{name}" for name in WORK),
    *(f"warps_{name}" for name in WORK),
)
"""Names of the columns that `launch_features` returns, logarithms to base 2: number of launches; blocks, warps of a
block and shared bytes of the launch with the most work; work of one thread, summed over launches; and work of all
warps, summed over launches."""


def launch_features(kernel: Kernel) -> np.ndarray:
    """Return the columns `NAMES` of one kernel, float32, as log2(1 + amount)."""
    main = max(kernel.launches, key=lambda launch: _warps(launch) * sum(launch.work.values()))
    amounts: list[float] = [len(kernel.launches), main.blocks, _warps_of_block(main), main.shared_bytes]
    amounts += [sum(launch.work[name] for launch in kernel.launches) for name in WORK]
    amounts += [sum(_warps(launch) * launch.work[name] for launch in kernel.launches) for name in WORK]
    return np.log2(1.0 + np.array(amounts, dtype=np.float64)).astype(np.float32)


def amounts_of(loops: np.ndarray) -> dict[str, np.ndarray]:
    """Return an array for each of `NAMES`, with the amount of each kernel instead of its logarithm.

    Args:
        loops: a row of `launch_features` for each kernel.
    """
    return dict(zip(NAMES, (np.exp2(loops, dtype=np.float64) - 1.0).T))


def _warps_of_block(launch: LaunchedWork) -> int:
    return math.ceil(launch.threads / WARP)


def _warps(launch: LaunchedWork) -> int:
    return launch.blocks * _warps_of_block(launch)
