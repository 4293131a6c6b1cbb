"""Applies the loop nest of `op_profiler.schedules.nest` as knobs of AutoTVM and a TE schedule."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.schedules import nest
from op_profiler.schedules.nest import INLINE, ROOT, Axis, Loops, Nest

_POWERS = tuple(2**power for power in range(4, 12))


def tile_sizes(extent: int) -> list[int]:
    """Return the sizes 1 to 10, powers of two, and the whole axis up to 32, as far as they divide it."""
    return nest.tile_sizes(extent, _POWERS)


def nest_of(
    spatial: Sequence[Axis],
    lanes: int,
    reduction: tuple[tuple[str, int], ...],
    split: str | None,
    *,
    producers: bool = False,
    inner_tile_orders: bool = False,
) -> Nest:
    """Return the nest of a tensor with the axes `spatial` and an axis of lanes. In the tensor, the lanes are either the
    last axis, or the inner part of the last axis.

    Args:
        spatial: axes without the lanes; the last one has one element per vector.
        lanes: extent of the axis of lanes, which is vectorized.
        reduction, split, producers, inner_tile_orders: as in `Nest`.
    """
    axes = (*spatial, Axis("lane", lanes))
    order = tuple(axis.name for axis in spatial)
    return Nest(axes, order, reduction, split, lanes, lanes, producers, tile_sizes, inner_tile_orders)


def apply(loops: Nest, s: Any, cfg: Any, result: Any, output: Any, producers: Sequence[Any] = ()) -> None:
    """Define the knobs of a nest, and schedule `result` (the reduction) and `output` (the fused successors, or `result`
    itself).

    Args:
        s: `te.Schedule`.
        cfg: AutoTVM's configuration space, or a point of it.
        producers: stages that feed `result`, each computed at the position of the knob ``compute_at``.
    """
    knobs = defined(loops, cfg)
    output = output_of(s, result, output)
    accumulators = s.cache_write(result, "global") if result.op == output.op else result
    outer = loops.tile_output(_loops(s, output), _axes(s, output, loops), knobs)
    s[accumulators].compute_at(s[output], outer[-1])
    order_sum(loops, s, accumulators, knobs)
    for producer in producers:
        place(s, knobs["compute_at"], producer, output, outer)


def defined(loops: Nest, cfg: Any) -> dict[str, int]:
    """Define the knobs of a nest; return their values in `cfg`."""
    for name, values in loops.knobs.items():
        cfg.define_knob(name, values)
    restrict(cfg, loops.is_valid)
    cfg.nest = loops
    return {name: value(cfg, name) for name in loops.knobs}


def order_sum(loops: Nest, s: Any, accumulators: Any, knobs: Mapping[str, int]) -> None:
    """Order and unroll the loops of the stage `accumulators`, which sums up the values of one register tile."""
    axes = _axes(s, accumulators, loops)
    loops.order_sum(_loops(s, accumulators), axes, s[accumulators].op.reduce_axis, knobs)


def _loops(s: Any, tensor: Any) -> Loops:
    return Loops(s[tensor], lambda loop, factor: s[tensor].split(loop, factor=factor))


def _axes(s: Any, tensor: Any, loops: Nest) -> list[Any]:
    """Return a loop for each axis of the nest, the one over lanes last."""
    axes = list(s[tensor].op.axis)
    if len(axes) < len(loops.axes):  # the last axis holds vectors and lanes
        axes[-1:] = s[tensor].split(axes[-1], factor=loops.block)
    return axes


def place(s: Any, where: int, producer: Any, output: Any, outer: Sequence[Any]) -> None:
    """Place a stage that feeds the reduction: inline, at the root, or in one of the loops `outer`, by the value `where`
    of the knob ``compute_at``."""
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
    """Return the value of the knob `name` in a configuration."""
    return int(cfg[name].val)


def output_of(s: Any, result: Any, output: Any) -> Any:
    """Return the tensor whose loops are scheduled for a result: the fused successors if they have the same axes,
    otherwise the result itself.

    A broadcast after the result may add axes; it is then computed separately.
    """
    if len(output.op.axis) == len(result.op.axis):
        return output
    load_tvm().topi.x86.schedule_injective_from_existing(s, output)
    return result


def restrict(cfg: Any, fits: Callable[[dict[str, int]], bool]) -> None:
    """Restrict a space to the points that satisfy a condition on several knobs, which is checked point by point.

    AutoTVM's own `multi_filter` evaluates the whole space first, which takes minutes for millions of points; its tuners
    only query one point at a time.
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
