"""Networks without end that nobody chose by: a seed is a network of a random family and random sizes.

    PYTHONPATH=collector op-profiler collect --modelsource file --modelname drawn_networks:residual_3 --schedules none
    PYTHONPATH=collector python -m drawn_networks 0 60                    prints names of seeds, ``--help`` the rest
    collector/drawn_plan.sh FOLDER 0 60                                   measures them

A name is a family and a seed; only the family that the seed is of has it (`seeds.name_of`). The structure depends on
the seed alone, not on the process nor on torch's random numbers. Weights are random. Datasets have networks by these
names, so what a seed draws stays as it is: another grammar is another package beside this one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

from .seeds import MODULE, name_of, seed_of

if TYPE_CHECKING:
    from .draw import Network


def __getattr__(name: str) -> Callable[[], Network]:
    """The function of a name: what ``--modelname drawn_networks:NAME`` calls."""
    seed = seed_of(f"{MODULE}:{name}")
    if seed is None or name_of(seed) != f"{MODULE}:{name}":
        right = "" if seed is None else f"; the network of seed {seed} is {name_of(seed)}"
        raise AttributeError(f"module {__name__!r} has no network {name!r}{right}")
    from .networks import network

    return functools.partial(network, seed)
