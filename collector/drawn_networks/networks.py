"""From a seed to a network within bounds of cost. Imports torch."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from . import classifiers, maps, series, tokens
from .draw import Draw, Network
from .seeds import WEIGHTS, family_of

FLOPS = (5e6, 20e9)
"""Least and most of a network, of convolutions and products: at most about 30 s to measure."""
MOST_BYTES = 3e9

_FAMILIES = {
    name: next(getattr(module, name) for module in (classifiers, maps, series, tokens) if hasattr(module, name))
    for name in WEIGHTS
}


@dataclasses.dataclass(frozen=True)
class Cost:
    """What running a network once takes.

    Attributes:
        flops: of convolutions and products.
        bytes: three copies of its weights, which importing makes, and all that its operators write: an upper bound.
    """

    flops: int
    bytes: int

    def bounded(self) -> bool:
        """Whether it is within `FLOPS` and `MOST_BYTES`."""
        return FLOPS[0] <= self.flops <= FLOPS[1] and self.bytes <= MOST_BYTES


def network(seed: int) -> Network:
    """The network of a seed: a torch module in evaluation mode, with torch's random weights, and its example inputs."""
    family = family_of(seed)
    return _FAMILIES[family](Draw(seed, _attempt(family, seed)))


def cost_of(seed: int) -> Cost:
    """Of the network of a seed, without making its weights."""
    family = family_of(seed)
    return _cost(family, seed, _attempt(family, seed))


@functools.cache
def _attempt(family: str, seed: int) -> int:
    """The first draw of a seed whose cost is within bounds."""
    return next(attempt for attempt in itertools.count(1) if _cost(family, seed, attempt).bounded())


@functools.cache
def _cost(family: str, seed: int, attempt: int) -> Cost:
    with torch.device("meta"), torch.no_grad():
        model, inputs = _FAMILIES[family](Draw(seed, attempt))
        with FlopCounterMode(display=False) as flops, _Written() as written:
            model(*inputs)
    weights = sum(tensor.nbytes for tensor in model.state_dict().values())
    return Cost(flops.get_total_flops(), 3 * weights + written.bytes)


class _Written(TorchDispatchMode):
    """Counts the bytes of all results."""

    bytes = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        for each in result if isinstance(result, (tuple, list)) else (result,):
            self.bytes += each.nbytes if isinstance(each, torch.Tensor) else 0
        return result
