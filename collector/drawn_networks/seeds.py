"""Names of drawn networks: which family a seed is of, and what its errors may be used for. Imports no torch."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

import numpy as np

MODULE = "drawn_networks"
DEVELOPMENT, CALIBRATION, TEST = "development", "calibration", "test"
KINDS = (DEVELOPMENT, CALIBRATION, TEST)
"""A seed is of the kind at its remainder by three. Errors of development seeds may be looked at, calibration seeds set
widths of intervals, and test seeds give figures, once (``benchmarks/network_sets_common.py``)."""

WEIGHTS = {
    "plain": 4,
    "residual": 7,
    "inverted_residual": 6,
    "squeeze_excitation": 6,
    "densely_connected": 3,
    "multi_branch": 5,
    "shuffled": 3,
    "large_kernel": 6,
    "unet": 3,
    "super_resolution": 3,
    "detector": 3,
    "segmenter": 3,
    "generator": 2,
    "mixer": 5,
    "gated_mlp": 4,
    "vision_transformer": 8,
    "encoder": 13,
    "decoder": 8,
    "temporal": 2,
    "waveform": 2,
    "point_cloud": 2,
    "video": 2,
    "recommender": 4,
    "recurrent": 3,
}
"""Relative frequency of each family, chosen so that the shares of kinds of operators are similar to those of the
included networks (``python -m drawn_networks FROM TO --describe`` prints both)."""

_NAME = re.compile(rf"{MODULE}:[a-z_]+_(\d+)")


def family_of(seed: int) -> str:
    """The family of a seed: a key of `WEIGHTS`."""
    bounds = itertools.accumulate(WEIGHTS.values())
    drawn = np.random.default_rng(seed).random() * sum(WEIGHTS.values())
    return next(family for family, bound in zip(WEIGHTS, bounds, strict=True) if drawn < bound)


def kind_of_seed(seed: int) -> str:
    """One of `KINDS`."""
    return KINDS[seed % len(KINDS)]


def name_of(seed: int) -> str:
    """The name of a seed's network for ``--modelsource file``, such as ``drawn_networks:residual_17``."""
    return f"{MODULE}:{family_of(seed)}_{seed}"


def seed_of(name: str) -> int | None:
    """The seed in the name of a drawn network, of whatever family it was when it was measured; None for other names."""
    match = _NAME.fullmatch(name)
    return int(match[1]) if match else None


def names(first: int, last: int, kinds: tuple[str, ...] = KINDS) -> Iterator[str]:
    """Names of the seeds of some kinds from `first` to `last`, without `last`."""
    return (name_of(seed) for seed in range(first, last) if kind_of_seed(seed) in kinds)
