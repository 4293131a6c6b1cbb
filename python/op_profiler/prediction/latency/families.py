"""Families of networks: by name without sizes, and by the layers that take most of their time."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Sequence

import numpy as np

from op_profiler.operators.describe import signature
from op_profiler.operators.operator import Operator
from op_profiler.prediction.latency.examples import Examples

_OF_MODEL = re.compile(r"of-(.+?)-b\d+(-[\dx_]+)?(-s\d+)?(-apart)?-[0-9a-f]{12}(-[0-9a-f]{16})?")
"""Names of batches of a model's operators from `op_profiler.collection.sampling.batch`: model, batch size, shapes of
inputs, sequence length, hash of the content, hash of the schedule records."""
_VERSION = re.compile(r"v\d+")
_SIZE = re.compile(r"(?!v\d)[a-z]?\d+[a-z\d]*|[a-z]|tiny|mini|small|medium|base|large|huge")
_MOST = 0.5
"""Two networks are in one family if one spends more than this share of its time in layers that the other one has."""
_ALIKE = 1.05
"""Layers with a larger ratio of any two corresponding sizes are different: deit has one token more than vit."""


def families_in(parts: Sequence[Examples]) -> dict[str, str]:
    """Return the family of each model, by its name.

    Networks with the same `named_family` are in one family. Two networks are also in one family if one of them spends
    most of its time in layers that the other one has, with sizes that differ by 5 % at most: TVM's mobilenet and
    transformers' mobilenet_v1 are the same network, and deit is vit with 198 tokens in place of 197. Operators that
    were sampled from a network are in its family.

    Args:
        parts: measurements of one device each.
    """
    families = {name: named_family(name) for part in parts for name in part.models}
    names, share = _shared(parts)
    for one, other in itertools.permutations(range(len(names)), 2):
        first, second = sorted((families[names[one]], families[names[other]]))
        if first != second and share[one, other] > _MOST:
            families = {name: first if family == second else family for name, family in families.items()}
    return families


def named_family(name: str) -> str:
    """Return the family of a network by its name: without the sizes at the end of the name, but with its version.

    ``vit_b_16`` and ``vit_l_16`` are vit; ``mobilenet_v3_small`` and ``_large`` are mobilenet_v3. A batch of operators
    that were sampled from a network belongs to the family of the network; every other batch is a separate family.
    """
    drawn = _OF_MODEL.fullmatch(name)
    parts = re.split(r"[-_.]", (drawn[1] if drawn else name).rsplit("/", 1)[-1].lower())
    if re.match(r"draw\d", name):
        return name
    while len(parts) > 1 and _SIZE.fullmatch(parts[-1]):
        parts.pop()
    return "_".join(parts) if _VERSION.fullmatch(parts[-1]) else "_".join(parts).rstrip("0123456789")


@dataclasses.dataclass(frozen=True)
class _Layer:
    """A layer without fused operators: anchor, attributes, and first input and weight, with their sizes apart."""

    kind: str
    sizes: tuple[int, ...]

    @classmethod
    def of(cls, operator: Operator) -> _Layer:
        names = operator.op_names
        attrs = operator.attrs[names.index(operator.anchor)] if operator.anchor in names else {}
        tensors = (*operator.inputs[:1], *(operator.params or operator.inputs[1:])[:1])
        ranks = [dataclasses.replace(tensor, shape=(1,) * len(tensor.shape)) for tensor in tensors]
        sizes = tuple(size for tensor in tensors for size in tensor.shape)
        return cls(signature(operator.anchor, attrs, ranks), sizes)


def _shared(parts: Sequence[Examples]) -> tuple[list[str], np.ndarray]:
    """Return the names of all networks, and the share of its time that each spends in layers that each other one has,
    shape (networks, networks)."""
    numbers: dict[str, int] = {}
    layers: dict[_Layer, int] = {}
    entries = []
    for part in parts:
        inside = np.flatnonzero(~part.sampled[part.model])
        of_operator = {at: _Layer.of(part.operators[at]) for at in np.unique(part.operator[inside])}
        for row in inside:
            network = numbers.setdefault(part.models[part.model[row]], len(numbers))
            layer = layers.setdefault(of_operator[part.operator[row]], len(layers))
            entries.append((network, layer, part.latency_us[row] * part.occurrences[row]))
    spent = np.zeros((len(numbers), len(layers)))
    for network, layer, time_us in entries:
        spent[network, layer] += time_us
    has = np.zeros(spent.shape, dtype=bool)
    kinds: dict[str, list[int]] = {}
    for each, number in layers.items():
        kinds.setdefault(each.kind, []).append(number)
    sizes = [np.log(np.maximum(each.sizes, 1)) for each in layers]
    for same in kinds.values():
        logs = np.stack([sizes[number] for number in same])
        alike = (np.abs(logs[:, None] - logs[None]) <= np.log(_ALIKE)).all(axis=2)
        has[:, same] = (spent[:, same] > 0) @ alike
    return list(numbers), spent / spent.sum(axis=1, keepdims=True) @ has.T
