"""Softmax, layer norm, sums over the last axes: all blocks are computed row by row, and rows in parallel.

The knobs of a row:

==============  ==================================================================================================
``tile_row``    rows that an iteration of the parallel loop computes one after the other
``split_k``     partial sums of a row, added up at its end; 1 for one sum over all values in order
``fuse``        how many of the loops over rows are fused into the parallel one
``compute_at``  where an expensive value (an exponential) is computed: once per row, or again where it is read
``vectorize``   lanes
``unroll``      unrolled loops of a row: 0 none, 1 the vectors of partial sums, 2 the complete sum if it is short
==============  ==================================================================================================
"""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from collections.abc import Sequence
from typing import Any

from op_profiler.compilers.relax.rules.blocks import (
    REDUCTION,
    RuleMismatch,
    blocks_of,
    extent,
    has_bool,
    inline,
    kinds,
    name_of,
    reduces,
    spatial_count,
    uses,
    vectorize_and_unroll,
)
from op_profiler.compilers.relax.rules.elementwise import FEWEST_LANES
from op_profiler.compilers.relax.vectors import divisor
from op_profiler.compilers.vectors import Vectors
from op_profiler.schedules.factors import Factors
from op_profiler.schedules.nest import INLINE, ROOT, Knobs

_DEAR = re.compile("exp(?!and)")
"""Part of the name of blocks that are not computed again where they are read."""
_UNROLLED = ("none", "partial sums", "row")
_MOST_UNROLLED = 64
_MOST_SUMS, _USUAL_SUMS = 8, 4
"""Largest and default number of vectors of partial sums."""
_STEPS = 16  # fewest additions per partial sum that make another vector of partial sums worthwhile
_ROWS_OF_A_PART = (1, 2, 4, 8, 16)


def rows(schedule: Any, vectors: Vectors) -> Rows:
    """Return a function whose reductions all run over the last axes, and whose last block writes rows or one value per
    row.

    Raises:
        RuleMismatch: the function is not of this kind.
    """
    blocks = blocks_of(schedule)
    reductions = [block for block in blocks if reduces(schedule, block)]
    if not reductions or any(has_bool(schedule, block) for block in blocks):
        raise RuleMismatch("no rows")
    common = spatial_count(schedule, reductions[0])
    if common == 0 or any(spatial_count(schedule, block) != common for block in reductions):
        raise RuleMismatch("reductions over other axes")
    if inline(schedule, [block for block in blocks if _rank(schedule, block) < common]):
        raise RuleMismatch("something of other axes")
    blocks = blocks_of(schedule)
    if not all(_along_rows(schedule, block) for block in reductions):
        raise RuleMismatch("rows that lie apart")
    counts = [extent(schedule, loop) for loop in schedule.get_loops(blocks[-1])[:common]]
    if counts != [extent(schedule, loop) for loop in schedule.get_loops(reductions[0])[:common]]:
        raise RuleMismatch("what is written has other rows")
    if reduces(schedule, blocks[-1]):
        if len(schedule.get(blocks[-1]).writes) != 1:
            raise RuleMismatch("several results")
        schedule.cache_write(blocks[-1], 0, "local")
    lengths = [_length(schedule, block, common) for block in reductions]
    lanes = min(_lanes(length or 1, vectors) for length in lengths)
    return Rows(schedule, common, tuple(counts), tuple(lengths), vectors.lanes, lanes if lanes >= FEWEST_LANES else 1)


def _lanes(length: int, vectors: Vectors) -> int:
    """Return a power of two if possible, because LLVM's code for 14 lanes is slower than for 4."""
    found = math.gcd(length, vectors.lanes)
    return found if found >= FEWEST_LANES else divisor(length, vectors.lanes)


