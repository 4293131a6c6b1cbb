"""Families of networks of series, points, films and tables."""

from __future__ import annotations

import torch
from torch import nn

from .draw import Apply, Draw, Network, Residual, Style, tapering


def temporal(draw: Draw) -> Network:
    """Dilated convolutions over a series (Bai et al., 2018)."""
    style = Style.of(draw, dimensions=1)
    narrow, width, kernel = draw.size(1, 64), draw.width(24, 160), draw.one((3, 3, 5))
    layers: list[nn.Module] = [style.conv(narrow, width, 1)]
    for level in range(draw.size(3, 8)):
        dilated = style.conv(width, width, kernel, dilation=2**level)
        layers.append(Residual(nn.Sequential(dilated, style.conv(width, width, draw.one((1, kernel)), active=False))))
    head = style.classifier(width, draw.size(2, 100))
    return nn.Sequential(*layers, head).eval(), (torch.randn(draw.batch(), narrow, draw.size(64, 2048)),)


def waveform(draw: Draw) -> Network:
    """Strided convolutions with long kernels over sound, then depthwise blocks (wav2vec, QuartzNet)."""
    style = Style.of(draw, dimensions=1)
    widths = tapering(draw, draw.width(16, 64), draw.size(2, 5))
    layers: list[nn.Module] = [style.conv(1, widths[0], draw.one((9, 15, 31)), draw.one((4, 5, 8)))]
    for narrow, wide in zip(widths, widths[1:], strict=False):
        layers.append(style.conv(narrow, wide, draw.one((3, 5, 9)), 2))
    width, kernel = widths[-1], draw.one((5, 9, 15))
    for _ in range(draw.size(1, 6)):
        apart = style.conv(width, width, kernel, groups=width, active=False)
        layers.append(Residual(nn.Sequential(apart, style.conv(width, width, 1))))
    head = style.classifier(width, draw.size(2, 100))
    return nn.Sequential(*layers, head).eval(), (torch.randn(draw.batch(), 1, draw.size(2000, 32_000)),)


def point_cloud(draw: Draw) -> Network:
    """Convolutions of kernel 1 over points, and the largest of all points (Qi et al., 2017)."""
    style = Style.of(draw, dimensions=1)
    widths = [draw.one((3, 3, 6)), *tapering(draw, draw.width(24, 80), draw.size(3, 6)), draw.width(256, 1024)]
    layers: list[nn.Module] = [style.conv(narrow, wide, 1) for narrow, wide in zip(widths, widths[1:], strict=False)]
    dense = draw.width(64, 512)
    layers += [Apply(_largest), nn.Linear(widths[-1], dense), nn.ReLU(), nn.Linear(dense, draw.size(4, 100))]
    return nn.Sequential(*layers).eval(), (torch.randn(draw.batch(), widths[0], draw.size(128, 4096)),)


def video(draw: Draw) -> Network:
    """Convolutions over time and space, whole or apart (C3D, R(2+1)D)."""
    style = Style.of(draw, dimensions=3)
    widths = tapering(draw, draw.width(8, 32), draw.size(2, 4))
    layers: list[nn.Module] = [style.conv(3, widths[0], 3, 2)]
    for narrow, wide in zip(widths, widths[1:], strict=False):
        layers += [style.conv(narrow, wide, 3, 2)]
        inner = nn.Sequential(style.conv(wide, wide, 3), style.conv(wide, wide, draw.one((1, 3)), active=False))
        layers += [Residual(inner, behind=style.activation())] if draw.chance(0.7) else []
    size = draw.size(48, 128, 8)
    film = torch.randn(draw.size(1, 4), 3, draw.size(8, 16, 4), size, size)
    return nn.Sequential(*layers, style.classifier(widths[-1], draw.size(10, 400))).eval(), (film,)


def recommender(draw: Draw) -> Network:
    """Tables of categories and dense layers, products of all pairs or not (DLRM, Wide & Deep, autoencoders)."""
    batch, numbers, tables = draw.size(1, 64), draw.size(8, 512), draw.one((0, 4, 8, 16, 26))
    width, rows = draw.width(8, 64), draw.size(100, 20_000)
    bottom = _dense_layers(draw, numbers, draw.size(1, 3)) + [width]
    together = (width * (tables + 1)) if draw.chance(0.5) or not tables else width + (tables + 1) ** 2
    top = _dense_layers(draw, together, draw.size(2, 5), widest=2048)
    network = _Recommender(rows, tables, bottom, [*top, 1], pairs=together != width * (tables + 1))
    inputs = (torch.randn(batch, numbers), torch.randint(0, rows, (batch, tables)))
    return network.eval(), inputs if tables else inputs[:1]


def recurrent(draw: Draw) -> Network:
    """LSTM or GRU cells, one after the other step by step."""
    cell, width, layers = draw.one((nn.LSTM, nn.LSTM, nn.GRU)), draw.width(24, 384), draw.one((1, 1, 2, 3))
    steps, both, words = draw.size(4, 32), draw.chance(0.3), draw.one((0, 0, 1000, 5000))
    narrow = draw.width(8, 256)
    network = _Recurrent(cell(narrow, width, layers, batch_first=True, bidirectional=both), words, draw.size(2, 1000))
    batch = draw.batch()
    return network.eval(), (torch.randint(0, words, (batch, steps)) if words else torch.randn(batch, steps, narrow),)


def _dense_layers(draw: Draw, first: int, depth: int, widest: int = 512) -> list[int]:
    return [first, *(draw.width(32, widest) for _ in range(depth))]


def _largest(x: torch.Tensor) -> torch.Tensor:
    return x.amax(-1)


def _stacked(widths: list[int]) -> nn.Sequential:
    layers: list[nn.Module] = []
    for narrow, wide in zip(widths, widths[1:], strict=False):
        layers += [nn.Linear(narrow, wide), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class _Recommender(nn.Module):
    def __init__(self, rows: int, tables: int, bottom: list[int], top: list[int], *, pairs: bool) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, bottom[-1]) for _ in range(tables))
        self.bottom, self.top, self.pairs = _stacked(bottom), _stacked(top), pairs

    def forward(self, numbers: torch.Tensor, categories: torch.Tensor | None = None) -> torch.Tensor:
        dense = self.bottom(numbers).relu()
        vectors = [dense]
        if categories is not None:
            vectors += [table(categories[:, n]) for n, table in enumerate(self.tables)]
        if not self.pairs:
            return self.top(torch.cat(vectors, 1)).sigmoid()
        stacked = torch.stack(vectors, 1)
        products = torch.bmm(stacked, stacked.transpose(1, 2)).flatten(1)
        return self.top(torch.cat([dense, products], 1)).sigmoid()


class _Recurrent(nn.Module):
    def __init__(self, cells: nn.RNNBase, words: int, outputs: int) -> None:
        super().__init__()
        self.first = nn.Embedding(words, cells.input_size) if words else nn.Identity()
        self.cells = cells
        self.last = nn.Linear((2 if cells.bidirectional else 1) * cells.hidden_size, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.cells(self.first(x))[0][:, -1])
