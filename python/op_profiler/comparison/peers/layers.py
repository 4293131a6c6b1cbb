"""Assigns the times of the nodes of another runtime to the layers of this project's build."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence

from op_profiler.comparison.peers.result import PeerLayer
from op_profiler.frontends.importers.torch_layers import WRAPPED


@dataclasses.dataclass(frozen=True)
class OurLayers:
    """Kernels of this project's build, by the layer of their anchor.

    Attributes:
        times_us: time of each layer in microseconds, in the order of execution.
        operators: workload keys of the kernels of each layer.
        members: for each layer of the model, the layer to which its time is assigned; a kernel may compute several
            layers.
    """

    times_us: Mapping[str, float]
    operators: Mapping[str, tuple[str, ...]]
    members: Mapping[str, str]

    @classmethod
    def of(cls, kernels: Iterable[tuple[tuple[str, ...], str, float]]) -> OurLayers:
        """Return the times and members of layers.

        Args:
            kernels: of each kernel, its layers (that of the anchor first), the workload key of its operator, and its
                microseconds.
        """
        times: dict[str, float] = {}
        operators: dict[str, tuple[str, ...]] = {}
        members: dict[str, str] = {}
        for layers, key, us in kernels:
            name = layers[0] if layers else ""
            times[name] = times.get(name, 0.0) + us
            operators[name] = tuple(dict.fromkeys((*operators.get(name, ()), key)))
            for one in layers[1:]:
                members.setdefault(one, name)
        members |= {name: name for name in times}
        return cls(times, operators, members)

    def layer_of(self, node: str) -> str | None:
        """Return the layer to which the time of another runtime's node is assigned; None if no layer matches.

        Args:
            node: name of the node, which may be a path of scopes, such as ``/features/features.0/Conv``.
        """
        if node in self.members:
            return self.members[node]
        path = module_of(node)
        while path:
            if path in self.members:
                return self.members[path]
            path = path.rpartition(".")[0]
        return None


def module_of(node: str) -> str:
    """Return the path of the module in the name of a node: ``features.3.squeeze`` for
    ``/features/features.3/squeeze/Conv``.

    If the name of a scope begins with the name of the scope before it, such as ``features.3`` after ``features``, the
    scope before it is left out.
    """
    parts = re.sub(r"^[^/]*(?=/)", "", node).split("/")[1:-1]
    path, before = "", ""
    for part in (part for part in parts if part != WRAPPED):
        inside = before and part.startswith(f"{before}.")
        path = f"{path}{part[len(before) :]}" if inside else f"{path}.{part}".lstrip(".")
        before = part
    return path


def by_layer(ours: OurLayers, nodes: Sequence[tuple[str, float]], whole_us: float) -> tuple[dict[str, float], float]:
    """Return the time of each layer in another runtime, and the summed time of its nodes without a layer, microseconds.

    All times are scaled so that their sum is `whole_us`.

    Args:
        nodes: name and microseconds of each node, by the runtime's profiler.
        whole_us: time of the model without the profiler, microseconds.
    """
    total = sum(us for _, us in nodes) or 1.0
    found, elsewhere = dict.fromkeys(ours.times_us, 0.0), 0.0
    for name, us in nodes:
        layer = ours.layer_of(name)
        if layer is None:
            elsewhere += us * whole_us / total
        else:
            found[layer] += us * whole_us / total
    return found, elsewhere


def layer_times(ours: OurLayers, peers: Mapping[str, Mapping[str, float]], best: str) -> tuple[PeerLayer, ...]:
    """Return the times of layers in all runtimes; layers whose loss against the runtime `best` is largest come first.

    Args:
        ours: layers of this project's build.
        peers: microseconds by layer (`by_layer`), by the name of the runtime.
        best: name of the runtime that losses are relative to.
    """
    rows = [
        PeerLayer(
            layer=layer,
            operators=ours.operators[layer],
            ours_us=us,
            peers_us={name: times[layer] or None for name, times in peers.items()},
            lost_us=us - peers[best][layer] if peers[best][layer] else None,
        )
        for layer, us in ours.times_us.items()
    ]
    return tuple(sorted(rows, key=lambda row: -(row.lost_us or 0.0)))
