"""Parses the JSON graph of TVM's graph executor: its kernels in order, and their tensors."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from op_profiler.compilers.compiled_model import KernelCall, PlannedTensor

Graph = dict[str, Any]


def _computes(node: dict[str, Any]) -> bool:
    """Return whether a node is the call of a kernel; inputs and reshapes are not."""
    return node["op"] == "tvm_op" and node.get("attrs", {}).get("func_name", "__nop") != "__nop"


def _count(node: dict[str, Any]) -> int:
    """Return the number of tensors that a node outputs."""
    return int(node.get("attrs", {}).get("num_outputs", 1))


def _first_tensors(graph: Graph) -> list[int]:
    """Return the number of each node's first tensor."""
    return list(itertools.accumulate(map(_count, graph["nodes"]), initial=0))


def kernel_calls(graph: Graph) -> Iterator[KernelCall]:
    """Return every kernel call in execution order; nodes that compute nothing (reshapes) are skipped."""
    first = _first_tensors(graph)
    producers: dict[int, set[int]] = {}
    count = 0
    for index, node in enumerate(graph["nodes"]):
        inputs = set().union(*(producers.get(source, set()) for source, *_ in node["inputs"]))
        if _computes(node):
            attrs = node["attrs"]
            reads = tuple(first[source] + output for source, output, *_ in node["inputs"])
            writes = tuple(range(first[index], first[index + 1]))
            name = attrs["func_name"]
            yield KernelCall(name, str(attrs.get("hash", name)), tuple(sorted(inputs)), reads, writes)
            inputs = {count}
            count += 1
        producers[index] = inputs


def planned_tensors(graph: Graph) -> tuple[PlannedTensor, ...]:
    """Return every tensor, in the order of the graph's storage plan."""
    first = _first_tensors(graph)
    shapes, dtypes = graph["attrs"]["shape"][1], graph["attrs"]["dltype"][1]
    found: list[PlannedTensor] = []
    for index, node in enumerate(graph["nodes"]):
        given = str(node["name"]) if node["op"] == "null" else ""
        view_of = None
        if not given and not _computes(node):
            source, output, *_ = node["inputs"][0]
            view_of = first[source] + output
        for number in range(first[index], first[index + 1]):
            found.append(PlannedTensor(tuple(map(int, shapes[number])), str(dtypes[number]), given, view_of))
    return tuple(found)


def outputs(graph: Graph) -> tuple[int, ...]:
    """Return the numbers of the graph's output tensors."""
    first = _first_tensors(graph)
    return tuple(first[node] + output for node, output, *_ in graph["heads"])


def expose_every_tensor(graph: Graph) -> None:
    """Declare every tensor an output, so that the executor gives access to its own buffers by number.

    The storage plan is an attribute of the graph and does not change: tensors that share memory still share it.
    """
    graph["heads"] = [[index, output, 0] for index, node in enumerate(graph["nodes"]) for output in range(_count(node))]
