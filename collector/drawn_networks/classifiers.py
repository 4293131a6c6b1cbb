"""Families of networks that classify images: stages of one kind of block."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from .draw import Apply, Branches, Draw, Network, Residual, Style, tapering

_Block = Callable[[int, int, int], nn.Module]
"""From narrow to wide channels with a stride."""


def plain(draw: Draw) -> Network:
    """Convolutions one after the other (VGG, RepVGG, Darknet)."""
    style = Style.of(draw)
    kernels = draw.one(((3,), (3,), (3, 1), (5, 3)))
    pooled = draw.chance(0.5)

    def block(narrow: int, wide: int, stride: int) -> nn.Module:
        layers = [style.conv(narrow, wide, kernels[0], 1 if pooled else stride)]
        layers += [style.conv(wide, wide, kernel) for kernel in kernels[1:]]
        return nn.Sequential(*layers, *([nn.MaxPool2d(2)] if pooled and stride > 1 else []))

    return _staged(draw, style, block, (16, 72), deepest=3)


def residual(draw: Draw) -> Network:
    """Basic blocks or bottlenecks around a shortcut, some with grouped convolutions (ResNet, ResNeXt, RegNet)."""
    style = Style.of(draw)
    basic = draw.chance(0.3)
    group_width = draw.one((0, 4, 8, 16))

    def block(narrow: int, wide: int, stride: int) -> nn.Module:
        inner = max(8, wide // 4) if not group_width else wide
        groups = inner // group_width if group_width and inner % group_width == 0 else 1
        if basic:
            layers = [style.conv(narrow, wide, 3, stride), style.conv(wide, wide, 3, active=False)]
        else:
            middle = style.conv(inner, inner, 3, stride, groups=groups)
            layers = [style.conv(narrow, inner, 1), middle, style.conv(inner, wide, 1, active=False)]
        around = None if narrow == wide and stride == 1 else style.conv(narrow, wide, 1, stride, active=False)
        return Residual(nn.Sequential(*layers), around, style.activation())

    return _staged(draw, style, block, (16, 96) if basic or group_width else (48, 256), deepest=4)


def inverted_residual(draw: Draw) -> Network:
    """Wide depthwise convolutions between narrow sums (MobileNetV2, MNASNet), or depthwise blocks without expansion."""
    return _inverted(draw, gate=0)


def squeeze_excitation(draw: Draw) -> Network:
    """The same, with channels scaled by what their means tell (MobileNetV3, EfficientNet)."""
    return _inverted(draw, gate=draw.one((4, 8, 16)))


def densely_connected(draw: Draw) -> Network:
    """Each layer reads all layers of its stage (DenseNet)."""
    style = Style.of(draw)
    growth, neck = draw.width(12, 48), draw.one((0, 2, 4))

    def grown(width: int) -> nn.Module:
        inner = neck * growth
        layers = [style.conv(width, inner, 1), style.conv(inner, growth, 3)] if neck else [style.conv(width, growth, 3)]
        return Branches(nn.Identity(), nn.Sequential(*layers))

    image, width = draw.image(32, 288), draw.width(16, 64)
    layers = [style.conv(3, width, draw.one((3, 7)), 2), nn.MaxPool2d(3, 2, 1)]
    for _ in range(draw.size(2, 4)):
        depth = draw.size(3, 10)
        layers += [grown(width + n * growth) for n in range(depth)]
        halved = (width + depth * growth) // 2
        layers += [style.conv(width + depth * growth, halved, 1), nn.AvgPool2d(2, ceil_mode=True)]
        width = halved
    return nn.Sequential(*layers, style.classifier(width, draw.size(10, 1000))).eval(), (image,)


def multi_branch(draw: Draw) -> Network:
    """Convolutions of several sizes beside each other (GoogLeNet, Inception, SqueezeNet)."""
    style = Style.of(draw)
    kernels = draw.one(((1, 3), (1, 3, 5), (1, 3, 3), (3, 5), (1, 3, 7)))
    pooled, apart = draw.chance(0.6), draw.chance(0.3)

    def block(narrow: int, wide: int, stride: int) -> nn.Module:
        share = max(4, wide // (len(kernels) + pooled))
        widths = [wide - share * (len(kernels) + pooled - 1), *[share] * (len(kernels) - 1)]
        branches: list[nn.Module] = []
        for kernel, width in zip(kernels, widths, strict=True):
            inner = max(4, width // 2)
            layers = [style.conv(inner, width, kernel, stride)]
            if apart and kernel > 3:
                layers = [style.conv(inner, inner, 3), style.conv(inner, width, 3, stride)]
            branches.append(nn.Sequential(style.conv(narrow, inner, 1), *layers))
        if pooled:
            branches.append(nn.Sequential(nn.MaxPool2d(3, stride, 1), style.conv(narrow, share, 1)))
        return Branches(*branches)

    return _staged(draw, style, block, (48, 160), deepest=3)


def shuffled(draw: Draw) -> Network:
    """Half of the channels stay, then channels of both halves alternate (ShuffleNetV2)."""
    style = Style.of(draw)
    kernel = draw.one((3, 3, 5))

    def side(narrow: int, wide: int, stride: int) -> nn.Module:
        middle = style.conv(wide, wide, kernel, stride, groups=wide, active=False)
        return nn.Sequential(style.conv(narrow, wide, 1), middle, style.conv(wide, wide, 1))

    def block(narrow: int, wide: int, stride: int) -> nn.Module:
        if narrow == wide and stride == 1 and wide % 2 == 0:
            return nn.Sequential(_HalfKept(side(wide // 2, wide // 2, 1)), _Alternating())
        kept = style.conv(narrow, narrow, kernel, stride, groups=narrow, active=False)
        first = nn.Sequential(kept, style.conv(narrow, wide // 2, 1))
        return Branches(first, side(narrow, wide - wide // 2, stride))

    return _staged(draw, style, block, (16, 64), deepest=5)


def large_kernel(draw: Draw) -> Network:
    """Large depthwise convolutions, and dense layers over the channels of each pixel (ConvNeXt, ConvMixer)."""
    style = Style(nn.GELU, normalized=True)
    kernel, factor, over_pixels = draw.one((5, 7, 7, 9)), draw.one((2, 3, 4)), draw.chance(0.6)

    def block(narrow: int, wide: int, stride: int) -> nn.Module:
        down = [nn.Conv2d(narrow, wide, stride, stride)] if narrow != wide or stride > 1 else []
        if over_pixels:
            dense = [nn.LayerNorm(wide), nn.Linear(wide, factor * wide), nn.GELU(), nn.Linear(factor * wide, wide)]
            apart = nn.Conv2d(wide, wide, kernel, padding=kernel // 2, groups=wide)
            return nn.Sequential(*down, Residual(nn.Sequential(apart, Apply(_last), *dense, Apply(_second))))
        apart = style.conv(wide, wide, kernel, groups=wide)
        return nn.Sequential(*down, Residual(apart), style.conv(wide, wide, 1))

    return _staged(draw, style, block, (24, 112), deepest=4)


def _inverted(draw: Draw, gate: int) -> Network:
    style = Style.of(draw)
    factor, kernels = draw.one((1, 2, 3, 4, 6)), draw.one(((3,), (3, 5), (5,), (3, 5, 7)))

    def block(narrow: int, wide: int, stride: int) -> nn.Module:
        inner, kernel = factor * narrow, draw.one(kernels)
        layers = [style.conv(narrow, inner, 1)] if factor > 1 else []
        layers.append(style.conv(inner, inner, kernel, stride, groups=inner))
        layers += [SqueezeExcitation(inner, gate)] if gate else []
        layers.append(style.conv(inner, wide, 1, active=factor == 1))
        together = nn.Sequential(*layers)
        return Residual(together) if narrow == wide and stride == 1 else together

    return _staged(draw, style, block, (12, 48), deepest=4, stages=5)


def _staged(
    draw: Draw, style: Style, block: _Block, first: tuple[int, int], *, deepest: int, stages: int = 4
) -> Network:
    """A stem, stages that halve the image, and a classifier.

    Args:
        first: least and greatest width of the first stage.
        deepest: most blocks of a stage.
        stages: most of them.
    """
    image = draw.image()
    widths = tapering(draw, draw.width(*first), draw.size(2, stages))
    layers: list[nn.Module] = [style.conv(3, widths[0], draw.one((3, 3, 5, 7)), draw.one((1, 2, 2)))]
    for narrow, wide in zip([widths[0], *widths], widths, strict=False):
        depth = draw.size(1, deepest)
        layers += [block(narrow, wide, 2), *(block(wide, wide, 1) for _ in range(depth - 1))]
    return nn.Sequential(*layers, style.classifier(widths[-1], draw.size(10, 1000))).eval(), (image,)


def _last(x: torch.Tensor) -> torch.Tensor:
    return x.permute(0, 2, 3, 1)


def _second(x: torch.Tensor) -> torch.Tensor:
    return x.permute(0, 3, 1, 2)


class SqueezeExcitation(nn.Module):
    """Channels scaled by a gate of their means (Hu et al., 2018)."""

    def __init__(self, width: int, factor: int) -> None:
        super().__init__()
        inner = max(4, width // factor)
        self.gate = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(width, inner, 1), nn.ReLU(), nn.Conv2d(inner, width, 1), nn.Sigmoid()
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.gate(x)


class _HalfKept(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept, changed = x.chunk(2, 1)
        return torch.cat([kept, self.inner(changed)], 1)


class _Alternating(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, width, rows, columns = x.shape
        return x.view(batch, 2, width // 2, rows, columns).transpose(1, 2).reshape(batch, width, rows, columns)
