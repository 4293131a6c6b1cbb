"""Networks that nothing of the predictor was chosen by: each is a family that no zoo of the project has.

    PYTHONPATH=collector op-profiler collect --modelsource file --modelname unseen_networks:unet --schedules none

They are collected to look at a predictor's errors once, at the end (``benchmarks/held_out_models.py --final``). Once a
choice was made by their errors they say nothing any more: ``drawn_networks`` has others. Weights are random.
"""

from __future__ import annotations

import torch
from torch import nn

_Network = tuple[nn.Module, tuple[torch.Tensor, ...]]


def unet() -> _Network:
    """Down and up again over skipped connections (Ronneberger et al., 2015), 16 to 256 channels at 160 x 160."""
    return _UNet([16, 32, 64, 128, 256]).eval(), (torch.randn(1, 3, 160, 160),)


def mlp_mixer() -> _Network:
    """Dense layers over patches and over channels in turn (Tolstikhin et al., 2021): 8 blocks of 196 x 256."""
    blocks = [_Mixer(tokens=196, width=256) for _ in range(8)]
    stem = nn.Sequential(nn.Conv2d(3, 256, 16, 16), nn.Flatten(2), _Transposed())
    return nn.Sequential(stem, *blocks, nn.LayerNorm(256), _Mean(1), nn.Linear(256, 1000)).eval(), (_image(),)


def convmixer() -> _Network:
    """Depthwise 9 x 9 and pointwise convolutions on patches (Trockman and Kolter, 2022): 6 blocks of 256 channels."""
    blocks: list[nn.Module] = [nn.Conv2d(3, 256, 7, 7), nn.GELU(), nn.BatchNorm2d(256)]
    for _ in range(6):
        apart = nn.Sequential(nn.Conv2d(256, 256, 9, groups=256, padding=4), nn.GELU(), nn.BatchNorm2d(256))
        blocks += [_Residual(apart), nn.Conv2d(256, 256, 1), nn.GELU(), nn.BatchNorm2d(256)]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 1000)]
    return nn.Sequential(*blocks, *head).eval(), (_image(),)


def ghostnet() -> _Network:
    """Half of the channels from cheap depthwise convolutions (Han et al., 2020), four stages."""
    layers: list[nn.Module] = [nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU()]
    for narrow, wide, stride in ((16, 24, 2), (24, 40, 2), (40, 112, 2), (112, 160, 2)):
        layers += [_Ghost(narrow, wide), nn.MaxPool2d(stride), _Ghost(wide, 3 * wide), _Ghost(3 * wide, wide)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(160, 1000)).eval(), (_image(),)


def repvgg() -> _Network:
    """Plain 3 x 3 convolutions, of widths that are no powers of two (Ding et al., 2021), as A0."""
    layers: list[nn.Module] = []
    widths = [3, 48, 48, 48, 96, 96, 96, 192, *[192] * 6, 1280]
    strides = [2, 2, 1, 2, 1, 1, 2, *[1] * 6, 2]
    for narrow, wide, stride in zip(widths, widths[1:], strides):
        layers += [nn.Conv2d(narrow, wide, 3, stride, 1), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1280, 1000)).eval(), (_image(),)


def edsr() -> _Network:
    """Super-resolution without normalization (Lim et al., 2017): 8 blocks of 64 channels at 48 x 48, twice as large."""
    body = [
        _Residual(nn.Sequential(nn.Conv2d(64, 64, 3, 1, 1), nn.ReLU(), nn.Conv2d(64, 64, 3, 1, 1))) for _ in range(8)
    ]
    last = [nn.Conv2d(64, 256, 3, 1, 1), nn.PixelShuffle(2), nn.Conv2d(64, 3, 3, 1, 1)]
    return nn.Sequential(nn.Conv2d(3, 64, 3, 1, 1), *body, *last).eval(), (torch.randn(1, 3, 48, 48),)


def tcn() -> _Network:
    """Dilated convolutions over a series of 512 steps (Bai et al., 2018): 7 blocks of 64 channels."""
    layers: list[nn.Module] = [nn.Conv1d(16, 64, 1)]
    for level in range(7):
        spread = 2**level
        dilated = nn.Conv1d(64, 64, 3, padding=spread, dilation=spread)
        layers.append(_Residual(nn.Sequential(dilated, nn.ReLU(), nn.Conv1d(64, 64, 1))))
    return nn.Sequential(*layers, _Mean(2), nn.Linear(64, 10)).eval(), (torch.randn(1, 16, 512),)


def _image() -> torch.Tensor:
    return torch.randn(1, 3, 224, 224)


class _Transposed(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.transpose(1, 2)


class _Mean(nn.Module):
    def __init__(self, axis: int) -> None:
        super().__init__()
        self.axis = axis

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean(self.axis)


class _Residual(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.inner(x)


class _Mixer(nn.Module):
    def __init__(self, tokens: int, width: int) -> None:
        super().__init__()
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.over_tokens = nn.Sequential(nn.Linear(tokens, 2 * tokens), nn.GELU(), nn.Linear(2 * tokens, tokens))
        self.over_width = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.over_tokens(self.before(x).transpose(1, 2)).transpose(1, 2)
        return x + self.over_width(self.after(x))


class _Ghost(nn.Module):
    def __init__(self, narrow: int, wide: int) -> None:
        super().__init__()
        half = wide // 2
        self.dear = nn.Sequential(nn.Conv2d(narrow, half, 1), nn.ReLU())
        self.cheap = nn.Sequential(nn.Conv2d(half, half, 3, padding=1, groups=half), nn.ReLU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.dear(x)
        return torch.cat([x, self.cheap(x)], 1)


class _UNet(nn.Module):
    def __init__(self, widths: list[int]) -> None:
        super().__init__()
        pairs = list(zip(widths, widths[1:]))
        self.first = _twice(3, widths[0])
        self.down = nn.ModuleList(nn.Sequential(nn.MaxPool2d(2), _twice(a, b)) for a, b in pairs)
        self.up = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, 2) for a, b in reversed(pairs))
        self.merge = nn.ModuleList(_twice(2 * a, a) for a, _ in reversed(pairs))
        self.last = nn.Conv2d(widths[0], 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        levels = [self.first(x)]
        for down in self.down:
            levels.append(down(levels[-1]))
        x = levels.pop()
        for up, merge in zip(self.up, self.merge):
            x = merge(torch.cat([levels.pop(), up(x)], 1))
        return self.last(x)


def _twice(narrow: int, wide: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(narrow, wide, 3, 1, 1), nn.ReLU(), nn.Conv2d(wide, wide, 3, 1, 1), nn.ReLU())
