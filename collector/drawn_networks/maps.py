"""Families of networks that return images or maps: U-shaped, super-resolution, detection, segmentation, generation."""

from __future__ import annotations

import itertools

import torch
from torch import nn

from .draw import Apply, Branches, Draw, Network, Residual, Style, tapering


def unet(draw: Draw) -> Network:
    """Down and up again over skipped connections (Ronneberger et al., 2015)."""
    style = Style.of(draw)
    stages = draw.size(2, 4)
    return _UShaped(draw, style, tapering(draw, draw.width(8, 40), stages)).eval(), (draw.image(64, 320),)


def super_resolution(draw: Draw) -> Network:
    """Residual blocks at one size, then pixels from channels (ESPCN, EDSR)."""
    style = Style(draw.one((nn.ReLU, nn.LeakyReLU, nn.Tanh)), normalized=False)
    width, factor, stacked = draw.width(16, 72), draw.one((2, 3, 4)), draw.chance(0.6)
    layers: list[nn.Module] = [style.conv(3, width, draw.one((3, 5, 9)))]
    for _ in range(draw.size(2, 8)):
        inner = nn.Sequential(style.conv(width, width), style.conv(width, width, active=False))
        layers.append(Residual(inner) if stacked else style.conv(width, width))
    if factor == 4:
        layers += [style.conv(width, 4 * width, active=False), nn.PixelShuffle(2)]
        factor = 2
    last = [style.conv(width, 3 * factor**2, active=False), nn.PixelShuffle(factor)]
    return nn.Sequential(*layers, *last).eval(), (draw.image(32, 160, 8),)


def detector(draw: Draw) -> Network:
    """A backbone, a pyramid of its last maps, and heads that all levels share or not (SSD, RetinaNet, BlazeFace)."""
    style = Style.of(draw)
    widths = tapering(draw, draw.width(12, 48), draw.size(3, 5))
    return _Detector(draw, style, widths).eval(), (draw.image(96, 416),)


def segmenter(draw: Draw) -> Network:
    """A backbone, convolutions with gaps beside each other, and bilinear resizing (DeepLab, LR-ASPP)."""
    style = Style.of(draw)
    widths, apart = tapering(draw, draw.width(16, 48), draw.size(3, 4)), draw.chance(0.5)
    layers: list[nn.Module] = [style.conv(3, widths[0], 3, 2)]
    for narrow, wide in itertools.pairwise(widths):
        groups = narrow if apart else 1
        layers += [style.conv(narrow, narrow, 3, 2, groups=groups), style.conv(narrow, wide, 1), style.conv(wide, wide)]
    width = draw.width(16, 96)
    branches = [style.conv(widths[-1], width, 1)]
    branches += [style.conv(widths[-1], width, 3, dilation=dilation) for dilation in draw.one(((2,), (2, 4), (3, 6)))]
    wide = width * len(branches)
    head = [style.conv(wide, width, 1), nn.Conv2d(width, draw.size(2, 32), 1)]
    larger = nn.Upsample(scale_factor=2 ** draw.size(1, len(widths)), mode="bilinear")
    return nn.Sequential(*layers, Branches(*branches), *head, larger).eval(), (draw.image(64, 384),)


