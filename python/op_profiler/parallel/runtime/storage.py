"""Memory for kernels that run side by side.

The compiler plans storage for one kernel at a time: a tensor takes the place of one that nobody reads any more *by
then*. Where others run beside it, "by then" has no meaning, so storage is planned anew: a tensor takes the place of
another only where its writer is certain to start after the writer and every reader of the other have ended.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from op_profiler.compilers.relay.graph_executor import Entry, computes

_LARGEST_RATIO = 16  # as in the compiler's own planner: a much larger block is not worth a small tensor


@dataclasses.dataclass
class _Block:
    """A piece of memory; `users` are the kernels that have to end before another tensor may lie there."""

    number: int
    size_bytes: int
    users: int


@dataclasses.dataclass
class _Tensor:
    """A tensor and all its views (reshapes), which share its memory.

    Attributes:
        writer: kernel that computes it; None for what is given (inputs, weights).
        users: kernels that write or read it, as the bits of a number.
        kept: whether it is an output of the model.
    """

    size_bytes: int
    writer: int | None
    users: int = 0
    kept: bool = False
    block: int = -1


def plan_storage(graph: dict[str, Any], before: Sequence[int]) -> None:
    """Replace the storage plan of a graph executor's graph.

    Args:
        graph: parsed JSON of the executor's graph, with the model's own heads; changed in place.
        before: for each kernel of the graph, in execution order, those that are certain to have ended before it starts,
            as the bits of a number.
    """
    by_entry = _tensors(graph)
    blocks: list[_Block] = []
    count = 0
    for tensor in by_entry.values():
        if tensor.block >= 0:
            continue  # a view of one that has its place
        found = None if tensor.writer is None or tensor.kept else _fitting(blocks, tensor, before[tensor.writer])
        if found is None:
            found = _Block(count, tensor.size_bytes, tensor.users)
            count += 1
            if tensor.writer is not None and not tensor.kept:
                blocks.append(found)
        found.size_bytes = max(found.size_bytes, tensor.size_bytes)
        found.users = tensor.users
        tensor.block = found.number
    graph["attrs"]["storage_id"][1] = [tensor.block for tensor in by_entry.values()]


def _fitting(blocks: Sequence[_Block], tensor: _Tensor, ended: int) -> _Block | None:
    """The free block whose size is nearest."""
    size = max(tensor.size_bytes, 1)
    free = [
        block
        for block in blocks
        if not block.users & ~ended and size / _LARGEST_RATIO <= block.size_bytes <= size * _LARGEST_RATIO
    ]
    return min(free, key=lambda block: abs(math.log(block.size_bytes / size)), default=None)


def _tensors(graph: dict[str, Any]) -> dict[Entry, _Tensor]:
    """Every entry of the graph, in the order of its storage plan, and the tensor that it is or is a view of."""
    shapes, dtypes = graph["attrs"]["shape"][1], graph["attrs"]["dltype"][1]
    heads = {(int(node), int(output)) for node, output, *_ in graph["heads"]}
    found: dict[Entry, _Tensor] = {}
    kernel = 0
    for index, node in enumerate(graph["nodes"]):
        sources = [found[source, output] for source, output, *_ in node["inputs"]]
        writer = kernel if computes(node) else None
        if writer is not None:
            kernel += 1
            for source in sources:
                source.users |= 1 << writer
        for output in range(int(node.get("attrs", {}).get("num_outputs", 1))):
            number = len(found)
            size = math.prod(shapes[number]) * np.dtype(dtypes[number]).itemsize
            view = node["op"] != "null" and writer is None
            tensor = sources[0] if view else _Tensor(size, writer, 0 if writer is None else 1 << writer)
            tensor.kept |= (index, output) in heads
            found[index, output] = tensor
    return found
