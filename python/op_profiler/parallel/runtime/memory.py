"""Allocates the memory of models on lanes: all tensors in one block, on large pages if the system provides them.

A core translates addresses by a page table, of which it caches some thousand entries. With pages of 2 MiB instead of
4 KiB, a few entries cover all tensors of a model; in a virtual machine, where each look-up goes through two tables,
small models become a few percent faster. Linux provides large pages on request (``madvise``, transparent huge pages).
"""

from __future__ import annotations

import contextlib
import math
import mmap
from collections.abc import Mapping, Sequence

import numpy as np

from op_profiler.compilers.bound_kernel import Bound
from op_profiler.compilers.compiled_model import CompiledModel, PlannedTensor
from op_profiler.compilers.compiler import compiler_in_use
from op_profiler.compilers.tvm_types import DeviceArray

_LARGE_PAGE = 1 << 21
_LINE = 64  # of a cache; TVM aligns its own tensors to it


def bind_in_one_piece(compiled: CompiledModel, blocks: Sequence[int], inputs: Mapping[str, np.ndarray]) -> Bound:
    """Bind every kernel of a model to tensors in one new piece of memory; weights that are only read are not copied.

    Args:
        compiled: a model compiled for this machine's processor.
        blocks: number of the memory block of every tensor, from `plan_storage`.
        inputs: arrays of the model's inputs, by name.
    """
    compiler = compiler_in_use()
    weights = compiler.weights(compiled)
    kept = compiled.only_read(weights)
    buffers = _arrays(compiled.tensors, blocks, without=set(kept.values()))
    buffers |= {number: weights[name] for name, number in kept.items()}
    for number, tensor in enumerate(compiled.tensors):
        if tensor.given and tensor.given not in kept:
            buffers[number].copyfrom(inputs[tensor.given] if tensor.given in inputs else weights[tensor.given])
    kernels = tuple(
        compiler.bound_kernel(
            c.name, c.label, compiler.kernel(compiled, c.name), [buffers[n] for n in (*c.reads, *c.writes)]
        )
        for c in compiled.calls
    )
    return Bound(kernels, tuple(buffers[number] for number in compiled.outputs))


def _arrays(tensors: Sequence[PlannedTensor], blocks: Sequence[int], without: set[int]) -> dict[int, DeviceArray]:
    """Return an array for every tensor that is not in `without`, by its number; tensors of one block share memory."""
    planned = [(number, *one) for number, one in enumerate(zip(tensors, blocks, strict=True)) if number not in without]
    sizes: dict[int, int] = {}
    for _, tensor, block in planned:
        sizes[block] = max(sizes.get(block, 0), math.prod(tensor.shape) * np.dtype(tensor.dtype).itemsize, 1)
    memory = dict(zip(sizes, _blocks(list(sizes.values()))))
    array_over = compiler_in_use().array_over
    found = {}
    for number, tensor, block in planned:
        size = math.prod(tensor.shape) * np.dtype(tensor.dtype).itemsize
        found[number] = array_over(memory[block][:size], tensor.shape, tensor.dtype)
    return found


def _blocks(sizes_bytes: list[int]) -> list[np.ndarray]:
    """Return byte arrays of these sizes in one piece of memory, each at the start of a cache line."""
    ends = np.cumsum([math.ceil(size / _LINE) * _LINE for size in sizes_bytes]).tolist()
    memory = mmap.mmap(-1, (ends[-1] if ends else 0) + _LARGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # the system may have no large pages
        memory.madvise(mmap.MADV_HUGEPAGE)
    everything = np.frombuffer(memory, dtype=np.uint8)
    everything = everything[-everything.ctypes.data % _LARGE_PAGE :]
    return [everything[start : start + size] for start, size in zip([0, *ends], sizes_bytes)]
