"""Random points of the kinds that are asked for, by their names."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from op_profiler.collection.sampling.named_points import WHERE_NAMED
from op_profiler.collection.sampling.point import Point
from op_profiler.collection.sampling.usual_points import USUAL
from op_profiler.errors import UnknownNameError

ALL = "all"
"""In place of names: every kind but `conv1d`, half of them the usual ones."""
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
}
"""Operations at most of kinds that attain a tenth of what others do, and of any where all are drawn: in the time of one
that takes half a second fifty others are measured."""
_LARGEST_ELEMENTS = 2.5e7
_SMALLEST_ELEMENTS = 64.0
_DRAWS = USUAL | WHERE_NAMED
_SHARE_WHERE_NAMED = 0.05
"""Of each kind of `WHERE_NAMED` beside the usual ones that are named with it."""


def space_names() -> list[str]:
    """What `draw` can be restricted to."""
    return [*_DRAWS, ALL]


def usual_names() -> list[str]:
    """What `draw` draws where it is not restricted."""
    return list(USUAL)


def checked_names(names: Sequence[str]) -> tuple[str, ...]:
    """The kinds that names stand for; those of none the usual ones.

    Raises:
        UnknownNameError: no such kind.
    """
    for name in names:
        if name not in space_names():
            raise UnknownNameError("kind of operator", name, space_names())
    return tuple(_DRAWS if ALL in names else names or USUAL)


def draw(rng: random.Random, names: Sequence[str] = ()) -> Iterator[Point]:
    """Points without end, each within the limits of this module on work and memory.

    Args:
        names: of `space_names`; empty for the usual ones. These are drawn in the proportions in which they
            matter to networks. What a seed draws stays as it is: kinds are added to those that have to be named.

    Raises:
        UnknownNameError: no such space.
    """
    chosen = checked_names(names)
    if ALL in names:
        weights = [share / 2 if name in USUAL else share for name, (share, _) in _DRAWS.items()]
    else:
        weights = [USUAL[name][0] if name in USUAL else _SHARE_WHERE_NAMED for name in chosen]
    while True:
        name = rng.choices(chosen, weights)[0]
        point = _DRAWS[name][1](rng)
        operations, elements = point.work()
        largest = _SLOWER.get(name, _LARGEST_OF_ALL if ALL in names else _LARGEST_OPERATIONS)
        if operations <= largest and _SMALLEST_ELEMENTS <= elements <= _LARGEST_ELEMENTS:
            yield point
