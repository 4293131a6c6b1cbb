"""Queries of a TIR schedule's blocks and loops, and schedule steps that several rules use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from op_profiler.compilers.tvm_build import load_tvm

_SPATIAL, REDUCTION = 0, 2
TVM_ERRORS = (RuntimeError, ValueError, TypeError)
"""Errors of TVM's schedules if a step is impossible: TVM's own error is a RuntimeError."""


class RuleMismatch(Exception):
    """Raised if a rule does not fit a function; the next rule is then tried."""


def blocks_of(schedule: Any) -> list[Any]:
    """Return the blocks in execution order, without the root."""
    return list(schedule.get_child_blocks(schedule.get_sblock("root")))


def name_of(schedule: Any, block: Any) -> str:
    """Return the name hint of a block."""
    return str(schedule.get(block).name_hint)


def extent(schedule: Any, loop: Any) -> int | None:
    """Return the number of iterations of a loop; None if it is known only at run time."""
    value = getattr(schedule.get(loop).extent, "value", None)
    return None if value is None else int(value)


def kinds(schedule: Any, block: Any) -> list[int]:
    """Return TVM's code for each axis of a block: 0 for a spatial axis, `REDUCTION` for a reduction axis."""
    return [int(v.iter_type) for v in schedule.get(block).iter_vars]


def reduces(schedule: Any, block: Any) -> bool:
    """Return whether a block has a reduction axis."""
    return REDUCTION in kinds(schedule, block)


def spatial_count(schedule: Any, block: Any) -> int:
    """Return the number of spatial loops, all of which precede those of the reduction.

    Raises:
        RuleMismatch: the loops are in another order, or their number is not that of the block's axes.
    """
    found = kinds(schedule, block)
    count = found.count(_SPATIAL)
    if any(kind != _SPATIAL for kind in found[:count]) or len(schedule.get_loops(block)) != len(found):
        raise RuleMismatch("loops in another order")
    return count


def has_bool(schedule: Any, block: Any) -> bool:
    """Return whether a block reads or writes Booleans, of which TVM cannot store vectors."""
    node = schedule.get(block)
    return any(str(region.source.dtype) == "bool" for region in [*node.reads, *node.writes])


def uses(expression: Any, variable: Any) -> bool:
    """Return whether a variable occurs in a TIR expression."""
    undefined_vars = load_tvm().tirx.analysis.undefined_vars
    return any(variable.same_as(one) for one in undefined_vars(expression))


def reads_across(schedule: Any, block: Any) -> bool:
    """Return whether neighbouring outputs read values that are not neighbours, as in a transposition."""
    node = schedule.get(block)
    last = [at.min for at in node.writes[0].region[-1:]]  # none of a tensor without dimensions
    beside = [v.var for v in node.iter_vars if any(uses(index, v.var) for index in last)]
    apart = [at.min for region in node.reads for at in region.region[:-1]]
    return any(uses(index, variable) for index in apart for variable in beside)


def anchor_of(schedule: Any) -> tuple[list[Any], Any, list[Any]]:
    """Return the blocks before the only reduction, the reduction, and the blocks after it.

    Raises:
        RuleMismatch: there is no reduction, or there are several.
    """
    blocks = blocks_of(schedule)
    found = [index for index, block in enumerate(blocks) if reduces(schedule, block)]
    if len(found) != 1:
        raise RuleMismatch(f"{len(found)} reductions")
    return blocks[: found[0]], blocks[found[0]], blocks[found[0] + 1 :]


def inline(schedule: Any, blocks: Sequence[Any], but: Sequence[str] = ()) -> list[Any]:
    """Inline blocks into the blocks that read them; return those that remain: blocks named in `but`, and blocks that
    cannot be inlined."""
    kept = []
    for block in blocks:
        if any(part in name_of(schedule, block) for part in but):
            kept.append(block)
            continue
        try:
            schedule.compute_inline(block)
        except TVM_ERRORS:
            kept.append(block)
    return kept


def epilogue(schedule: Any, anchor: Any, after: Sequence[Any]) -> Any:
    """Return the block that writes the anchor's result: the fused successors, or a copy out of registers.

    Raises:
        RuleMismatch: more than one block follows.
    """
    if not after:
        return schedule.cache_write(anchor, 0, "local")
    if inline(schedule, after[:-1]):
        raise RuleMismatch("what follows cannot be one block")
    return after[-1]


def vectorize_and_unroll(schedule: Any, loops: Sequence[Any]) -> None:
    """Vectorize the last loop and unroll the others."""
    schedule.vectorize(loops[-1])
    for loop in loops[:-1]:
        schedule.unroll(loop)
