"""Plans the memory of kernels that run side by side.

The compiler's storage plan is for one kernel at a time: a tensor reuses the memory of a tensor that no *later* kernel
reads. If kernels run side by side, no kernel is certainly later, so storage is planned again: tensor A reuses the
memory of tensor B only if the writer of A certainly starts after the writer and all readers of B have ended.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from op_profiler.compilers.compiled_model import CompiledModel

_LARGEST_RATIO = 16  # as in the compiler's own planner: a much larger block is not worth a small tensor


@dataclasses.dataclass
class _Block:
    """A block of memory.

    Attributes:
        users: kernels that must end before another tensor can use the block, as the bits of an integer.
    """

    number: int
    size_bytes: int
    users: int


@dataclasses.dataclass
class _Tensor:
    """A tensor and all its views (reshapes), which share its memory.

    Attributes:
        writer: kernel that computes the tensor; None for inputs and weights.
        users: kernels that write or read the tensor, as the bits of an integer.
        kept: whether the tensor is an output of the model.
        block: number of its memory block; -1 before it has one.
    """

    size_bytes: int
    writer: int | None
    users: int = 0
    kept: bool = False
    block: int = -1


def plan_storage(compiled: CompiledModel, before: Sequence[int]) -> list[int]:
    """Return the number of the memory block of each tensor of a model (`Compiler.bind`).

    Args:
        before: for each kernel in execution order, the kernels that have certainly ended before it starts, as the bits
            of an integer.
    """
    tensors = _tensors(compiled)
    blocks: list[_Block] = []
    count = 0
    for tensor in tensors:
        if tensor.block >= 0:
            continue  # a view of a tensor that already has a block
        found = None if tensor.writer is None or tensor.kept else _fitting(blocks, tensor, before[tensor.writer])
        if found is None:
            found = _Block(count, tensor.size_bytes, tensor.users)
            count += 1
            if tensor.writer is not None and not tensor.kept:
                blocks.append(found)
        found.size_bytes = max(found.size_bytes, tensor.size_bytes)
        found.users = tensor.users
        tensor.block = found.number
    return [tensor.block for tensor in tensors]


def _fitting(blocks: Sequence[_Block], tensor: _Tensor, ended: int) -> _Block | None:
    """Return the free block with the nearest size; None if no free block is similar enough in size.

    Args:
        ended: kernels that have certainly ended before the tensor is written, as the bits of an integer.
    """
    size = max(tensor.size_bytes, 1)
    free = [
        block
        for block in blocks
        if not block.users & ~ended and size / _LARGEST_RATIO <= block.size_bytes <= size * _LARGEST_RATIO
    ]
    return min(free, key=lambda block: abs(math.log(block.size_bytes / size)), default=None)


def _tensors(compiled: CompiledModel) -> list[_Tensor]:
    """Return for every tensor of a model a `_Tensor`; a view has the same object as the tensor that it is a view of."""
    found: list[_Tensor] = []
    for tensor in compiled.tensors:
        size = math.prod(tensor.shape) * np.dtype(tensor.dtype).itemsize
        found.append(_Tensor(size, None) if tensor.view_of is None else found[tensor.view_of])
    for kernel, call in enumerate(compiled.calls):
        for number in call.writes:
            found[number].writer = kernel
        for number in (*call.reads, *call.writes):
            found[number].users |= 1 << kernel
    for number in compiled.outputs:
        found[number].kept = True
    return found
