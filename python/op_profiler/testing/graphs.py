"""Synthetic graphs and costs for tests of policies; nothing is compiled."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from op_profiler.operators.operator import Operator
from op_profiler.parallel.planning.costs import Costs
from op_profiler.parallel.planning.graph import GraphNode, KernelGraph


def operator(name: str) -> Operator:
    """Return a ReLU without tensors, named `name`."""
    return Operator(name, "nn.relu", ("nn.relu",), (), (), (), ({},), {}, name, flops=1, bytes_read=4, bytes_written=4)


def graph_of(inputs: Sequence[tuple[int, ...]], models: Sequence[int] | None = None) -> KernelGraph:
    """Return a graph with one node for each tuple of input nodes; `models`: number of each node's model (default 0)."""
    models = models or [0] * len(inputs)
    nodes = tuple(
        GraphNode(index, model, f"kernel_{index}", operator(f"kernel_{index}"), sources)
        for index, (model, sources) in enumerate(zip(models, inputs))
    )
    return KernelGraph(tuple(f"model {number}" for number in range(max(models) + 1)), nodes)


def chain(length: int) -> KernelGraph:
    """Return a chain: each operator reads the output of the operator before it."""
    return graph_of([(i - 1,) if i else () for i in range(length)])


def chains(count: int, length: int) -> KernelGraph:
    """Return `count` models, each a chain of `length` operators."""
    inputs = [(i - 1,) if i % length else () for i in range(count * length)]
    return graph_of(inputs, [i // length for i in range(count * length)])


def diamond() -> KernelGraph:
    """Return two branches of one operator each, between a first and a last operator."""
    return graph_of([(), (0,), (0,), (1, 2)])


def inception(modules: int) -> KernelGraph:
    """Return modules of four branches with 1, 2, 3 and 2 operators, joined by a concatenation."""
    inputs: list[tuple[int, ...]] = [()]
    for _ in range(modules):
        root, ends = len(inputs) - 1, []
        for length in (1, 2, 3, 2):
            for step in range(length):
                inputs.append((root if step == 0 else len(inputs) - 1,))
            ends.append(len(inputs) - 1)
        inputs.append(tuple(ends))
    return graph_of(inputs)


def layered(nodes: int, seed: int, width: int = 4) -> KernelGraph:
    """Return random layers of up to `width` operators, each of which reads 1 to 3 operators of the last two layers."""
    rng = np.random.default_rng(seed)
    inputs: list[tuple[int, ...]] = []
    layers: list[list[int]] = []
    while len(inputs) < nodes:
        layer = list(range(len(inputs), min(nodes, len(inputs) + int(rng.integers(1, width + 1)))))
        known = [node for earlier in layers[-2:] for node in earlier]
        for _ in layer:
            count = min(len(known), int(rng.integers(1, 4)))
            inputs.append(tuple(sorted(int(i) for i in rng.choice(known, count, replace=False))) if count else ())
        layers.append(layer)
    return graph_of(inputs)


def random_costs(graph: KernelGraph, seed: int, *, threads: tuple[int, ...] = (1, 2), **others: float) -> Costs:
    """Return costs: latencies between 5 and 500 us at one thread, lower at more threads by Amdahl's law with random
    serial shares. `others`: further fields of `Costs`."""
    rng = np.random.default_rng(seed)
    alone = np.exp(rng.uniform(np.log(5), np.log(500), len(graph)))
    serial = rng.uniform(0, 1, len(graph))
    return Costs({count: alone * (serial + (1 - serial) / count) for count in threads}, **others)


def equal_costs(graph: KernelGraph, by_threads: dict[int, float], **others: float) -> Costs:
    """Return costs with the same latency for each node, given by thread count. `others`: further fields of `Costs`."""
    return Costs({count: np.full(len(graph), latency) for count, latency in by_threads.items()}, **others)


def randwire(nodes: int, seed: int, stage: int = 32) -> KernelGraph:
    """Return the wiring of RandWire (Xie et al. 2019): stages that are Watts-Strogatz graphs with K = 4 and P = 0.75.

    Edges lead from lower to higher numbers. Nodes without a source read the last node of the stage before.
    """
    rng = np.random.default_rng(seed)
    inputs: list[tuple[int, ...]] = []
    while len(inputs) < nodes:
        first, size = len(inputs), min(stage, nodes - len(inputs))
        sources: list[set[int]] = [set() for _ in range(size)]
        for node in range(size):
            for distance in (1, 2):
                other = int(rng.integers(size)) if rng.random() < 0.75 else (node + distance) % size
                if other != node:
                    sources[max(node, other)].add(first + min(node, other))
        read: set[int] = set().union(*sources)
        last = first + size - 1
        sources[-1] |= {node for node in range(first, last) if node not in read}
        inputs += [tuple(sorted(one)) if one else ((first - 1,) if first else ()) for one in sources]
    return graph_of(inputs)
