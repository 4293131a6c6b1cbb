"""What the families share: random choices, bounds of cost, and layers."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
import torch
from torch import nn

Network = tuple[nn.Module, tuple[torch.Tensor, ...]]
"""A module and its example inputs."""
_Choice = TypeVar("_Choice")
_CONVOLUTIONS = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
_NORMS = {1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}
_MEANS = {1: nn.AdaptiveAvgPool1d, 2: nn.AdaptiveAvgPool2d, 3: nn.AdaptiveAvgPool3d}
_ACTIVATIONS = (nn.ReLU, nn.ReLU, nn.ReLU, nn.SiLU, nn.Hardswish, nn.GELU, nn.LeakyReLU, nn.ReLU6)


class Draw:
    """Random choices of one network.

    Only `numpy.random.Generator.random` is used: numpy may change the other methods from version to version.
    """

    def __init__(self, *seed: int) -> None:
        self._generator = np.random.default_rng(seed)

    def chance(self, probability: float) -> bool:
        """True with this probability."""
        return bool(self._generator.random() < probability)

    def one(self, choices: Sequence[_Choice]) -> _Choice:
        """One of `choices`, each as likely."""
        return choices[int(self._generator.random() * len(choices))]

    def size(self, low: int, high: int, step: int = 1) -> int:
        """A multiple of `step` between `low` and `high`; its logarithm is uniform."""
        value = low * (high / low) ** self._generator.random()
        return max(low, round(value / step) * step)

    def width(self, low: int, high: int) -> int:
        """A number of channels: of eight, of four, of two, or odd."""
        return self.size(low, high, self.one((8, 8, 8, 4, 4, 2, 1)))

    def batch(self) -> int:
        """1 in three of five networks, up to 64 in the others."""
        return 1 if self.chance(0.6) else self.size(2, 64)

    def image(self, low: int = 32, high: int = 512, multiple: int = 32) -> torch.Tensor:
        """A batch of square images: shape (batch, 3, size, size)."""
        size = self.size(low, high, multiple)
        return torch.randn(self.batch(), 3, size, size)


@dataclasses.dataclass(frozen=True)
class Style:
    """What the layers of one network have in common.

    Attributes:
        activation: behind each convolution.
        normalized: whether batch normalization stands between the two.
        dimensions: of space, 1 to 3.
    """

    activation: Callable[[], nn.Module]
    normalized: bool
    dimensions: int = 2

    @classmethod
    def of(cls, draw: Draw, dimensions: int = 2) -> Style:
        """A random one."""
        return cls(draw.one(_ACTIVATIONS), draw.chance(0.8), dimensions)

    def conv(
        self,
        narrow: int,
        wide: int,
        kernel: int = 3,
        stride: int = 1,
        *,
        groups: int = 1,
        dilation: int = 1,
        active: bool = True,
    ) -> nn.Sequential:
        """A convolution from `narrow` to `wide` channels, padded, with what follows it."""
        padding = dilation * (kernel - 1) // 2
        bias = not self.normalized
        layer = _CONVOLUTIONS[self.dimensions]
        layers: list[nn.Module] = [layer(narrow, wide, kernel, stride, padding, dilation, groups, bias)]
        layers += [_NORMS[self.dimensions](wide)] if self.normalized else []
        return nn.Sequential(*layers, *([self.activation()] if active else []))

    def classifier(self, width: int, classes: int) -> nn.Sequential:
        """Mean over space and a dense layer."""
        return nn.Sequential(_MEANS[self.dimensions](1), nn.Flatten(), nn.Linear(width, classes))


class Residual(nn.Module):
    """``around(x) + inner(x)``, and what comes behind the sum."""

    def __init__(self, inner: nn.Module, around: nn.Module | None = None, behind: nn.Module | None = None) -> None:
        super().__init__()
        self.inner, self.around, self.behind = inner, around or nn.Identity(), behind or nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.behind(self.around(x) + self.inner(x))


class Branches(nn.Module):
    """Several modules of one input, concatenated along the channels."""

    def __init__(self, *branches: nn.Module) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([branch(x) for branch in self.branches], 1)


class Apply(nn.Module):
    """A function of tensors as a module."""

    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


def tapering(draw: Draw, first: int, stages: int) -> list[int]:
    """Widths of stages, each 1.2 to 2.2 times as wide as the one before."""
    growth = [1.2 + 0.1 * draw.size(1, 10) for _ in range(stages - 1)]
    step = draw.one((8, 8, 4, 2))
    return [first, *(step * math.ceil(first * math.prod(growth[: n + 1]) / step) for n in range(stages - 1))]
