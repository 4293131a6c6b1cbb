"""Cuts operators by rows for several cores, so that each core finds its inputs in its own cache.

The parallel loops of TVM's kernels for packed tensors (NCHWc) iterate over channels and, inside them, over rows. If
they are cut into blocks, as TVM does it, each core computes some of the channels, and the next convolution, which needs
all channels, reads data that other cores have just written. If they are cut by rows, each core computes some of the
rows in all channels, and later reads hardly more than these rows. If cores share a cache, this makes no difference; if
each cache line has to come from another cache, it makes a large difference. The disadvantage is that each core reads
all weights.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from op_profiler.operators.cost import size_bytes

if TYPE_CHECKING:
    from op_profiler.operators.operator import Operator, TensorSpec

_PACKED_DIMENSIONS = 5
_WHOLE = (0, 0)


def cut_by_rows(operator: Operator, loops: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Return how the parallel loops of an operator's kernel are cut by rows, as in `LaneStep.loops`.

    Args:
        loops: number of iterations of each loop. The last loop writes the output; the loops before it process the first
            input.

    Returns:
        For each loop a pair (parts, rows): the loop is cut into `parts` parts, which together make up `rows` rows;
        (0, 0) for a loop that is cut into blocks. Empty if all loops are cut into blocks: the operator reads more
        weights than activations, or its loops cannot be cut by rows.
    """
    if not operator.inputs or sum(map(size_bytes, operator.params)) > sum(map(size_bytes, operator.inputs)):
        return ()
    found = tuple(_cut(loop, operator.inputs[0]) for loop in loops[:-1])
    found += tuple(_cut(loop, operator.outputs[0]) for loop in loops[-1:])
    return found if any(cut != _WHOLE for cut in found) else ()


def for_team(cuts: Iterable[tuple[int, int]], threads: int) -> tuple[tuple[int, int], ...]:
    """Merge neighbouring rows into larger parts, and return the cuts with as few parts as `threads` threads need.

    Each part is a separate call.

    Args:
        cuts: cuts of loops into single rows, from `cut_by_rows`.
        threads: number of threads; each thread gets the same number of parts if the number of rows allows it.
    """
    return tuple(_shared(parts, rows, threads) for parts, rows in cuts)


def _shared(parts: int, rows: int, threads: int) -> tuple[int, int]:
    fewest = next((count for count in range(threads, rows, threads) if rows % count == 0), rows)
    return (parts // rows * fewest, fewest) if rows else (parts, rows)


def _cut(iterations: int, tensor: TensorSpec) -> tuple[int, int]:
    if len(tensor.shape) != _PACKED_DIMENSIONS:
        return _WHOLE
    batch, channels, height = tensor.shape[:3]
    columns = batch * channels
    if columns < 2 or height < 2 or not iterations or iterations % columns:
        return _WHOLE  # includes a single channel, whose blocks are rows
    each = iterations // columns
    if each % height == 0:
        return columns * height, height  # a part is a row with all its iterations
    if 1 < each < 2 * height:
        return iterations, each  # an iteration is several rows, or some rows are padding
    return _WHOLE
