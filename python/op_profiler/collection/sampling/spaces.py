"""Random points of the requested kinds, and the share of each kind."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from op_profiler.collection.sampling.descriptions import DESCRIPTIONS
from op_profiler.collection.sampling.mixtures import MIXTURES, USUAL
from op_profiler.errors import UnknownNameError
from op_profiler.operators.kinds import draws
from op_profiler.operators.kinds.point import Point

ALL = "all"
"""In place of names: every kind that has a share, half of them the usual ones."""
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
"""Operations at most of kinds that attain a tenth of what others do, and of any where all are drawn: in the time of one
that takes half a second fifty others are measured."""
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
"""How often each is among all kinds, which the usual ones make up half of. A kind without a share is drawn where it is
named alone: what a seed of all kinds draws stays, until the points of calibrations are chosen anew."""
_DRAWS = draws() | MIXTURES
_SHARES = {name: share / 2 for name, share in USUAL.items()} | _WHERE_NAMED
_SHARES |= {name: 0.0 for name in _DRAWS if name not in _SHARES}
_SHARE_WHERE_NAMED = 0.05
"""Of each kind that is not usual beside the usual ones that are named with it."""


def space_names() -> list[str]:
    """What `draw` can be restricted to."""
    return [*_SHARES, ALL]


def described_names() -> dict[str, str]:
    """What each of `space_names` draws; empty for a kind that nobody described."""
    others = ", ".join(name for name, share in _SHARES.items() if not share)
    of_all = f"all of these but {others}; half of the operators are of the usual kinds"
    return {name: DESCRIPTIONS.get(name, "") for name in _SHARES} | {ALL: of_all}


def checked_names(names: Sequence[str]) -> tuple[str, ...]:
    """The kinds that names stand for; those of none the usual ones.

    Raises:
        UnknownNameError: no such kind.
    """
    for name in names:
        if name not in space_names():
            raise UnknownNameError("kind of operator", name, space_names())
    return tuple(_SHARES if ALL in names else names or USUAL)


def draw(rng: random.Random, names: Sequence[str] = ()) -> Iterator[Point]:
    """Points without end, each within the limits of this module on work and memory.

    Args:
        names: of `space_names`; empty for the usual ones. These are drawn in the proportions in which they
            matter to networks. What a seed draws stays as it is: kinds are added to those that have to be named.

    Raises:
        UnknownNameError: no such space.
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
