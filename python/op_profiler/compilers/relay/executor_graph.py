"""The graph that TVM's graph executor runs: which of its nodes are kernels, and who reads whose output."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from op_profiler.compilers.compiled_model import KernelCall

Entry = tuple[int, int]
"""A tensor of the graph: node and output."""


def computes(node: dict[str, Any]) -> bool:
    """Whether a node of a graph executor's graph is the call of a kernel; inputs and reshapes are none."""
    return node["op"] == "tvm_op" and node.get("attrs", {}).get("func_name", "__nop") != "__nop"


def kernel_calls(graph: dict[str, Any]) -> Iterator[KernelCall]:
    """Every call of a kernel in a graph executor's graph, in execution order; nodes that compute nothing (reshapes) are
    seen through."""
    producers: dict[int, set[int]] = {}
    count = 0
    for index, node in enumerate(graph["nodes"]):
        inputs = set().union(*(producers.get(source, set()) for source, *_ in node["inputs"]))
        if computes(node):
            name = node["attrs"]["func_name"]
            yield KernelCall(name, str(node["attrs"].get("hash", name)), tuple(sorted(inputs)))
            inputs = {count}
            count += 1
        producers[index] = inputs