@dataclasses.dataclass(frozen=True)
class Rows:
    """A function that computes rows (a `SchedulableFunction`).

    Attributes:
        common: number of leading axes; their indices identify a row.
        counts: extent of each leading axis; None if known only at run time.
        lengths: number of values of each reduction; None if known only at run time.
        lanes: number of values in a vector register.
        width: default number of lanes of a vector; 1 if the rows cannot be vectorized.
    """

    schedule: Any
    common: int
    counts: tuple[int | None, ...]
    lengths: tuple[int | None, ...]
    lanes: int
    width: int

    @functools.cached_property
    def default(self) -> Knobs:
        """Return the knob values of the rule: one row per iteration, and partial sums if the rows are long enough."""
        shortest = min(length or 1 for length in self.lengths) // self.width
        sums = self.width * divisor(shortest, min(_USUAL_SUMS, shortest // _STEPS)) if self.width > 1 else 1
        found = {"tile_row": 1, "split_k": sums, "fuse": self.common}
        return found | ({"compute_at": ROOT} if self._dear else {}) | {"vectorize": self.width, "unroll": 1}

    @functools.cached_property
    def knobs(self) -> dict[str, list[int]]:
        """Values of every knob by name; empty if an extent is known only at run time."""
        known = [length for length in self.lengths if length is not None]
        if None in self.counts or len(known) != len(self.lengths):
            return {}
        together = math.gcd(*known)
        widths = [lanes for lanes in (self.lanes, self.lanes // 2, self.lanes // 4) if lanes >= FEWEST_LANES]
        found = {
            "tile_row": [size for size in _ROWS_OF_A_PART if (self.counts[-1] or 1) % size == 0],
            "split_k": [1, *(lanes * count for lanes in widths for count in (1, 2, 4, _MOST_SUMS))],
            "fuse": list(range(self._first_moving + 1, self.common + 1)),
            "compute_at": [ROOT, INLINE],
            "vectorize": widths,
            "unroll": [0, 1, 2],
        }
        for name in ("split_k", "vectorize"):
            found[name] = [size for size in found[name] if together % size == 0]
        return {name: sorted({*found[name], value}) for name, value in self.default.items()}

    @property
    def _first_moving(self) -> int:
        """The first axis that counts more than one row; the last one if there is only one row."""
        return next((place for place, count in enumerate(self.counts) if count != 1), self.common - 1)

    @functools.cached_property
    def _dear(self) -> tuple[str, ...]:
        """Names of blocks that are computed once for a row."""
        blocks = blocks_of(self.schedule)[:-1]
        names = [name_of(self.schedule, block) for block in blocks if self._is_of_row(block)]
        return tuple(name for name in names if _DEAR.search(name))

    def _is_of_row(self, block: Any) -> bool:
        """Return whether a block computes each value of a row."""
        return not reduces(self.schedule, block) and _rank(self.schedule, block) > self.common

    def is_valid(self, knobs: Knobs) -> bool:
        """Return whether the partial sums are one value, or at most 8 full vectors."""
        sums, width = knobs["split_k"], knobs["vectorize"]
        return sums == 1 or (sums % width == 0 and sums // width <= _MOST_SUMS)

    def factors(self, knobs: Knobs) -> Factors:
        """Return the schedule factors of the dataset for these knob values."""
        where = {ROOT: "row", INLINE: "inline"}
        return Factors(
            tile={"row": knobs["tile_row"]},
            split={"k": knobs["split_k"]},
            fuse=knobs["fuse"],
            compute_at=where[knobs["compute_at"]] if "compute_at" in knobs else None,
            vectorize=knobs["vectorize"],
            unroll=_UNROLLED[knobs["unroll"]],
            parallel="rows",
        )

    def apply(self, knobs: Knobs, vectors: Vectors) -> None:
        """Compute all blocks of a row in one parallel loop over rows, with partial sums and vectors by the knobs."""
        schedule = self.schedule
        kept = self._dear if knobs.get("compute_at") == ROOT else ()
        inline(schedule, [block for block in blocks_of(schedule)[:-1] if self._is_of_row(block)], kept)
        ranks = [(block, _rank(schedule, block)) for block in blocks_of(schedule) if self._is_of_row(block)]
        partial = []
        for block in [block for block in blocks_of(schedule) if reduces(schedule, block)]:
            partial += _partial_sums(schedule, block, self.common, knobs) if knobs["split_k"] > 1 else []
        blocks = blocks_of(schedule)
        row = self._row(blocks[-1], knobs)
        for block in reversed(blocks[:-1]):
            schedule.compute_at(block, row, preserve_unit_loops=True)
        for block in partial:
            sum_in_vectors(schedule, block, knobs)
        for block, rank in ranks:
            _vectorize(schedule, block, rank - self.common, knobs["vectorize"])

    def _row(self, last: Any, knobs: Knobs) -> Any:
        """Return the loop over rows in which all blocks of a row are computed."""
        schedule = self.schedule
        loops = list(schedule.get_loops(last)[: self.common])
        inside = []
        if knobs["tile_row"] > 1:
            loops[-1], tile = schedule.split(loops[-1], [None, knobs["tile_row"]])
            inside = [tile]
        parallel = schedule.fuse(*loops[: knobs["fuse"]])
        schedule.parallel(parallel)
        return [parallel, *loops[knobs["fuse"] :], *inside][-1]


def _along_rows(schedule: Any, block: Any) -> bool:
    """Return whether a reduction reads contiguous values, not windows as in pooling."""
    node = schedule.get(block)
    over = [axis.var for axis in node.iter_vars if int(axis.iter_type) == REDUCTION]
    axes = [axis.var for axis in node.iter_vars]

    def is_of(index: Any, wanted: Any) -> bool:
        return uses(index, wanted) and not any(uses(index, axis) for axis in axes if not axis.same_as(wanted))

    indices = [[at.min for at in region.region[-len(over) :]] for region in node.reads]
    return any(len(at) == len(over) and all(is_of(*pair) for pair in zip(at, over)) for at in indices)


def _rank(schedule: Any, block: Any) -> int:
    return len(schedule.get_loops(block))


def _length(schedule: Any, block: Any, common: int) -> int | None:
    """Return the number of values of a reduction; None if known only at run time."""
    sizes = [extent(schedule, loop) for loop in schedule.get_loops(block)[common:]]
    known = [size for size in sizes if size is not None]
    return math.prod(known) if len(known) == len(sizes) else None


def _partial_sums(schedule: Any, block: Any, rows: int, knobs: Knobs) -> list[Any]:
    """Return the blocks of the partial sums of a row; those of several vectors are first added to one vector."""
    sums, width = knobs["split_k"], knobs["vectorize"]
    made = []
    if len(schedule.get_loops(block)) > rows + 1:
        schedule.fuse(*schedule.get_loops(block)[rows:])
    for size in dict.fromkeys((sums, width)):
        _, inner = schedule.split(schedule.get_loops(block)[-1], [None, size])
        made.append(schedule.rfactor(inner, rows))
    return made


def sum_in_vectors(schedule: Any, block: Any, knobs: Knobs) -> None:
    """Compute partial sums as vectors of neighbouring values.

    Args:
        block: block that computes the partial sums; its first axis is the index of the partial sum.
        knobs: ``vectorize`` and ``unroll`` are used.
    """
    found = kinds(schedule, block)
    loops = schedule.get_loops(block)[-len(found) :]
    sums, steps = loops[0], loops[found.index(REDUCTION)]
    parts = schedule.split(sums, [None, knobs["vectorize"]])
    schedule.reorder(steps, *parts)
    _vectors(schedule, parts, knobs)
    init = schedule.decompose_reduction(block, steps)
    _vectors(schedule, schedule.get_loops(init)[-len(parts) :], knobs)
    count = extent(schedule, steps)
    if knobs["unroll"] > 1 and count is not None and count <= _MOST_UNROLLED:
        schedule.unroll(steps)


def _vectors(schedule: Any, loops: Sequence[Any], knobs: Knobs) -> None:
    if knobs["unroll"]:
        vectorize_and_unroll(schedule, loops)
    else:
        schedule.vectorize(loops[-1])


def _vectorize(schedule: Any, block: Any, inside: int, width: int) -> None:
    """Vectorize a block that computes each value of a row, over its innermost loops."""
    loops = schedule.get_loops(block)[-inside:]
    loop = schedule.fuse(*loops) if len(loops) > 1 else loops[0]
    size = extent(schedule, loop)
    lanes = divisor(size, width) if size else 1
    if lanes > 1:
        schedule.vectorize(schedule.split(loop, [None, lanes])[1])
