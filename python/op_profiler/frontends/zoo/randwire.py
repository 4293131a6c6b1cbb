"""Randomly wired networks: many branches of the same cost, on which plans for parallel operators are tested.

Xie et al., "Exploring Randomly Wired Neural Networks for Image Recognition", ICCV 2019: stages whose nodes are wired by
the model of Watts and Strogatz (Nature 393, 1998), each edge directed from the smaller number to the larger. A node
adds up its inputs and applies ReLU and a separable 3x3 convolution; the mean over the nodes that no other node reads
ends a stage.
"""

from __future__ import annotations

import functools
import math
import re
from typing import Any

from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.compilers.tvm_types import DeviceArray

PREFIX = "randwire-"
IMAGE = (3, 224, 224)
_NODES, _NEIGHBOURS, _REWIRED = 16, 4, 0.75  # WS(K=4, P=0.75) is the paper's best; it has 32 nodes
_CHANNELS = (64, 128, 256)


def seed_of(name: str) -> int | None:
    """Return the seed in ``randwire-SEED``; None for other names."""
    found = re.fullmatch(rf"{PREFIX}(\d{{1,9}})", name, re.ASCII)
    return int(found[1]) if found is not None else None


def randwire(seed: int, shape: tuple[int, ...]) -> tuple[Any, dict[str, Any]]:
    """Return Relay module and parameters of the network with a seed.

    Args:
        shape: shape of the input ``data``: batch, channels, height, width.
    """
    builder = _NetworkBuilder(seed)
    relay = builder.relay
    x = relay.var("data", shape=shape)
    channels = shape[1]
    entry = x
    for stage, width in enumerate(_CHANNELS):
        x = relay.nn.relu(builder.conv(x, channels, width // 2 if stage == 0 else width, stride=2))
        channels = width // 2 if stage == 0 else width
        x, channels = builder.stage(x, channels, width), width
    x = relay.nn.batch_flatten(relay.nn.global_avg_pool2d(relay.nn.relu(x)))
    x = relay.nn.softmax(relay.nn.dense(x, builder.weight((1000, channels))))
    tvm = load_tvm()
    function = relay.Function([entry, *builder.variables], x)
    return relay.transform.InferType()(tvm.IRModule.from_expr(function)), builder.params


class _NetworkBuilder:
    """Creates weights and edges from one stream of random numbers."""

    def __init__(self, seed: int) -> None:
        import numpy as np  # names are asked for by those who need nothing heavy

        self.tvm = load_tvm()
        self.relay = self.tvm.relay
        self.random = np.random.default_rng(seed)
        self.variables: list[Any] = []
        self.params: dict[str, DeviceArray] = {}

    def weight(self, shape: tuple[int, ...]) -> Any:
        name = f"weight{len(self.variables)}"
        scale = 1 / math.sqrt(math.prod(shape[1:]))
        self.params[name] = self.tvm.nd.array((self.random.standard_normal(shape) * scale).astype("float32"))
        self.variables.append(self.relay.var(name, shape=shape))
        return self.variables[-1]

    def conv(self, x: Any, channels: int, out: int, *, size: int = 3, stride: int = 1, depthwise: bool = False) -> Any:
        weight = self.weight((out, 1 if depthwise else channels, size, size))
        return self.relay.nn.conv2d(
            x,
            weight,
            strides=(stride, stride),
            padding=(size // 2, size // 2),
            groups=channels if depthwise else 1,
            channels=out,
            kernel_size=(size, size),
        )

    def stage(self, x: Any, channels: int, out: int) -> Any:
        """Return a stage; nodes without predecessors read its input."""
        relay = self.relay
        sources: list[list[int]] = [[] for _ in range(_NODES)]
        for low, high in self._edges():
            sources[high].append(low)
        values: list[Any] = []
        read: set[int] = set()
        for node in range(_NODES):
            inputs = [values[source] for source in sources[node]] or [x]
            read.update(sources[node])
            width = out if sources[node] else channels
            total = functools.reduce(relay.add, inputs)
            spread = self.conv(relay.nn.relu(total), width, width, depthwise=True)
            values.append(self.conv(spread, width, out, size=1))
        ends = [values[node] for node in range(_NODES) if node not in read]
        return relay.multiply(functools.reduce(relay.add, ends), relay.const(1.0 / len(ends)))

    def _edges(self) -> list[tuple[int, int]]:
        """Return a ring in which each node is connected to its nearest ones, with randomly moved ends."""
        edges: set[tuple[int, int]] = set()
        for step in range(1, _NEIGHBOURS // 2 + 1):
            for node in range(_NODES):
                other = (node + step) % _NODES
                if self.random.random() < _REWIRED:
                    free = [n for n in range(_NODES) if n != node and tuple(sorted((n, node))) not in edges]
                    other = int(self.random.choice(free))
                edges.add((min(node, other), max(node, other)))
        return sorted(edges)
