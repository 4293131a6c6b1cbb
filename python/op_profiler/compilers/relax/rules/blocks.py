"""Queries of a TIR schedule's blocks and loops, and schedule steps that several rules use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from op_profiler.compilers.tvm_build import load_tvm

_SPATIAL, REDUCTION = 0, 2
TVM_ERRORS = (RuntimeError, ValueError, TypeError)
"""What TVM's schedules raise where a step is not possible: their own error is a RuntimeError."""


class RuleMismatch(Exception):
    """A rule that does not fit a function; the next one is tried."""


def blocks_of(schedule: Any) -> list[Any]:
    """Its blocks in the order in which they run, the root left out."""
    return list(schedule.get_child_blocks(schedule.get_sblock("root")))


def name_of(schedule: Any, block: Any) -> str:
    """Name hint of a block."""
    return str(schedule.get(block).name_hint)


def extent(schedule: Any, loop: Any) -> int | None:
    """Iterations of a loop; None where only run time tells."""
    value = getattr(schedule.get(loop).extent, "value", None)
    return None if value is None else int(value)


def kinds(schedule: Any, block: Any) -> list[int]:
    """TVM's code of the iterator of each axis of a block: 0 spatial, `REDUCTION` reduced."""
    return [int(v.iter_type) for v in schedule.get(block).iter_vars]


def reduces(schedule: Any, block: Any) -> bool:
    """Whether a block has a reduction axis."""
    return REDUCTION in kinds(schedule, block)


def spatial_count(schedule: Any, block: Any) -> int:
    """How many of its loops are spatial, all in front of those of the reduction.

    Raises:
        RuleMismatch: they are in another order, or are not one for each of the block's axes.
    """
    found = kinds(schedule, block)
    count = found.count(_SPATIAL)
    if any(kind != _SPATIAL for kind in found[:count]) or len(schedule.get_loops(block)) != len(found):
        raise RuleMismatch("loops in another order")
    return count


def has_bool(schedule: Any, block: Any) -> bool:
    """Whether it reads or writes truth values, whose vectors TVM cannot store."""
    node = schedule.get(block)
    return any(str(region.source.dtype) == "bool" for region in [*node.reads, *node.writes])


def uses(expression: Any, variable: Any) -> bool:
    """Whether a variable occurs in an expression of TIR."""
    load_tvm()
    from tvm.tirx.analysis import undefined_vars

    return any(variable.same_as(one) for one in undefined_vars(expression))


def reads_across(schedule: Any, block: Any) -> bool:
    """Whether what it writes beside each other lies apart in a tensor that it reads, as in a transposition."""
    node = schedule.get(block)
    last = [at.min for at in node.writes[0].region[-1:]]  # none of a tensor without dimensions
    beside = [v.var for v in node.iter_vars if any(uses(index, v.var) for index in last)]
    apart = [at.min for region in node.reads for at in region.region[:-1]]
    return any(uses(index, variable) for index in apart for variable in beside)


def anchor_of(schedule: Any) -> tuple[list[Any], Any, list[Any]]:
    """The blocks before the only reduction, that one, and those after it.

    Raises:
        RuleMismatch: there is none, or there are several.
    """
    blocks = blocks_of(schedule)
    found = [index for index, block in enumerate(blocks) if reduces(schedule, block)]
    if len(found) != 1:
        raise RuleMismatch(f"{len(found)} reductions")
    return blocks[: found[0]], blocks[found[0]], blocks[found[0] + 1 :]


def inline(schedule: Any, blocks: Sequence[Any], but: Sequence[str] = ()) -> list[Any]:
    """Compute blocks where they are read, and give those that stay: named so, or not to be inlined."""
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
    """The one block that writes what the anchor computed: what follows it as one, or a copy out of registers.

    Raises:
        RuleMismatch: what follows is more than one block.
    """
    if not after:
        return schedule.cache_write(anchor, 0, "local")
    if inline(schedule, after[:-1]):
        raise RuleMismatch("what follows cannot be one block")
    return after[-1]


def vectorize_and_unroll(schedule: Any, loops: Sequence[Any]) -> None:
    """Vectorize the last loop, unroll the others."""
    schedule.vectorize(loops[-1])
    for loop in loops[:-1]:
        schedule.unroll(loop)
