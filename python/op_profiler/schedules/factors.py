"""Factors of a schedule: its effects on the loops, in the same columns for every template."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

_REDUCTIONS = {"k", "ic", "ci", "kh", "kw", "rc", "ry", "rx", "rd"}
_INNER_LOOP = re.compile(r"tile_(?P<axis>\w+)$")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Factors:
    """Effects of a schedule on the loops; None for an effect that the template lacks or does not describe.

    Attributes:
        tile: number of elements of each spatial axis in the innermost tile.
        split: inner size of each reduction axis that is split.
        fuse: number of outer loops that are fused.
        reorder: loops from the outermost to the innermost; ``x.o`` and ``x.i`` are the parts of a split, ``x.0`` and so
            on in MetaSchedule's own space; a bar separates the outer loops from the reduction loops.
        compute_at: where the stage that feeds the main stage is computed: ``root``, ``inline``, or a loop.
        vectorize: number of lanes of the vectorized loop.
        unroll: which loops are unrolled.
        parallel: axes of the parallel loop, the outermost first.
    """

    tile: dict[str, int] | None = None
    split: dict[str, int] | None = None
    fuse: int | None = None
    reorder: str | None = None
    compute_at: str | None = None
    vectorize: int | None = None
    unroll: str | None = None
    parallel: str | None = None


NAMES = tuple(field.name for field in dataclasses.fields(Factors))


def factors_of_knobs(knobs: Mapping[str, Any]) -> Factors:
    """Return the factors that follow from the knobs of one of TVM's own templates, as far as their names describe them.

    A knob ``tile_<axis>`` lists the parts of a split, the outermost first. The last part is the tile of a spatial axis,
    or the inner part of a reduction axis. Knobs ``ann_*`` and ``*unroll*`` describe unrolling, ``reorder_*`` the order.
    """
    tile: dict[str, int] = {}
    split: dict[str, int] = {}
    unroll: list[str] = []
    order: list[str] = []
    vectorize = None
    for name, value in knobs.items():
        found = _INNER_LOOP.match(name)
        if found is not None:
            inner = value[-1] if isinstance(value, list) else value
            if isinstance(inner, (int, float)) and not isinstance(inner, bool):
                (split if found["axis"] in _REDUCTIONS else tile)[found["axis"]] = int(inner)
        elif "unroll" in name:
            if value:
                unroll.append(f"{name}={value}" if not isinstance(value, bool) else name)
        elif name.startswith("ann_") and isinstance(value, list):
            unroll += [f"{name}[{i}]" for i, how in enumerate(value) if how == "unroll"]
            order += [f"{name}[{i}]={how}" for i, how in enumerate(value) if how == "vec"]
        elif name.startswith("reorder"):
            order.append(f"{name}={value}")
    for axis in ("oc", "x", "co"):
        if vectorize is None and axis in tile:
            vectorize = tile[axis]
    return Factors(
        tile=tile or None,
        split=split or None,
        reorder=" ".join(order) or None,
        vectorize=vectorize,
        unroll=" ".join(unroll) or None,
    )
