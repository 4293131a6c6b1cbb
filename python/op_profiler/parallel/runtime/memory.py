"""Memory of models on lanes: all tensors in one piece, on large pages where the system has them.

A core finds an address through a table of pages, of which it remembers some thousands. Pages of 2 MiB in place of 4 KiB
cover all tensors of a model with a few entries; inside a virtual machine, where looking one up takes two tables, small
models gain some percent. Linux gives large pages to memory that asks for them (``madvise``, transparent huge pages).
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import mmap
from collections.abc import Mapping
from typing import Any

import numpy as np

from op_profiler.compilers.compiled_model import CompiledModel
from op_profiler.compilers.relay.graph_executor import Entry, bound_calls, only_read
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.measure.calls import Kernel

_LARGE_PAGE = 1 << 21
_LINE = 64  # of a cache; what TVM aligns its own tensors to


@dataclasses.dataclass(frozen=True)
class Bound:
    """The kernels of a model over its tensors, in execution order, and its outputs."""

    kernels: tuple[Kernel, ...]
    outputs: tuple[Any, ...]

    def output_arrays(self) -> list[np.ndarray]:
        """The outputs on the host."""
        return [np.asarray(output.numpy()) for output in self.outputs]


def bind_in_one_piece(compiled: CompiledModel, graph: dict[str, Any], inputs: Mapping[str, np.ndarray]) -> Bound:
    """Bind every kernel to tensors in memory of its own; weights that kernels only read stay where they are.

    Args:
        compiled: for this machine's processor.
        graph: parsed JSON of the model's graph, with its storage plan.
        inputs: one array per input of the model.
    """
    weights = compiled.library.get_params()
    kept = only_read(graph, weights)
    buffers = _tensors(graph, without={entry for entry in kept.values()})
    buffers |= {entry: weights[name] for name, entry in kept.items()}
    for index, node in enumerate(graph["nodes"]):
        name = node["name"]
        if node["op"] == "null" and name not in kept:
            buffers[index, 0].copyfrom(inputs[name] if name in inputs else weights[name])
    library = compiled.library.get_lib()
    kernels = tuple(
        Kernel(name, label, library.get_function(name, True), arrays)
        for name, label, arrays in bound_calls(graph, buffers)
    )
    outputs = tuple(buffers[int(node), int(output)] for node, output, *_ in graph["heads"])
    return Bound(kernels, outputs)


def _tensors(graph: dict[str, Any], without: set[Entry]) -> dict[Entry, Any]:
    """An array for every entry; those with the same number in the storage plan share their memory."""
    attrs = graph["attrs"]
    counts = [int(node.get("attrs", {}).get("num_outputs", 1)) for node in graph["nodes"]]
    entries = [(index, output) for index, count in enumerate(counts) for output in range(count)]
    planned = list(zip(entries, attrs["storage_id"][1], attrs["shape"][1], attrs["dltype"][1], strict=True))
    planned = [one for one in planned if one[0] not in without]
    sizes: dict[int, int] = {}
    for _, block, shape, dtype in planned:
        sizes[block] = max(sizes.get(block, 0), math.prod(shape) * np.dtype(dtype).itemsize, 1)
    blocks = dict(zip(sizes, _blocks(list(sizes.values()))))
    return {entry: blocks[block]._create_view(shape, dtype) for entry, block, shape, dtype in planned}


def _blocks(sizes_bytes: list[int]) -> list[Any]:
    """Arrays of bytes that follow each other, each at the beginning of a cache line."""
    from_dlpack = load_tvm().nd.from_dlpack
    ends = np.cumsum([math.ceil(size / _LINE) * _LINE for size in sizes_bytes]).tolist()
    memory = mmap.mmap(-1, (ends[-1] if ends else 0) + _LARGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # a system without large pages
        memory.madvise(mmap.MADV_HUGEPAGE)
    everything = np.frombuffer(memory, dtype=np.uint8)
    everything = everything[-everything.ctypes.data % _LARGE_PAGE :]
    return [from_dlpack(everything[start : start + size]) for start, size in zip([0, *ends], sizes_bytes)]