def generator(draw: Draw) -> Network:
    """Transposed convolutions from a vector to an image (DCGAN)."""
    style = Style.of(draw)
    widths = tapering(draw, draw.width(16, 56), draw.size(3, 5))[::-1]
    latent, first = draw.size(32, 256), draw.one((3, 4, 5, 6))
    layers: list[nn.Module] = [nn.Linear(latent, widths[0] * first**2), nn.Unflatten(1, (widths[0], first, first))]
    kernel = draw.one((2, 4))
    for wide, narrow in zip(widths, [*widths[1:], 3], strict=True):
        layers.append(nn.ConvTranspose2d(wide, narrow, kernel, 2, (kernel - 2) // 2))
        layers += [nn.BatchNorm2d(narrow)] if style.normalized and narrow != 3 else []
        layers.append(style.activation() if narrow != 3 else nn.Tanh())
    return nn.Sequential(*layers).eval(), (torch.randn(draw.batch(), latent),)


class _UShaped(nn.Module):
    def __init__(self, draw: Draw, style: Style, widths: list[int]) -> None:
        super().__init__()
        pairs = list(itertools.pairwise(widths))
        kernels = draw.one(((3, 3), (3, 3), (5, 3), (3,)))

        def block(narrow: int, wide: int) -> nn.Sequential:
            return nn.Sequential(*(style.conv(wide if n else narrow, wide, k) for n, k in enumerate(kernels)))

        def upward(wide: int, narrow: int) -> nn.Module:
            if transposed:
                return nn.ConvTranspose2d(wide, narrow, 2, 2)
            return nn.Sequential(nn.Upsample(scale_factor=2.0), nn.Conv2d(wide, narrow, 3, padding=1))

        transposed = draw.chance(0.5)
        self.first = block(3, widths[0])
        self.down = nn.ModuleList(nn.Sequential(nn.MaxPool2d(2), block(a, b)) for a, b in pairs)
        self.up = nn.ModuleList(upward(b, a) for a, b in reversed(pairs))
        self.merge = nn.ModuleList(block(2 * a, a) for a, _ in reversed(pairs))
        self.last = nn.Conv2d(widths[0], draw.size(1, 24), 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        levels = [self.first(x)]
        for down in self.down:
            levels.append(down(levels[-1]))
        x = levels.pop()
        for up, merge in zip(self.up, self.merge, strict=True):
            x = merge(torch.cat([levels.pop(), up(x)], 1))
        return self.last(x)


class _Detector(nn.Module):
    """Scores and boxes of all places of all levels: shape (batch, classes + 4, places)."""

    def __init__(self, draw: Draw, style: Style, widths: list[int]) -> None:
        super().__init__()
        apart, kernel, depth = draw.chance(0.6), draw.one((3, 3, 5)), draw.size(1, 3)
        levels, width, classes = draw.size(2, min(3, len(widths))), draw.width(16, 96), draw.size(2, 90)

        def layer(narrow: int, wide: int, stride: int) -> nn.Module:
            if not apart:
                return style.conv(narrow, wide, kernel, stride)
            first = style.conv(narrow, narrow, kernel, stride, groups=narrow)
            return nn.Sequential(first, style.conv(narrow, wide, 1))

        def head(outputs: int) -> nn.Sequential:
            return nn.Sequential(layer(width, width, 1), nn.Conv2d(width, outputs, 3, padding=1))

        self.stem = style.conv(3, widths[0], 3, 2)
        self.stages = nn.ModuleList(
            nn.Sequential(layer(narrow, wide, 2), *(Residual(layer(wide, wide, 1)) for _ in range(depth)))
            for narrow, wide in zip([widths[0], *widths], widths, strict=False)
        )
        self.side = nn.ModuleList(nn.Conv2d(wide, width, 1) for wide in widths[-levels:])
        self.larger = Apply(_twice) if draw.chance(0.6) else None
        heads = [(head(classes), head(4)) for _ in range(1 if draw.chance(0.5) else levels)]
        self.heads = nn.ModuleList(nn.ModuleList(pair) for pair in heads)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x, maps = self.stem(x), []
        for stage in self.stages:
            x = stage(x)
            maps.append(x)
        maps = [side(level) for side, level in zip(self.side, maps[-len(self.side) :], strict=True)]
        if self.larger is not None:
            for n in reversed(range(len(maps) - 1)):
                rows, columns = maps[n].shape[2:]
                maps[n] = maps[n] + self.larger(maps[n + 1])[:, :, :rows, :columns]
        found = []
        for n, level in enumerate(maps):
            scores, boxes = self.heads[n % len(self.heads)]
            found.append(torch.cat([scores(level).sigmoid(), boxes(level)], 1).flatten(2))
        return torch.cat(found, 2)


def _twice(x: torch.Tensor) -> torch.Tensor:
    return nn.functional.interpolate(x, scale_factor=2.0, mode="nearest")
