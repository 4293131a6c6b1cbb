"""`KernelGraph`: the kernels of one or several models and their data dependences, for planning."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from op_profiler.operators.operator import Operator


@dataclasses.dataclass(frozen=True)
class GraphNode:
    """One call of a kernel.

    Attributes:
        index: number of the node in the `KernelGraph`; plans refer to nodes by this number.
        model: number of the model that makes the call, from 0.
        name: the compiler's name of the kernel.
        operator: the operator that the kernel computes.
        inputs: numbers of the nodes whose output the kernel reads, each once, in ascending order; all are smaller than
            `index`.
        rows: how the kernel's parallel loops are cut by rows; see `cut_by_rows`.
    """

    index: int
    model: int
    name: str
    operator: Operator
    inputs: tuple[int, ...]
    rows: tuple[tuple[int, int], ...] = ()


@dataclasses.dataclass(frozen=True)
class KernelGraph:
    """Kernels in execution order, model after model.

    Attributes:
        models: names of the models.
        nodes: `nodes[i].index` is i.
    """

    models: tuple[str, ...]
    nodes: tuple[GraphNode, ...]

    def __len__(self) -> int:
        return len(self.nodes)

    @functools.cached_property
    def successors(self) -> tuple[tuple[int, ...], ...]:
        """Return for each node the numbers of the nodes that read its output."""
        found: list[list[int]] = [[] for _ in self.nodes]
        for node in self.nodes:
            for source in node.inputs:
                found[source].append(node.index)
        return tuple(tuple(readers) for readers in found)

    def slice_of(self, model: int) -> slice:
        """Return the range of the numbers of a model's nodes."""
        numbers = [node.index for node in self.nodes if node.model == model]
        return slice(numbers[0], numbers[-1] + 1) if numbers else slice(0)

    @property
    def digest(self) -> str:
        """Return a digest (16 hex digits) of the operators and the edges, without names.

        It is equal for two builds of the same models.
        """
        identity = json.dumps([[n.model, n.operator.key, n.inputs] for n in self.nodes])
        return hashlib.sha256(identity.encode()).hexdigest()[:16]
