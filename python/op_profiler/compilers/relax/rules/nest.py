"""Applies the loop nest of `op_profiler.schedules.nest` as a TIR schedule.

The rule's own schedule is a point of the space: the first order of each kind, and the other values in `Nest.default`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from op_profiler.compilers.relax.rules.blocks import REDUCTION, vectorize_and_unroll
from op_profiler.compilers.relax.rules.elementwise import PARTS, schedule_blocks
from op_profiler.compilers.relax.vectors import divisor
from op_profiler.compilers.vectors import Vectors
from op_profiler.schedules.factors import Factors
from op_profiler.schedules.nest import INLINE, ROOT, Axis, Knobs, Loops, Nest, tile_sizes

_OTHER_SIZES = (14, 16, 28, 32)


@dataclasses.dataclass(frozen=True)
class AnchoredFunction:
    """A function whose anchor was found and whose loops are unchanged (a `SchedulableFunction`).

    Attributes:
        anchor, last: the block that sums, and the block that writes the final values.
        feeding: blocks before the anchor that were not inlined.
        following: blocks after `last`, each scheduled separately.
    """

    schedule: Any
    nest: Nest
    anchor: Any
    last: Any
    feeding: Sequence[Any]
    following: Sequence[Any] = ()

    @property
    def knobs(self) -> dict[str, list[int]]:
        """Values of every knob by name; empty if an extent is known only at run time (`Nest.knobs`)."""
        return self.nest.knobs

    @property
    def default(self) -> Knobs:
        """Knob values of the rule's own schedule."""
        return self.nest.default

    def is_valid(self, knobs: Knobs) -> bool:
        """Return whether the register tile fits the vector registers and consists of full vectors (`Nest.is_valid`)."""
        return self.nest.is_valid(knobs)

    def factors(self, knobs: Knobs) -> Factors:
        """Return the schedule factors of the dataset for these knob values."""
        return self.nest.factors(knobs)

    def apply(self, knobs: Knobs, vectors: Vectors) -> None:
        """Tile, order, vectorize and unroll the anchor, place its producers, and schedule `following` separately."""
        schedule, nest = self.schedule, self.nest
        if nest.producers and knobs["compute_at"] == INLINE:
            schedule.compute_inline(self.feeding[0])
        loops = Loops(schedule, lambda loop, factor: schedule.split(loop, [None, factor]))
        outer = nest.tile_output(loops, schedule.get_loops(self.last), knobs)
        schedule.compute_at(self.anchor, outer[-1], preserve_unit_loops=True)
        inner = list(schedule.get_loops(self.anchor)[len(outer) :])
        axes, reduction = inner[: len(nest.axes)], inner[len(nest.axes) :]
        order, tile = nest.order_sum(loops, axes, reduction, knobs)
        init = schedule.decompose_reduction(self.anchor, order[0])
        vectorize_and_unroll(schedule, schedule.get_loops(init)[-len(tile) :])
        self._place_feeding(knobs, outer, vectors)
        schedule_blocks(schedule, vectors, self.following)

    def _place_feeding(self, knobs: Knobs, outer: Sequence[Any], vectors: Vectors) -> None:
        schedule = self.schedule
        where = knobs.get("compute_at", ROOT)
        if where == INLINE:
            return
        if where == ROOT:
            schedule_blocks(schedule, vectors, self.feeding)
            return
        (block,) = self.feeding
        schedule.compute_at(block, outer[min(where, len(outer)) - 1], preserve_unit_loops=True)
        loop = schedule.get_loops(block)[-1]
        size = getattr(schedule.get(loop).extent, "value", None)
        lanes = divisor(int(size), vectors.lanes) if size is not None else 1
        if lanes > 1:
            schedule.vectorize(schedule.split(loop, [None, lanes])[1])


def _sizes(extent: int) -> list[int]:
    """Return 1 to 10, 14, 16, 28 and 32, and the extent of a short axis, as far as they divide the extent."""
    return tile_sizes(extent, _OTHER_SIZES)


def in_parts(nest: Nest) -> Nest:
    """Return the nest with another default: if the other outer loops are short, the last one runs in parallel too."""
    tiles = {axis.name: nest.default.get(f"tile_{axis.name}", 1) for axis in nest.axes}
    counts = {axis.name: max((axis.extent or 1) // tiles[axis.name], 1) for axis in nest.axes}
    *others, last = (counts[name] for name in nest.order)
    if math.prod(others) >= PARTS or last == 1:
        return nest
    return dataclasses.replace(nest, default={**nest.default, "fuse": nest.most_fused})


def reduction_of(schedule: Any, block: Any) -> tuple[tuple[str, int], ...]:
    """Return name and extent of each reduction axis of a block; 0 if known only at run time."""
    axes = [v for v in schedule.get(block).iter_vars if int(v.iter_type) == REDUCTION]
    return tuple((str(v.var.name).removeprefix("v_"), int(getattr(v.dom.extent, "value", 0))) for v in axes)


def nest_of(  # noqa: PLR0913 - what rules differ in
    axes: tuple[Axis, ...],
    order: tuple[str, ...],
    tile: Mapping[str, int],
    reduction: tuple[tuple[str, int], ...],
    split: str | None,
    *,
    lanes: int,
    block: int,
    vectorize: int,
    compute_at: int | None = None,
) -> Nest:
    """Return a nest with the default knob values of a rule: they keep the order of the loops, do not split the
    reduction, unroll the tile, and run all outer loops but the last in parallel.

    Args:
        axes, order, reduction, split, lanes, block: as in `Nest`.
        tile: default tile sizes by axis; axes of extent 1 are left out.
        vectorize: default number of lanes.
        compute_at: default position at which producers of the sum are computed; None without producers.
    """
    repeated = {axis.name for axis in axes if axis.extent != 1}
    last = axes[-1].name
    values = {f"tile_{name}": size for name, size in tile.items() if name in repeated or name == last}
    if split is not None:
        values[f"split_{split}"] = dict(reduction)[split]
    values |= {"outer": 0, "fuse": max(sum(name in repeated for name in order[:-1]), 1), "reorder": 0}
    values |= ({} if compute_at is None else {"compute_at": compute_at}) | {"vectorize": vectorize, "unroll": 1}
    return Nest(axes, order, reduction, split, lanes, block, compute_at is not None, _sizes, default=values)
