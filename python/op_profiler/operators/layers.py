"""The layers of the user's model that operators belong to: modules of torch, nodes of ONNX, tensors of TFLite.

A layer is named by its path in the model, such as ``encoder.layer.3.output`` or ``/layer1/layer1.0/conv1/Conv``.
"""

from __future__ import annotations

from collections.abc import Sequence

CallLayers = Sequence[Sequence[str]]
"""For each call of an operator in a model, in the order of its positions, the layers that it computes: that of the
anchor first, the others in the order of execution; empty if they are unknown.
"""


def by_operator(keys: Sequence[str], layers: Sequence[Sequence[str]]) -> dict[str, CallLayers]:
    """Return, by workload key, the layers (or locations) of each call of an operator; an operator whose layers are
    unknown in all calls is left out.

    Args:
        keys: workload key of each call of a model, in the order of the calls.
        layers: layers (or locations) of each call.
    """
    found: dict[str, list[Sequence[str]]] = {}
    for key, names in zip(keys, layers, strict=True):
        found.setdefault(key, []).append(names)
    return {key: calls for key, calls in found.items() if any(calls)}


def shortened(layer: str, depth: int) -> str:
    """Return the first `depth` parts of a layer's path.

    >>> shortened("encoder.layer.3.output", 3), shortened("/layer1/layer1.0/conv1/Conv", 1)
    ('encoder.layer.3', '/layer1')
    """
    separator = "/" if "/" in layer else "."
    start = separator if layer.startswith(separator) else ""
    return start + separator.join(layer.removeprefix(start).split(separator)[:depth])
