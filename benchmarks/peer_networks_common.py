"""Networks with random weights that no model source here has as a torch module: ``peer_networks_common:NAME``."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


def inception_v3() -> tuple[nn.Module, Any]:
    """torchvision's; the source ``local`` has TVM's network of this name, which no other runtime can run."""
    from op_profiler.frontends.importers.torch import load_torchvision

    return load_torchvision().models.inception_v3(init_weights=False).eval(), torch.randn(1, 3, 299, 299)


def dcgan() -> tuple[nn.Module, Any]:
    """The generator of Radford, Metz and Chintala (2016): an image of 64 x 64 from 100 numbers."""
    layers: list[nn.Module] = []
    sizes = (100, 512, 256, 128, 64)
    for place, (before, after) in enumerate(zip(sizes, sizes[1:])):
        stride, padding = (1, 0) if place == 0 else (2, 1)
        layers += [nn.ConvTranspose2d(before, after, 4, stride, padding, bias=False), nn.BatchNorm2d(after), nn.ReLU()]
    layers += [nn.ConvTranspose2d(64, 3, 4, 2, 1, bias=False), nn.Tanh()]
    return nn.Sequential(*layers).eval(), torch.randn(1, 100, 1, 1)


class _Double(nn.Sequential):
    """Two convolutions of 3 x 3, each with its normalization."""

    def __init__(self, before: int, after: int) -> None:
        layers: list[nn.Module] = []
        for channels in (before, after):
            layers += [nn.Conv2d(channels, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU()]
        super().__init__(*layers)


class _Unet(nn.Module):
    """Levels that halve the image, and as many that double it again with what lies beside them."""

    def __init__(self, width: int = 32, depth: int = 4) -> None:
        super().__init__()
        sizes = [width << level for level in range(depth + 1)]
        self.first = _Double(3, width)
        self.down = nn.ModuleList(_Double(a, b) for a, b in zip(sizes, sizes[1:]))
        self.grow = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, 2) for a, b in zip(sizes, sizes[1:]))
        self.up = nn.ModuleList(_Double(b, a) for a, b in zip(sizes, sizes[1:]))
        self.last = nn.Conv2d(width, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = [self.first(x)]
        for down in self.down:
            kept.append(down(nn.functional.max_pool2d(kept[-1], 2)))
        made = kept.pop()
        for grow, up in reversed(list(zip(self.grow, self.up))):
            made = up(torch.cat([kept.pop(), grow(made)], dim=1))
        return self.last(made)


def unet() -> tuple[nn.Module, Any]:
    """Ronneberger, Fischer and Brox (2015) with half of the channels, on 256 x 256."""
    return _Unet().eval(), torch.randn(1, 3, 256, 256)


def whisper_encoder() -> tuple[nn.Module, Any]:
    """The encoder of whisper-tiny, on 30 s of sound."""
    from transformers import WhisperConfig
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    config = WhisperConfig()
    return WhisperEncoder(config).eval(), torch.randn(1, config.num_mel_bins, 2 * config.max_source_positions)
