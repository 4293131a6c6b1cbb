"""Operators that are slow for one known reason: `explain` has to name it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True)
class Kernel:
    """One kernel of a model that is made here.

    Attributes:
        schedule, arguments: as TVM builds them; the last argument is the output.
        flops, moved: of one call; bytes of what it really reads, and writes.
        op_names: that it claims to be.
        parts: iterations of its parallel loop; None where it has none.
    """

    schedule: Any
    arguments: Sequence[Any]
    flops: int
    moved: tuple[int, int]
    op_names: tuple[str, ...] = ("planted",)
    parts: int | None = None


Make = Callable[[Any, int, int], list[Kernel]]
"""From ``tvm.te``, the lanes of a vector and the thread count."""


@dataclasses.dataclass(frozen=True)
class Planted:
    """A cause, and kernels: the first one suffers from it, others only disturb it."""

    name: str
    cause: str
    kernels: Make


def product(
    te: Any,
    lanes: int,
    *,
    rows: int,
    blocks: int,
    depth: int,
    tile: int = 6,
    vectors: int = 2,
    vectorize: bool = True,
    parallel: bool = True,
    stride: int | None = None,
    guarded: bool = False,
) -> Kernel:
    """A product of a matrix with a packed one, ``rows`` by ``blocks * vectors * lanes``.

    Args:
        tile, vectors: accumulators are so many rows by so many vectors.
        stride: floats between two rows of the packed matrix; None: as packed.
        guarded: the inner loop asks whether it is inside.
    """
    width = vectors * lanes
    left = te.placeholder((rows, depth), name="left")
    shape = (blocks, depth, width) if stride is None else (depth, stride)
    right = te.placeholder(shape, name="right")
    k = te.reduce_axis((0, depth), name="k")

    def value(y: Any, block: Any, x: Any) -> Any:
        from tvm import tir

        found = right[block, k, x] if stride is None else right[k, block * width + x]
        read = (
            tir.if_then_else(tir.all(y + k >= 3, y + k < rows + depth - 3), left[y, k], 0.0) if guarded else left[y, k]
        )
        if guarded:
            found = tir.if_then_else(tir.all(x + k >= 1, x + k < width + depth - 2), found, 0.0)
        return te.sum(read * found, axis=k)

    output = te.compute((blocks, rows, width), lambda block, y, x: value(y, block, x), name="output")
    schedule = te.create_schedule(output.op)
    registers = schedule.cache_write(output, "local")
    block, y, x = schedule[output].op.axis
    outer, inner = schedule[output].split(y, tile)
    schedule[output].reorder(block, outer, inner, x)
    if parallel:
        schedule[output].parallel(block)
    schedule[registers].compute_at(schedule[output], outer)
    _, y, x = schedule[registers].op.axis
    x_outer, x_inner = schedule[registers].split(x, lanes)
    if vectorize:
        schedule[registers].reorder(schedule[registers].op.reduce_axis[0], y, x_outer, x_inner)
        schedule[registers].vectorize(x_inner)
        schedule[registers].unroll(y)
        schedule[registers].unroll(x_outer)
        schedule[output].vectorize(schedule[output].split(schedule[output].op.axis[2], lanes)[1])
    else:
        schedule[registers].reorder(y, x_outer, x_inner, schedule[registers].op.reduce_axis[0])
    read = 4 * (rows * depth + blocks * depth * width)
    flops = 2 * rows * depth * blocks * width
    return Kernel(
        schedule, [left, right, output], flops, (read, 4 * rows * blocks * width), parts=blocks if parallel else None
    )


def moving(te: Any, lanes: int, *, relu: bool) -> Kernel:
    """A layout transform of 4 MB, or a relu of as much."""
    channels, size = 16 * lanes, 4096 // lanes * 16
    data = te.placeholder((channels, size), name="data")
    if relu:
        from tvm import tir

        zero = tir.const(0.0, "float32")
        output = te.compute((channels, size), lambda c, x: te.max(data[c, x], zero), name="output")
    else:
        shape = (channels // lanes, size, lanes)
        output = te.compute(shape, lambda c, x, lane: data[c * lanes + lane, x], name="output")
    schedule = te.create_schedule(output.op)
    schedule[output].parallel(schedule[output].op.axis[0])
    if relu:
        schedule[output].vectorize(schedule[output].split(schedule[output].op.axis[1], lanes)[1])
    moved = 4 * channels * size
    parts = channels if relu else channels // lanes
    names = ("nn.relu",) if relu else ("layout_transform",)
    return Kernel(schedule, [data, output], moved // 4 if relu else 0, (moved, moved), names, parts)


def vector_times(te: Any, lanes: int, *, megabytes: float, threads: int) -> Kernel:
    """A vector times a packed matrix of so many megabytes: every weight is used once."""
    depth = 1024
    blocks = max(int(megabytes * (1 << 20)) // (4 * depth * 8 * lanes) // threads, 1) * threads
    return product(te, lanes, rows=1, blocks=blocks, depth=depth, tile=1, vectors=8)


def one(**options: Any) -> Make:
    """One product of 96 rows and a depth of 256; ``blocks`` counts by thread."""

    def make(te: Any, lanes: int, threads: int) -> list[Kernel]:
        asked = {"rows": 96, "depth": 256, "blocks": 8} | options
        return [product(te, lanes, **asked | {"blocks": asked["blocks"] * threads})]

    return make


def vectors(*megabytes: float) -> Make:
    """One product with so many megabytes of weights after the other, each used once."""
    return lambda te, lanes, threads: [vector_times(te, lanes, megabytes=size, threads=threads) for size in megabytes]


CAUSES = (
    Planted("tile of 1", "register tile", one(tile=1, vectors=1)),
    Planted("no vectorize", "vectorization", one(blocks=4, vectorize=False)),
    Planted("guarded scalars", "vectorization", one(blocks=2, vectorize=False, guarded=True)),
    Planted("no parallel axis", "serial", one(parallel=False)),
    Planted("power-of-two stride", "stride", one(rows=12, depth=512, stride=1 << 15)),
    Planted("weights larger than the cache", "memory", vectors(64)),
    Planted("a neighbour that evicts its weights", "memory", vectors(1, 16)),
    Planted("layout transform", "layout", lambda te, lanes, threads: [moving(te, lanes, relu=False)]),
    Planted("relu alone", "fusion", lambda te, lanes, threads: [moving(te, lanes, relu=True)]),
    Planted("threads for a tiny operator", "thread overhead", one(rows=6, depth=32, blocks=1)),
    Planted("spilling tile", "spills", one(blocks=4, tile=24)),
    Planted(
        "one part too many", "imbalance", lambda te, v, n: [product(te, v, rows=96, blocks=n + 1, depth=512, vectors=4)]
    ),
)


def built_of(kernels: Sequence[Kernel], target: Any) -> tuple[Any, dict[str, np.ndarray]]:
    """A built model that calls the kernels one after the other, and its inputs."""
    import tvm

    from op_profiler.compilers import executor_graph
    from op_profiler.compilers.compiled_model import BuiltModel, CompiledModel, Occurrence
    from op_profiler.compilers.relay.compiled_files import Library
    from op_profiler.operators.operator import Operator, TensorSpec

    module = tvm.IRModule()
    nodes: list[dict[str, Any]] = []
    shapes: list[tuple[int, ...]] = []
    by_label, loops, inputs = {}, {}, {}
    heads = []
    rng = np.random.default_rng(0)
    for number, kernel in enumerate(kernels):
        name = f"kernel{number}"
        module.update(tvm.lower(kernel.schedule, list(kernel.arguments), name=name))
        *read, written = [tuple(int(size) for size in tensor.shape) for tensor in kernel.arguments]
        first = len(nodes)
        for place, shape in enumerate(read):
            inputs[f"x{number}_{place}"] = rng.standard_normal(shape).astype("float32")
            nodes.append({"op": "null", "name": f"x{number}_{place}", "inputs": []})
        attrs = {"func_name": name, "num_inputs": str(len(read)), "num_outputs": "1", "flatten_data": "0"}
        nodes.append(
            {"op": "tvm_op", "name": name, "attrs": attrs, "inputs": [[first + i, 0, 0] for i in range(len(read))]}
        )
        shapes += [*read, written]
        heads.append([len(nodes) - 1, 0, 0])
        specs = [TensorSpec(shape, "float32") for shape in (*read, written)]
        operator = Operator(
            name=name,
            anchor=kernel.op_names[0],
            op_names=kernel.op_names,
            inputs=tuple(specs[:-1]),
            params=(),
            outputs=tuple(specs[-1:]),
            attrs=({"planted": number},),
            layouts={},
            structure="",
            flops=kernel.flops,
            bytes_read=kernel.moved[0],
            bytes_written=kernel.moved[1],
        )
        by_label[name] = Occurrence(operator, name, None, (), "")
        if kernel.parts is not None:
            loops[name] = [kernel.parts]
    plan = {
        "dltype": ["list_str", ["float32"] * len(shapes)],
        "shape": ["list_shape", [list(shape) for shape in shapes]],
        "storage_id": ["list_int", list(range(len(shapes)))],
    }
    graph = {
        "nodes": nodes,
        "arg_nodes": [i for i, node in enumerate(nodes) if node["op"] == "null"],
        "heads": heads,
        "node_row_ptr": list(range(len(nodes) + 1)),
        "attrs": plan,
    }
    library = Library(json.dumps(graph), tvm.build(module, target=target), {})
    compiled = CompiledModel(
        library,
        tuple(by_label.values()),
        by_label,
        0.0,
        "graph",
        calls=tuple(executor_graph.kernel_calls(graph)),
        tensors=executor_graph.planned_tensors(graph),
        outputs=executor_graph.outputs(graph),
        loops=loops,
    )
    return BuiltModel(compiled, {}, frozenset()), inputs
