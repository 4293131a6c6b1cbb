"""Reads schedule factors from the loops of a scheduled function, independent of how it was scheduled.

TVM names a loop by its axes: the second part of an axis ``oc`` is ``oc_1``, and a fused loop has the names of all its
parts.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection
from typing import Any

from op_profiler.compilers.relax.rules.blocks import REDUCTION, blocks_of, extent, reduces
from op_profiler.schedules.factors import Factors

_PARALLEL, _VECTORIZED = 1, 2  # `ForKind`
_FUSED = "_fused"

Part = tuple[str, str]
"""An axis and the number of its part, which is empty for an axis that was not split."""


def with_loops(factors: Factors, schedule: Any) -> Factors:
    """Return the factors with the loop order, parallel loops and lanes of the first block that sums; if no block sums,
    of the last block.

    Args:
        schedule: ``tvm.s_tir.Schedule``.
    """
    *others, last = blocks_of(schedule)
    block = next((one for one in others if reduces(schedule, one)), last)
    # the variable of a block has something in front of the name of the axis
    axes = {
        str(axis.var.name).removeprefix("v_"): int(axis.iter_type) == REDUCTION
        for axis in schedule.get(block).iter_vars
    }
    order: list[str] = []
    parallel: list[Part] = []
    lanes = None
    for loop in schedule.get_loops(block):
        node = schedule.get(loop)
        parts = _parts(str(node.loop_var.name), axes)
        if int(node.kind) == _PARALLEL:
            parallel += parts
        elif int(node.kind) == _VECTORIZED:
            lanes = extent(schedule, loop)
        if "|" not in order and any(axes[axis] for axis, _ in parts):
            order.append("|")
        order += [f"{axis}.{number}" if number else axis for axis, number in parts]
    return dataclasses.replace(
        factors,
        fuse=len(parallel) or None,
        reorder=" ".join(order) or None,
        vectorize=lanes,
        parallel=" ".join(dict.fromkeys(axis for axis, _ in parallel)) or None,
    )


def _parts(name: str, axes: Collection[str]) -> list[Part]:
    """Return the parts of axes that a loop of this name consists of."""
    known = "|".join(sorted(map(re.escape, axes), key=len, reverse=True))
    return re.findall(rf"(?:^|_)({known})(?:_(\d+))?(?=_|$)", name.replace(_FUSED, ""))
