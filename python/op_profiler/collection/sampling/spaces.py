"""Draws random points (sampled shapes of operators) of the requested kinds, in defined shares."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from op_profiler.collection.sampling.descriptions import DESCRIPTIONS
from op_profiler.collection.sampling.mixtures import MIXTURES, USUAL
from op_profiler.errors import check_known
from op_profiler.operators.kinds import draws
from op_profiler.operators.kinds.point import Point

ALL = "all"
"""Name that stands for all kinds that have a share; half of the drawn operators are of the default kinds."""
_LARGEST_OPERATIONS = 3e9
_LARGEST_OF_ALL = 1e9
_SLOWER = {
    "conv2d_nhwc": 3e8,
    "powers_of_two": 6e8,
    "odd_rows": 6e8,
    "attention": 6e8,
    "float16": 5e8,
    "attention_einsum": 3e8,
    "reduced_attention": 6e8,
    "large_windows": 1e8,
    "resize": 1e8,
    "long_conv1d": 4e8,
    "few_channels": 4e8,
    "few_outputs": 4e8,
    "functions": 3e6,
}
"""Largest number of operations for kinds that reach only a tenth of the usual rate. One operator that takes half a
second would take the time of fifty other operators."""
_LARGEST_ELEMENTS = 2.5e7
_SMALLEST_ELEMENTS = 64.0
_WHERE_NAMED = {
    "conv2d_dilated": 0.03,
    "conv2d_grouped": 0.03,
    "conv2d_nhwc": 0.05,
    "conv3d": 0.02,
    "powers_of_two": 0.05,
    "large_weights": 0.02,
    "odd_rows": 0.05,
    "run_time_weights": 0.03,
    "attention": 0.05,
    "reduction": 0.03,
    "decoder_step": 0.04,
    "transformer": 0.03,
    "gates": 0.01,
    "lrn": 0.01,
    "activation": 0.01,
    "conv2d_wide_groups": 0.01,
    "float16": 0.04,
    "int8": 0.06,
    "relayout": 0.01,
    "rearranged": 0.015,
    "broadcast": 0.02,
    "joined_slices": 0.005,
    "unpadded_pool2d": 0.01,
    "attention_einsum": 0.005,
    "strided_weights": 0.005,
    "turned_heads": 0.005,
    "image_norm": 0.005,
    "layer_scale": 0.005,
    "turned_positions": 0.005,
    "reduced_attention": 0.005,
    "gated_dense": 0.005,
}
"""Shares of the other kinds if all kinds are drawn; the default kinds have the other half. A kind without a share is
drawn only if it is named, so that the draws of a seed do not change until the points of calibrations are chosen again.
"""
_DRAWS = draws() | MIXTURES
_SHARES = {name: share / 2 for name, share in USUAL.items()} | _WHERE_NAMED
_SHARES |= {name: 0.0 for name in _DRAWS if name not in _SHARES}
_SHARE_WHERE_NAMED = 0.05
"""Share of each named kind that is not a default kind, relative to the shares of the named default kinds."""


def space_names() -> list[str]:
    """Return the names of kinds that can be given to `draw`, including `ALL`."""
    return [*_SHARES, ALL]


def described_names() -> dict[str, str]:
    """Return the descriptions of `space_names` by name; an empty description if a kind has none."""
    others = ", ".join(name for name, share in _SHARES.items() if not share)
    of_all = f"all of these but {others}; half of the operators are of the usual kinds"
    return {name: DESCRIPTIONS.get(name, "") for name in _SHARES} | {ALL: of_all}


def checked_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return the kinds that the given names stand for; without names, the default kinds.

    Raises:
        UnknownNameError: a name is not one of `space_names`.
    """
    for name in names:
        check_known("kind of operator", name, space_names())
    return tuple(_SHARES if ALL in names else names or USUAL)


def draw(rng: random.Random, names: Sequence[str] = ()) -> Iterator[Point]:
    """Yield random points (sampled shapes) without end, within the limits of this module on work and tensor sizes.

    Args:
        names: names of `space_names`; empty for the default kinds, which are drawn in the proportions of networks. So
            that the draws of a seed never change, kinds that were added later are drawn only if they are named.

    Raises:
        UnknownNameError: a name is not one of `space_names`.
    """
    chosen = checked_names(names)
    weights = list(_SHARES.values()) if ALL in names else [USUAL.get(name, _SHARE_WHERE_NAMED) for name in chosen]
    while True:
        name = rng.choices(chosen, weights)[0]
        point = _DRAWS[name](rng)
        operations, elements = point.work()
        largest = _SLOWER.get(name, _LARGEST_OF_ALL if ALL in names else _LARGEST_OPERATIONS)
        if operations <= largest and _SMALLEST_ELEMENTS <= elements <= _LARGEST_ELEMENTS:
            yield point
