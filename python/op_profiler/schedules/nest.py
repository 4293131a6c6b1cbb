"""`Nest`: the loop nest of this project's templates, for all compilers: its knobs, and the loops that they define.

A nest consists of a reduction whose last axis is vectorized, and of the operations on its output while the output is in
registers. Its knobs are the factors for which the dataset has columns:

==============  ==================================================================================================
``tile_<axis>`` elements of an axis in the register tile; on the last axis whole vectors
``split_<axis>`` inner part of a reduction axis
``outer``       order of the outer loops, a permutation (`Nest.outer_orders`)
``fuse``        number of outer loops that are fused; the fused loop is the parallel one
``reorder``     order of the reduction loops, a permutation (`Nest.inner_orders`)
``compute_at``  where a stage that feeds the reduction (padding, packing) is computed: root, an outer loop, or inline
``vectorize``   number of lanes
``unroll``      unrolled part of the sum: 0 nothing, 1 the register tile, 2 the innermost reduction loop as well
==============  ==================================================================================================

All knobs are integers, so that cost models can read them.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from op_profiler.schedules.factors import Factors

Knobs = Mapping[str, int]

ROOT, INLINE = 0, -1
"""Values of ``compute_at`` in all templates; values from 1 on are loops."""
MOST_REGISTERS = 32
"""Largest number of vectors in a register tile: AVX-512 and 64-bit ARM have 32 vector registers. On processors with 16
registers, tiles that spill are measured too, and are slower.
"""
MOST_UNROLLED = 512
UNROLLED = ("none", "tile", "tile and reduction")


def tile_sizes(extent: int, more: Collection[int]) -> list[int]:
    """Return the possible sizes of a tile along an axis: the divisors of `extent` among the numbers 1 to 10 and `more`,
    and `extent` itself if it is small."""
    wanted = {*range(1, 11), *more, *([extent] if extent <= MOST_REGISTERS else [])}
    return sorted(size for size in wanted if extent % size == 0)


@dataclasses.dataclass(frozen=True)
class Loops:
    """A stage whose loops a `Nest` changes. The stages of TE and of TIR have the same method names, except for `split`.

    Attributes:
        stage: ``te.Stage``, or ``s_tir.Schedule``.
        split: function that splits a loop into an outer and an inner loop, given the loop and the number of iterations
            of the inner loop.
    """

    stage: Any
    split: Callable[[Any, int], Sequence[Any]]


@dataclasses.dataclass(frozen=True)
class Axis:
    """A spatial axis of a nest.

    Attributes:
        extent: number of elements; None if it is known only at run time.
        tiled: whether it may be in the register tile; the last axis always is.
        is_movable: whether its outer loop may be placed after other loops.
    """

    name: str
    extent: int | None
    tiled: bool = True
    is_movable: bool = True


@dataclasses.dataclass(frozen=True)
class Nest:
    """The loop nest of an anchor (the heavy op of an operator): names and sizes of its loops.

    Attributes:
        axes: axes in the order of the output. The last axis is divided into columns of the register tile; if it is not
            in `order`, it is a block that is not divided.
        order: names of the axes in the order of the outer loops.
        reduction: name and extent of each reduction axis, in the order of the definition.
        split: name of the reduction axis that is split; None: no axis is split.
        lanes: number of values in a vector register.
        block: number of columns of the last axis that are contiguous in the input.
        producers: whether a stage that feeds the reduction can be placed (knob ``compute_at``).
        sizes: function that returns the possible sizes of a tile, and of the inner part of a split, for the extent of
            an axis.
        inner_tile_orders: whether the loop over the first tiled axis may also be between or outside the reduction
            loops.
        default: knob values that a rule chooses, which are always in the space; if empty, the default is the first
            value of each knob.
    """

    axes: tuple[Axis, ...]
    order: tuple[str, ...]
    reduction: tuple[tuple[str, int], ...]
    split: str | None
    lanes: int
    block: int
    producers: bool
    sizes: Callable[[int], list[int]]
    inner_tile_orders: bool = False
    default: Knobs = dataclasses.field(default_factory=dict)

    @functools.cached_property
    def knobs(self) -> dict[str, list[int]]:
        """Possible values of every knob by name; empty if the extent of an axis is known only at run time."""
        if any(axis.extent is None for axis in self.axes):
            return {}
        last, extents = self.axes[-1], dict(self.reduction)
        found = {f"tile_{axis.name}": self.sizes(axis.extent or 1) for axis in self._tiled}
        if last.name in self.order:
            found[f"tile_{last.name}"] = self._columns(last.extent or 1)
        if self.split is not None and extents[self.split] > 1:
            found[f"split_{self.split}"] = self.sizes(extents[self.split])
        found |= {"outer": list(range(len(self.outer_orders))), "fuse": list(range(1, self.most_fused + 1))}
        found["reorder"] = list(range(len(self.inner_orders)))
        if self.producers:
            found["compute_at"] = [ROOT, *range(1, self.most_fused + 1), INLINE]
        widths = [width for width in (self.lanes, self.lanes // 2) if width]
        found["vectorize"] = [width for width in widths if self.block % width == self.lanes % width == 0]
        found["unroll"] = [0, 1, 2]
        if self.default:
            return {name: sorted({*values, self.default[name]}) for name, values in found.items()}
        return found

    @property
    def _tiled(self) -> list[Axis]:
        """Axes other than the last one of which the register tile may have several elements."""
        return [axis for axis in self.axes[:-1] if axis.tiled and axis.extent != 1]

    def _columns(self, extent: int) -> list[int]:
        """Return the possible sizes of the last axis in the register tile: parts of a block, or several blocks."""
        lanes = self.default["vectorize"]
        widths = [lanes * count for count in (1, 2, 3, 4, 6, 8)]
        return [w for w in widths if extent % w == 0 and (self.block % w == 0 or w % self.block == 0)]

    @functools.cached_property
    def outer_orders(self) -> list[tuple[str, ...]]:
        """Possible orders of the outer loops; the first is `order`. Loops that are not movable or have extent 1 stay in
        front."""
        still = {axis.name for axis in self.axes if not axis.is_movable}
        moving = [name for name in self._repeated if name not in still]
        fixed = tuple(sorted((name for name in self.order if name not in moving), key=self._repeated.__contains__))
        return [fixed + found for found in itertools.permutations(moving)]

    @property
    def _repeated(self) -> list[str]:
        """Outer loops that usually have more than one iteration."""
        once = {axis.name for axis in self.axes if axis.extent == 1}
        return [name for name in self.order if name not in once]

    @functools.cached_property
    def inner_orders(self) -> list[tuple[str, ...]]:
        """Possible orders of the reduction loops; the first is the order of the definition.

        An axis ``x`` has one loop ``x``; a split axis has the loops ``x.o`` and, inside it, ``x.i``. Loops of extent 1
        stay in front. The loops over the register tile follow, except for the one that `inner_tile_orders` places among
        the reduction loops.
        """
        outer, inner = f"{self.split}.o", f"{self.split}.i"
        fixed: list[str] = []
        moving: list[str] = []
        for name, extent in self.reduction:
            (fixed if extent == 1 else moving).extend([outer, inner] if name == self.split else [name])
        if self.inner_tile_orders:
            moving += [axis.name for axis in self._tiled[:1]]
        orders = itertools.permutations(moving)
        return [(*fixed, *o) for o in orders if outer not in o or o.index(outer) < o.index(inner)]

    def is_valid(self, knobs: Knobs) -> bool:
        """Return whether knob values fit together: the register tile fits into the registers and has whole vectors, and
        ``compute_at`` refers to a loop that remains after fusing."""
        width, columns = knobs["vectorize"], self.columns(knobs)
        left = self.most_fused - knobs["fuse"] + 1
        fits = self._rows(knobs) * math.ceil(columns / width) * math.ceil(width / self.lanes) <= MOST_REGISTERS
        return columns % width == 0 and fits and knobs.get("compute_at", ROOT) <= left

    @property
    def most_fused(self) -> int:
        """Largest number of outer loops that can be fused; 1 if no outer loop has several iterations."""
        return max(len(self._repeated), 1)

    def fused(self, knobs: Knobs) -> int:
        """Return the number of outer loops that are fused into the parallel loop: the loops of extent 1, which are in
        front, and the ``fuse`` next loops."""
        return len(self.order) - self.most_fused + min(knobs["fuse"], self.most_fused)

    def columns(self, knobs: Knobs) -> int:
        """Return the number of elements of the last axis in the register tile."""
        return knobs.get(f"tile_{self.axes[-1].name}", self.block)

    def _rows(self, knobs: Knobs) -> int:
        """Return the number of elements of the register tile along all axes except the last one."""
        return math.prod(knobs.get(f"tile_{axis.name}", 1) for axis in self.axes[:-1])

    def _is_inside(self, axis: Axis, knobs: Knobs) -> bool:
        """Return whether an axis has a loop in the register tile."""
        return axis is self.axes[-1] or f"tile_{axis.name}" in knobs

    def factors(self, knobs: Knobs) -> Factors:
        """Return the factors of a schedule with these knob values; the factors are columns of the dataset."""
        order, count = self.outer_orders[knobs["outer"]], self.fused(knobs)
        where = None
        if self.producers:
            named = {ROOT: "root", INLINE: "inline"}.get(knobs["compute_at"])
            rest = [" ".join(order[:count]), *order[count:]]
            where = named or rest[min(knobs["compute_at"], len(rest)) - 1]
        return Factors(
            tile={axis.name: knobs[f"tile_{axis.name}"] for axis in self.axes if f"tile_{axis.name}" in knobs},
            split={name: knobs[f"split_{name}"] for name, _ in self.reduction if f"split_{name}" in knobs} or None,
            fuse=count,
            reorder=f"{' '.join(order)} | {' '.join(self.inner_orders[knobs['reorder']])}",
            compute_at=where,
            vectorize=knobs["vectorize"],
            unroll=UNROLLED[knobs["unroll"]],
            parallel=" ".join(order[:count]),
        )

    def tile_output(self, loops: Loops, axes: Sequence[Any], knobs: Knobs) -> list[Any]:
        """Tile, order and fuse the loops of the output.

        Args:
            loops: the stage that computes the output.
            axes: loop of each axis of `Nest.axes`.
            knobs: knob values.

        Returns:
            The remaining outer loops, the parallel one first.
        """
        outer: dict[str, Any] = {}
        tile: list[Any] = []
        for axis, loop in zip(self.axes, axes, strict=True):
            outer[axis.name] = inner = loop
            if f"tile_{axis.name}" in knobs:
                outer[axis.name], inner = loops.split(loop, knobs[f"tile_{axis.name}"])
            if self._is_inside(axis, knobs):
                tile.append(inner)
        tile[-1:] = loops.split(tile[-1], knobs["vectorize"])
        order = [outer[name] for name in self.outer_orders[knobs["outer"]]]
        loops.stage.reorder(*order, *tile)
        loops.stage.vectorize(tile[-1])
        count = self.fused(knobs)
        parallel = loops.stage.fuse(*order[:count])
        loops.stage.parallel(parallel)
        return [parallel, *order[count:]]

    def order_sum(
        self, loops: Loops, axes: Sequence[Any], reduction: Sequence[Any], knobs: Knobs
    ) -> tuple[list[Any], list[Any]]:
        """Order and unroll the reduction loops that accumulate one register tile.

        Args:
            loops: the stage that computes the sum.
            axes, reduction: loop of each axis of `Nest.axes` and of `Nest.reduction`.
            knobs: knob values.

        Returns:
            The reduction loops, and the loops over the register tile inside them.
        """
        sums: dict[str, Any] = {}
        for (name, _), loop in zip(self.reduction, reduction, strict=True):
            sums[name] = loop
            if name == self.split:
                sums[f"{name}.o"], sums[f"{name}.i"] = loops.split(loop, knobs.get(f"split_{name}", 1))
        outer = [loop for axis, loop in zip(self.axes, axes) if not self._is_inside(axis, knobs)]
        inside = {axis.name: loop for axis, loop in zip(self.axes, axes) if self._is_inside(axis, knobs)}
        names = self.inner_orders[knobs["reorder"]]
        order = [sums[name] if name in sums else inside.pop(name) for name in names]
        tile = list(inside.values())
        tile[-1:] = loops.split(tile[-1], knobs["vectorize"])
        loops.stage.reorder(*outer, *order, *tile)
        loops.stage.vectorize(tile[-1])
        unrolled = tile[:-1] if knobs["unroll"] else []
        if knobs["unroll"] > 1 and self._unrolled(knobs) <= MOST_UNROLLED:
            unrolled.append(order[-1])
        for loop in unrolled:
            loops.stage.unroll(loop)
        return order, tile

    def _unrolled(self, knobs: Knobs) -> int:
        """Return the number of vector statements after the innermost reduction loop and the register tile inside it are
        unrolled."""
        name, _, part = self.inner_orders[knobs["reorder"]][-1].partition(".")
        extent = dict(self.reduction).get(name, 1)
        if part:
            inner = knobs.get(f"split_{name}", 1)
            extent = inner if part == "i" else extent // inner
        return extent * self._rows(knobs) * math.ceil(self.columns(knobs) / self.lanes)
