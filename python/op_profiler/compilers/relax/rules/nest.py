"""One loop nest for all rules with knobs: the values that each knob may have, and the schedule that they stand for.

A nest is a reduction whose last axis is vectorized, and what is computed of its output while that is in registers. Its
knobs have the names and meanings of those of Relay's templates:

==============  ==================================================================================================
``tile_<axis>`` elements of an axis in the register tile; on the last axis whole vectors
``split_<axis>`` inner part of a reduction axis
``outer``       order of the outer loops, a permutation (`Nest.outer_orders`)
``fuse``        how many of the outer loops are fused; the fused loop is the parallel one
``reorder``     order of the reduction loops, a permutation (`Nest.inner_orders`)
``compute_at``  where what feeds the reduction (padding) is computed: root, an outer loop, or inline
``vectorize``   lanes
``unroll``      what is unrolled of the sum: 0 nothing, 1 the register tile, 2 the innermost reduction loop as well
==============  ==================================================================================================

The rule's own schedule is a point of the space: the first order of each kind, and the other values in `Nest.default`.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from op_profiler.compilers.relax.rules.blocks import REDUCTION, sum_in_registers, vectorize_and_unroll
from op_profiler.compilers.relax.rules.elementwise import PARTS, schedule_blocks
from op_profiler.compilers.relax.rules.template import INLINE, ROOT, Knobs
from op_profiler.compilers.relax.vectors import Vectors, divisor
from op_profiler.schedules.factors import Factors

_MOST_REGISTERS = 32  # where there are but 16, what spills is measured too, and loses
_MOST_UNROLLED = 512
_UNROLLED = ("none", "tile", "tile and reduction")


@dataclasses.dataclass(frozen=True)
class Axis:
    """A spatial axis of a nest.

    Attributes:
        extent: None where only run time tells it.
        tiled: it may be in the register tile; the last axis always is.
        moves: its outer loop may stand behind others.
    """

    name: str
    extent: int | None
    tiled: bool = True
    moves: bool = True


@dataclasses.dataclass(frozen=True)
class Nest:
    """Names and sizes of the loops of an anchor.

    Attributes:
        axes: in the order of the output. The last one is cut into columns of the register tile, or where it is not
            among `order`, is a block of channels that stays whole.
        order: their names in the order of the rule's outer loops.
        reduction: name and extent of each reduction axis, in the order of the rule.
        split: the reduction axis that may be split; None for none.
        lanes: values in a vector register.
        block: columns of the last axis that lie beside each other in what is read.
        producers: whether something feeds the reduction that can be placed.
        default: the values that the rule chooses.
    """

    axes: tuple[Axis, ...]
    order: tuple[str, ...]
    reduction: tuple[tuple[str, int], ...]
    split: str | None
    lanes: int
    block: int
    producers: bool
    default: Knobs

    @functools.cached_property
    def knobs(self) -> dict[str, list[int]]:
        """The values of every knob; none where the sizes are known at run time only."""
        if any(axis.extent is None for axis in self.axes):
            return {}
        *others, last = self.axes
        found = {f"tile_{a.name}": _sizes(a.extent or 1) for a in others if a.tiled and a.extent != 1}
        if last.name in self.order:
            found[f"tile_{last.name}"] = self._columns(last.extent or 1)
        if self.split is not None:
            found[f"split_{self.split}"] = _sizes(dict(self.reduction)[self.split])
        found |= {"outer": list(range(len(self.outer_orders))), "fuse": list(range(1, self._loops + 1))}
        found["reorder"] = list(range(len(self.inner_orders)))
        if self.producers:
            found["compute_at"] = [ROOT, *range(1, self._loops + 1), INLINE]
        found["vectorize"] = [width for width in {self.lanes, self.lanes // 2} if width and self.block % width == 0]
        found["unroll"] = [0, 1, 2]
        return {name: sorted({*values, self.default[name]}) for name, values in found.items()}

    def _columns(self, extent: int) -> list[int]:
        """Sizes of the last axis in the register tile: parts of a block, or some of them."""
        lanes = self.default["vectorize"]
        widths = [lanes * count for count in (1, 2, 3, 4, 6, 8)]
        return [w for w in widths if extent % w == 0 and (self.block % w == 0 or w % self.block == 0)]

    @functools.cached_property
    def outer_orders(self) -> list[tuple[str, ...]]:
        """Orders of the outer loops, the rule's first; those that do not move or are of extent 1 stay in front."""
        still = {axis.name for axis in self.axes if not axis.moves}
        moving = [name for name in self._repeated if name not in still]
        fixed = tuple(sorted((name for name in self.order if name not in moving), key=self._repeated.__contains__))
        return [fixed + found for found in itertools.permutations(moving)]

    @property
    def _repeated(self) -> list[str]:
        """Outer loops with more than one iteration, in general."""
        once = {axis.name for axis in self.axes if axis.extent == 1}
        return [name for name in self.order if name not in once]

    @functools.cached_property
    def inner_orders(self) -> list[tuple[str, ...]]:
        """Orders of the reduction loops, the rule's first: ``x``, or ``x.o`` and ``x.i`` of one that is split, the
        outer part outside. Those of extent 1 stay in front."""
        outer, inner = f"{self.split}.o", f"{self.split}.i"
        moving = [name for name, extent in self.reduction if extent != 1]
        fixed = tuple(name for name, extent in self.reduction if extent == 1)
        parts = [[outer, inner] if name == self.split else [name] for name in moving]
        orders = itertools.permutations(itertools.chain.from_iterable(parts))
        return [fixed + o for o in orders if outer not in o or o.index(outer) < o.index(inner)]

    def is_valid(self, knobs: Knobs) -> bool:
        """Whether the register tile fits the registers and is whole vectors, and no loop is asked for that is fused."""
        width = knobs["vectorize"]
        columns = self.columns(knobs)
        rows = math.prod(knobs.get(f"tile_{axis.name}", 1) for axis in self.axes[:-1])
        left = self._loops - knobs["fuse"] + 1
        fits = rows * math.ceil(columns / width) * math.ceil(width / self.lanes) <= _MOST_REGISTERS
        return columns % width == 0 and fits and knobs.get("compute_at", ROOT) <= left

    @property
    def _loops(self) -> int:
        """How many loops can be asked for: one where none is repeated."""
        return max(len(self._repeated), 1)

    def fused(self, knobs: Knobs) -> int:
        """How many loops the parallel one is made of: those of extent 1, which stand in front, and some more."""
        return len(self.order) - self._loops + min(knobs["fuse"], self._loops)

    def in_parts(self) -> Nest:
        """The same; its default also runs the last outer loop in parallel where the others have few iterations."""
        tiles = {axis.name: self.default.get(f"tile_{axis.name}", 1) for axis in self.axes}
        counts = {axis.name: max((axis.extent or 1) // tiles[axis.name], 1) for axis in self.axes}
        *others, last = (counts[name] for name in self.order)
        if math.prod(others) >= PARTS or last == 1:
            return self
        return dataclasses.replace(self, default={**self.default, "fuse": self._loops})

    def columns(self, knobs: Knobs) -> int:
        """Elements of the last axis in the register tile."""
        return knobs.get(f"tile_{self.axes[-1].name}", self.block)

    def is_inside(self, axis: Axis, knobs: Knobs) -> bool:
        """Whether an axis has a loop in the register tile."""
        return axis is self.axes[-1] or f"tile_{axis.name}" in knobs

    def factors(self, knobs: Knobs) -> Factors:
        """What these values do, in the words of the dataset."""
        order = self.outer_orders[knobs["outer"]]
        count = self.fused(knobs)
        where = None
        if self.producers:
            named = {ROOT: "root", INLINE: "inline"}.get(knobs["compute_at"])
            rest = [" ".join(order[:count]), *order[count:]]
            where = named or rest[min(knobs["compute_at"], len(rest)) - 1]
        return Factors(
            tile={axis.name: knobs[f"tile_{axis.name}"] for axis in self.axes if f"tile_{axis.name}" in knobs},
            split=None if self.split is None else {self.split: knobs[f"split_{self.split}"]},
            fuse=count,
            reorder=f"{' '.join(order)} | {' '.join(self.inner_orders[knobs['reorder']])}",
            compute_at=where,
            vectorize=knobs["vectorize"],
            unroll=_UNROLLED[knobs["unroll"]],
            parallel=" ".join(order[:count]),
        )


@dataclasses.dataclass(frozen=True)
class Anchored:
    """A function whose anchor was found, nothing of whose loops was changed yet (a `Template`).

    Attributes:
        anchor, last: the block that sums, and the one that writes what becomes of the sum.
        feeding: blocks before the anchor that were not inlined.
        following: blocks behind `last`, each scheduled by itself.
    """

    schedule: Any
    nest: Nest
    anchor: Any
    last: Any
    feeding: Sequence[Any]
    following: Sequence[Any] = ()

    @property
    def knobs(self) -> dict[str, list[int]]:
        return self.nest.knobs

    @property
    def default(self) -> Knobs:
        return self.nest.default

    def is_valid(self, knobs: Knobs) -> bool:
        return self.nest.is_valid(knobs)

    def factors(self, knobs: Knobs) -> Factors:
        return self.nest.factors(knobs)

    def apply(self, knobs: Knobs, vectors: Vectors) -> None:
        schedule, nest = self.schedule, self.nest
        if self.nest.producers and knobs["compute_at"] == INLINE:
            schedule.compute_inline(self.feeding[0])
        outer = self._tile_output(knobs)
        schedule.compute_at(self.anchor, outer[-1], preserve_unit_loops=True)
        loops = list(schedule.get_loops(self.anchor)[len(outer) :])
        axes, reduction = loops[: len(nest.axes)], loops[len(nest.axes) :]
        self._sum(knobs, axes, reduction)
        self._place_feeding(knobs, outer, vectors)
        schedule_blocks(schedule, vectors, self.following)

    def _tile_output(self, knobs: Knobs) -> list[Any]:
        """Tile, order and fuse the loops of what is written; the outer loops that are left, the parallel one first."""
        schedule, nest = self.schedule, self.nest
        loops: dict[str, Any] = {}
        tile: list[Any] = []
        for axis, loop in zip(nest.axes, schedule.get_loops(self.last), strict=True):
            loops[axis.name] = inner = loop
            if f"tile_{axis.name}" in knobs:
                loops[axis.name], inner = schedule.split(loop, [None, knobs[f"tile_{axis.name}"]])
            if nest.is_inside(axis, knobs):
                tile.append(inner)
        tile[-1:] = _vectors(schedule, tile[-1], knobs)
        order = [loops[name] for name in nest.outer_orders[knobs["outer"]]]
        schedule.reorder(*order, *tile)
        schedule.vectorize(tile[-1])
        count = nest.fused(knobs)
        parallel = schedule.fuse(*order[:count])
        schedule.parallel(parallel)
        return [parallel, *order[count:]]

    def _sum(self, knobs: Knobs, axes: Sequence[Any], reduction: Sequence[Any]) -> None:
        schedule, nest = self.schedule, self.nest
        by_name: dict[str, Any] = {}
        for (name, _), loop in zip(nest.reduction, reduction, strict=True):
            by_name[name] = loop
            if name == nest.split:
                by_name[f"{name}.o"], by_name[f"{name}.i"] = schedule.split(loop, [None, knobs[f"split_{name}"]])
        order = [by_name[name] for name in nest.inner_orders[knobs["reorder"]]]
        inside = [nest.is_inside(axis, knobs) for axis in nest.axes]
        outer = [loop for loop, tiled in zip(axes, inside) if not tiled]
        tile = [loop for loop, tiled in zip(axes, inside) if tiled]
        tile[-1:] = _vectors(schedule, tile[-1], knobs)
        innermost = self._innermost(knobs)
        if knobs["unroll"]:
            sum_in_registers(schedule, self.anchor, outer, order, tile)
        else:
            schedule.reorder(*outer, *order, *tile)
            schedule.vectorize(tile[-1])
            init = schedule.decompose_reduction(self.anchor, order[0])
            vectorize_and_unroll(schedule, schedule.get_loops(init)[-len(tile) :])
        if knobs["unroll"] > 1 and innermost <= _MOST_UNROLLED:
            schedule.unroll(order[-1])

    def _innermost(self, knobs: Knobs) -> int:
        """Statements after the innermost reduction loop over the register tile was unrolled."""
        nest = self.nest
        name, _, part = nest.inner_orders[knobs["reorder"]][-1].partition(".")
        extent = dict(nest.reduction)[name]
        if part:
            inner = knobs[f"split_{name}"]
            extent = inner if part == "i" else extent // inner
        tile = math.prod(knobs.get(f"tile_{axis.name}", 1) for axis in nest.axes[:-1])
        return extent * tile * (nest.columns(knobs) // knobs["vectorize"])

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


def _vectors(schedule: Any, loop: Any, knobs: Knobs) -> list[Any]:
    """The loop over the columns of a tile as one over vectors and one over lanes."""
    return list(schedule.split(loop, [None, knobs["vectorize"]]))


def _sizes(extent: int) -> list[int]:
    """1 to 10, 14, 16, 28 and 32, and the whole axis where it is short, as far as they divide it."""
    wanted = {*range(1, 11), 14, 16, 28, 32, *([extent] if extent <= _MOST_REGISTERS else [])}
    return [size for size in wanted if extent % size == 0]


def reduction_of(schedule: Any, block: Any) -> tuple[tuple[str, int], ...]:
    """Name and extent of each axis that a block reduces over; 0 for one that only run time tells."""
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
    """The nest of a rule that by default keeps its orders, does not split the reduction, unrolls the tile, and runs all
    outer loops but the last in parallel.

    Args:
        tile: by axis; of axes of extent 1 it is left out.
        vectorize: lanes of the default.
        compute_at: where what feeds the sum is computed by default; None where nothing does.
    """
    repeated = {axis.name for axis in axes if axis.extent != 1}
    last = axes[-1].name
    values = {f"tile_{name}": size for name, size in tile.items() if name in repeated or name == last}
    if split is not None:
        values[f"split_{split}"] = dict(reduction)[split]
    values |= {"outer": 0, "fuse": max(sum(name in repeated for name in order[:-1]), 1), "reorder": 0}
    values |= ({} if compute_at is None else {"compute_at": compute_at}) | {"vectorize": vectorize, "unroll": 1}
    return Nest(axes, order, reduction, split, lanes, block, compute_at is not None, values)
