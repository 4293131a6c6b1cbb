"""Families of networks: by name without sizes, and by the layers that take most of their time."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Mapping, Sequence

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


def families_in(parts: Sequence[Examples]) -> dict[str, str]:
    """Return the family of each model, by its name.

    Networks with the same `named_family` are in one family. Two networks are also in one family if one of them spends
    most of its time in layers that the other one has: TVM's mobilenet and transformers' mobilenet_v1 are the same
    network. Operators that were sampled from a network are in its family.

    Args:
        parts: measurements of one device each.
    """
    families = {name: named_family(name) for part in parts for name in part.models}
    spent_us = _spent_us(parts)
    for one, other in itertools.permutations(sorted(spent_us), 2):
        first, second = sorted((families[one], families[other]))
        if first != second and _share(spent_us[one], spent_us[other]) > _MOST:
            families = {name: first if family == second else family for name, family in families.items()}
    return families


def named_family(name: str) -> str:
    """Return the family of a network by its name: without the sizes at the end of the name, but with its version.

    ``vit_b_16`` and ``vit_l_16`` are vit; ``mobilenet_v3_small`` and ``_large`` are mobilenet_v3. A batch of operators
    that were sampled from a network belongs to its family; every other batch is a family.
    """
    drawn = _OF_MODEL.fullmatch(name)
    parts = re.split(r"[-_.]", (drawn[1] if drawn else name).rsplit("/", 1)[-1].lower())
    if re.match(r"draw\d", name):
        return name
    while len(parts) > 1 and _SIZE.fullmatch(parts[-1]):
        parts.pop()
    return "_".join(parts) if _VERSION.fullmatch(parts[-1]) else "_".join(parts).rstrip("0123456789")


def _spent_us(parts: Sequence[Examples]) -> dict[str, Counter[str]]:
    """Return the time of each network in each of its layers, in microseconds, summed over all runs."""
    found: dict[str, Counter[str]] = {}
    for part in parts:
        times_us = part.latency_us * part.occurrences
        inside = np.flatnonzero(~part.sampled[part.model])
        layers = {at: _layer(part.operators[at]) for at in np.unique(part.operator[inside])}
        for row in inside:
            of_network = found.setdefault(part.models[part.model[row]], Counter())
            of_network[layers[part.operator[row]]] += times_us[row]
    return found


def _layer(operator: Operator) -> str:
    """Return the signature of a layer without fused operators: anchor, attributes, and first input and weight."""
    names = operator.op_names
    attrs = operator.attrs[names.index(operator.anchor)] if operator.anchor in names else {}
    weight = (operator.params or operator.inputs[1:])[:1]
    return signature(operator.anchor, attrs, (*operator.inputs[:1], *weight))


def _share(of: Mapping[str, float], others: Mapping[str, float]) -> float:
    """Return the share of its time that a network spends in layers that another one has."""
    return sum(us for layer, us in of.items() if layer in others) / sum(of.values())
