"""One loop nest for all templates: its knobs by name, and the schedule that a point of their space stands for.

A nest computes a tensor whose last axis is vectorized (the blocked channel of a convolution, the columns of a product)
and reduces over one or more axes. Its knobs are the factors that the dataset has columns for:

==============  ==================================================================================================
``tile_<axis>`` elements of a spatial axis in the register tile: 1 to 10 and the powers of two that divide the axis
``split_<axis>`` inner part of the reduction's split
``outer``       order of the outer loops, a permutation (`Nest.outer_orders`)
``fuse``        how many of the outer loops are fused; the fused loop is the parallel one
``reorder``     order of the reduction loops, a permutation (`Nest.inner_orders`)
``compute_at``  where a stage that feeds the nest (padding, packing) is computed: root, an outer loop, or inline
``vectorize``   lanes
``unroll``      what is unrolled: 0 nothing, 1 the register tile, 2 the reduction loop next to it as well
==============  ==================================================================================================

All knobs are integers, so that AutoTVM's cost models can read them.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.schedules.factors import Factors

MAXIMUM_REGISTER_TILE = 32
"""Vectors in a register tile: AVX-512 and 64-bit arm have 32 vector registers; more spills."""
_MAXIMUM_UNROLLED = 512
ROOT, INLINE = 0, -1
UNROLLED = ("none", "tile", "tile and reduction")


def tile_sizes(extent: int) -> list[int]:
    """Sizes 1 to 10, powers of two, and the whole axis up to 32, as far as they divide it."""
    wanted = {*range(1, 11), *(2**p for p in range(4, 12))}
    if extent <= MAXIMUM_REGISTER_TILE:
        wanted.add(extent)
    return sorted(size for size in wanted if extent % size == 0)


@dataclasses.dataclass(frozen=True)
class Nest:
    """Names and extents of the loops of one nest.

    Attributes:
        spatial: name and extent of each axis in the order of the tensor, the vectorized part of the last one left out;
            an axis that is not tiled (a batch) has its name in `untiled`.
        lanes: extent of the vectorized part.
        reduction: name and extent of each reduction axis, the order of the compute definition.
        split: names of the reduction axes that are split.
        producers: how many stages feed the nest and can be placed.
        inner_tile_orders: the loop over the first tiled axis may also stand between or outside the reduction loops.
    """

    spatial: tuple[tuple[str, int], ...]
    lanes: int
    reduction: tuple[tuple[str, int], ...]
    split: tuple[str, ...]
    untiled: tuple[str, ...] = ()
    producers: int = 0
    inner_tile_orders: bool = False

    @property
    def tiled(self) -> list[tuple[str, int]]:
        return [(name, extent) for name, extent in self.spatial if name not in self.untiled and extent > 1]

    @property
    def outer_orders(self) -> list[tuple[str, ...]]:
        """Orders of the outer loops; those of extent 1 stay in front."""
        moving = [name for name, extent in self.spatial if extent > 1]
        fixed = tuple(name for name, extent in self.spatial if extent == 1)
        return [fixed + order for order in itertools.permutations(moving)]

    @property
    def inner_orders(self) -> list[tuple[str, ...]]:
        """Orders of the reduction loops ``x.o`` (outer part of a split), ``x.i`` (inner part) or ``x``, outside first.

        The outer part of a split stays outside its inner part. Loops of extent 1 stay in front. The loops over the
        register tile follow, except the one that `inner_tile_orders` puts among these.
        """
        moving: list[str] = []
        fixed: list[str] = []
        for name, extent in self.reduction:
            loops = [f"{name}.o", f"{name}.i"] if name in self.split else [name]
            (moving if extent > 1 else fixed).extend(loops)
        if self.inner_tile_orders and self.tiled:
            moving.append(self.tiled[0][0])
        orders = itertools.permutations(moving)
        kept = [o for o in orders if all(o.index(f"{n}.o") < o.index(f"{n}.i") for n in self.split if f"{n}.o" in o)]
        return [tuple(fixed) + order for order in kept]

    def define(self, cfg: Any) -> None:
        """Add the knobs to an AutoTVM configuration space."""
        for name, extent in self.tiled:
            cfg.define_knob(f"tile_{name}", tile_sizes(extent))
        extents = dict(self.reduction)
        for name in self.split:
            if extents[name] > 1:
                cfg.define_knob(f"split_{name}", tile_sizes(extents[name]))
        moving = sum(1 for _, extent in self.spatial if extent > 1)
        cfg.define_knob("outer", list(range(len(self.outer_orders))))
        cfg.define_knob("fuse", list(range(1, max(moving, 1) + 1)))
        cfg.define_knob("reorder", list(range(len(self.inner_orders))))
        if self.producers:
            cfg.define_knob("compute_at", [ROOT, *range(1, max(moving, 1) + 1), INLINE])
        cfg.define_knob("vectorize", [self.lanes, self.lanes // 2] if self.lanes % 2 == 0 else [self.lanes])
        cfg.define_knob("unroll", [0, 1, 2])
        restrict(cfg, self._fits)
        cfg.nest = self

    def factors(self, knobs: Mapping[str, int]) -> Factors:
        """What a point of the space does, in the words of the dataset."""
        outer = self.outer_orders[knobs["outer"]]
        parallel = outer[: self._fused(knobs["fuse"])]
        rest = outer[len(parallel) :]
        where: str | None = None
        if self.producers:
            depth = min(knobs["compute_at"], len(rest) + 1)
            where = {ROOT: "root", INLINE: "inline"}.get(knobs["compute_at"]) or (
                " ".join(parallel) if depth == 1 else rest[depth - 2]
            )
        tile = {name: knobs[f"tile_{name}"] for name, _ in self.tiled}
        return Factors(
            tile=tile,
            split={name: knobs[f"split_{name}"] for name in self.split if f"split_{name}" in knobs},
            fuse=len(parallel),
            reorder=f"{' '.join(outer)} | {' '.join(self.inner_orders[knobs['reorder']])}",
            compute_at=where,
            vectorize=knobs["vectorize"],
            unroll=UNROLLED[knobs["unroll"]],
            parallel=" ".join(parallel),
        )

    def _fits(self, values: dict[str, int]) -> bool:
        """A register tile that fits the registers, and a stage placed no deeper than there are loops."""
        tile = math.prod(values[f"tile_{name}"] for name, _ in self.tiled)
        moving = sum(1 for _, extent in self.spatial if extent > 1)
        depth = moving - values["fuse"] + 1
        return tile * max(self.lanes // values["vectorize"], 1) <= MAXIMUM_REGISTER_TILE and (
            values.get("compute_at", ROOT) <= max(depth, 1)
        )

    def apply(self, s: Any, cfg: Any, result: Any, output: Any, producers: Sequence[Any] = ()) -> None:
        """Schedule `result` (the reduction) and `output` (what is fused behind it, or `result` itself).

        Args:
            s: `te.Schedule`.
            cfg: point of the space that `define` made.
            producers: stages that feed `result`, each computed where the knob ``compute_at`` says.
        """
        output = output_of(s, result, output)
        accumulators = s.cache_write(result, "global") if result.op == output.op else result
        outer = self._schedule_output(s, cfg, output)
        s[accumulators].compute_at(s[output], outer[-1])
        self._schedule_accumulators(s, cfg, accumulators)
        for producer in producers:
            self._place(s, cfg, producer, output, outer)

    def _axes(self, s: Any, cfg: Any, tensor: Any) -> tuple[list[Any], list[Any]]:
        """A loop for each spatial axis, and the vector loops, innermost last."""
        axes = list(s[tensor].op.axis)
        if len(axes) == len(self.spatial):  # the last axis holds vectors and lanes
            axes[-1:] = s[tensor].split(axes[-1], factor=self.lanes)
        lane = axes.pop()
        width = value(cfg, "vectorize")
        return axes, list(s[tensor].split(lane, factor=width)) if width < self.lanes else [lane]

    def _schedule_output(self, s: Any, cfg: Any, output: Any) -> list[Any]:
        """Tile, order, fuse; the outer loops that are left, the parallel one first."""
        axes, lanes = self._axes(s, cfg, output)
        loops: dict[str, Any] = {}
        tile: list[Any] = []
        for (name, extent), axis in zip(self.spatial, axes):
            loops[name] = axis
            if name not in self.untiled and extent > 1:
                loops[name], inner = s[output].split(axis, factor=value(cfg, f"tile_{name}"))
                tile.append(inner)
        order = [loops[name] for name in self.outer_orders[value(cfg, "outer")]]
        s[output].reorder(*order, *tile, *lanes)
        s[output].vectorize(lanes[-1])
        count = self._fused(value(cfg, "fuse"))
        parallel = s[output].fuse(*order[:count]) if count > 1 else order[0]
        s[output].parallel(parallel)
        return [parallel, *order[count:]]

    def _fused(self, knob: int) -> int:
        """How many loops the parallel one is made of: those of extent 1, which stand in front, do not count."""
        moving = sum(1 for _, extent in self.spatial if extent > 1)
        return len(self.spatial) - moving + min(knob, moving)

    def _schedule_accumulators(self, s: Any, cfg: Any, tensor: Any) -> None:
        """Order and unroll the loops inside one register tile."""
        axes, lanes = self._axes(s, cfg, tensor)
        reductions: dict[str, Any] = {}
        for (name, extent), axis in zip(self.reduction, s[tensor].op.reduce_axis):
            if name in self.split:
                factor = value(cfg, f"split_{name}") if extent > 1 else 1
                reductions[f"{name}.o"], reductions[f"{name}.i"] = s[tensor].split(axis, factor=factor)
            else:
                reductions[name] = axis
        tile = {name: axis for (name, _), axis in zip(self.spatial, axes)}
        names = self.inner_orders[value(cfg, "reorder")]
        order = [reductions[name] if name in reductions else tile.pop(name) for name in names]
        s[tensor].reorder(*order, *tile.values(), *lanes)
        s[tensor].vectorize(lanes[-1])
        unroll = value(cfg, "unroll")
        if unroll >= 1:
            for axis in [*tile.values(), *lanes[:-1]]:
                s[tensor].unroll(axis)
        if unroll >= 2 and self._innermost_extent(cfg) <= _MAXIMUM_UNROLLED:
            s[tensor].unroll(order[-1])

    def _innermost_extent(self, cfg: Any) -> int:
        """Statements after unrolling the innermost reduction loop over the register tile."""
        loop = self.inner_orders[value(cfg, "reorder")][-1]
        name = loop.split(".")[0]
        extent = dict(self.reduction).get(name, 1)
        if name in self.split and extent > 1:
            inner = value(cfg, f"split_{name}")
            extent = inner if loop.endswith(".i") else extent // inner
        return extent * math.prod(value(cfg, f"tile_{axis}") for axis, _ in self.tiled)

    def _place(self, s: Any, cfg: Any, producer: Any, output: Any, outer: list[Any]) -> None:
        where = value(cfg, "compute_at")
        if where == INLINE:
            s[producer].compute_inline()
            return
        axes = list(s[producer].op.axis)
        s[producer].vectorize(axes[-1])
        if where == ROOT:
            s[producer].parallel(s[producer].fuse(*axes[: max(len(axes) - 2, 1)]))
        else:
            s[producer].compute_at(s[output], outer[min(where, len(outer)) - 1])


def value(cfg: Any, name: str) -> int:
    """A knob of a point."""
    return int(cfg[name].val)


def output_of(s: Any, result: Any, output: Any) -> Any:
    """Where the loops over a result can be: what is fused behind it, if that has the same axes, else the result itself.

    A broadcast behind the result may add axes; it is then computed on its own.
    """
    if len(output.op.axis) == len(result.op.axis):
        return output
    load_tvm().topi.x86.schedule_injective_from_existing(s, output)
    return result


def restrict(cfg: Any, fits: Callable[[dict[str, int]], bool]) -> None:
    """Make the space answer for its points whether they satisfy a joint condition.

    AutoTVM's own way (`multi_filter`) evaluates the whole space first, which takes minutes for millions of points; its
    tuners only ever ask for one point at a time.
    """
    if not getattr(cfg, "_collect", False):
        return  # a point, not a space

    def valid(index: int) -> bool:
        values = {}
        for name, space in cfg.space_map.items():
            values[name] = int(space.entities[index % len(space)].val)
            index //= len(space)
        return fits(values)

    def following(index: int, n: int = 1, start: int | None = None, end: int | None = None) -> int | None:
        step, left = (1, n) if n > 0 else (-1, -n)
        low, high = start or 0, end or cfg.range_length
        while left:
            index += step
            if not low <= index < high:
                return None
            left -= valid(index)
        return index

    cfg.is_index_valid, cfg.get_next_index = valid, following
