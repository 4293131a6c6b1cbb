"""Families of networks of tokens: mixers, gated MLPs, transformers."""

from __future__ import annotations

import torch
from torch import nn

from .draw import Apply, Draw, Network, Residual


def mixer(draw: Draw) -> Network:
    """Dense layers over patches and over channels in turn (Tolstikhin et al., 2021)."""
    image, size, tokens = _image_of_patches(draw)
    width = draw.width(96, 384)
    over_tokens, over_width = draw.one((0.5, 1, 2)), draw.one((2, 3, 4))
    inner = max(8, int(over_tokens * tokens))
    blocks: list[nn.Module] = []
    for _ in range(draw.size(2, 8)):
        mixed = [Apply(_transposed), nn.Linear(tokens, inner), nn.GELU(), nn.Linear(inner, tokens), Apply(_transposed)]
        blocks.append(Residual(nn.Sequential(nn.LayerNorm(width), *mixed)))
        blocks.append(Residual(nn.Sequential(nn.LayerNorm(width), _dense(width, over_width * width))))
    return nn.Sequential(_patches(width, size), *blocks, *_head(draw, width)).eval(), (image,)


def gated_mlp(draw: Draw) -> Network:
    """One half of the channels gates the other, over the tokens by a convolution of kernel 1 (Liu et al., 2021)."""
    tokens, width, inner = draw.size(16, 256), draw.width(64, 384), draw.width(64, 512)
    by_convolution = draw.chance(0.5)
    blocks = [
        Residual(
            nn.Sequential(
                nn.LayerNorm(width),
                nn.Linear(width, 2 * inner),
                nn.GELU(),
                _SpatialGate(tokens, inner, by_convolution),
                nn.Linear(inner, width),
            )
        )
        for _ in range(draw.size(2, 8))
    ]
    return nn.Sequential(*blocks, *_head(draw, width)).eval(), (torch.randn(draw.batch(), tokens, width),)


def vision_transformer(draw: Draw) -> Network:
    """Attention between patches of an image (Dosovitskiy et al., 2021)."""
    image, size, tokens = _image_of_patches(draw)
    heads, head_width = draw.size(2, 8), draw.one((16, 24, 32, 48, 64))
    width = heads * head_width
    inner = draw.one((2, 3, 4)) * width
    blocks = [_block(width, Attention(width, heads, heads), _dense(width, inner)) for _ in range(draw.size(2, 8))]
    first = [_patches(width, size), _Positions(tokens, width)]
    return nn.Sequential(*first, *blocks, *_head(draw, width)).eval(), (image,)


def encoder(draw: Draw) -> Network:
    """Words in both directions (BERT), of odd widths, with the norm before or behind each sum."""
    heads, head_width = draw.size(2, 12), draw.one((16, 20, 32, 40, 64))
    width, tokens, words = heads * head_width, draw.size(8, 384), draw.size(500, 32_000)
    inner, before = draw.width(width, 4 * width), draw.chance(0.5)
    activation = draw.one((nn.GELU, nn.GELU, nn.ReLU))
    blocks = [
        _block(width, Attention(width, heads, heads), _dense(width, inner, activation), before=before)
        for _ in range(draw.size(2, 8))
    ]
    first = [nn.Embedding(words, width), _Positions(tokens, width), nn.LayerNorm(width)]
    return nn.Sequential(*first, *blocks, *_head(draw, width)).eval(), (_words(draw, words, tokens),)


def decoder(draw: Draw) -> Network:
    """Words that see those before them (GPT, Llama): grouped heads, rotary positions, gated dense layers."""
    groups, shared = draw.size(1, 6), draw.one((1, 1, 2, 3, 4))
    heads, head_width = groups * shared, draw.one((16, 24, 32, 48, 64))
    width, tokens, words = heads * head_width, draw.size(8, 256), draw.size(500, 16_000)
    modern = draw.chance(0.6)
    inner = draw.width(2 * width, 4 * width)

    def block() -> nn.Module:
        attention = Attention(width, heads, groups, causal=tokens, rotary=modern)
        if not modern:
            return _block(width, attention, _dense(width, inner))
        dense = _GatedDense(width, inner)
        return nn.Sequential(
            Residual(nn.Sequential(_RootMeanSquareNorm(width), attention)),
            Residual(nn.Sequential(_RootMeanSquareNorm(width), dense)),
        )

    layers: list[nn.Module] = [nn.Embedding(words, width)]
    layers += [] if modern else [_Positions(tokens, width)]
    layers += [block() for _ in range(draw.size(2, 8))]
    layers.append(_RootMeanSquareNorm(width) if modern else nn.LayerNorm(width))
    layers += [nn.Linear(width, words, bias=False)] if draw.chance(0.5) else []
    return nn.Sequential(*layers).eval(), (_words(draw, words, tokens),)


def _words(draw: Draw, words: int, tokens: int) -> torch.Tensor:
    return torch.randint(0, words, (draw.batch(), tokens))


def _image_of_patches(draw: Draw) -> tuple[torch.Tensor, int, int]:
    """Square images, the size of a patch, and how many patches an image has."""
    side, size = draw.size(5, 16), draw.one((8, 14, 16, 16, 32))
    return torch.randn(draw.batch(), 3, side * size, side * size), size, side**2


def _patches(width: int, size: int) -> nn.Sequential:
    """A token of `width` channels from each patch."""
    return nn.Sequential(nn.Conv2d(3, width, size, size), nn.Flatten(2), Apply(_transposed))


def _head(draw: Draw, width: int) -> list[nn.Module]:
    return [nn.LayerNorm(width), Apply(_mean_of_tokens), nn.Linear(width, draw.size(2, 1000))]


def _dense(width: int, inner: int, activation: type[nn.Module] = nn.GELU) -> nn.Sequential:
    return nn.Sequential(nn.Linear(width, inner), activation(), nn.Linear(inner, width))


def _block(width: int, attention: nn.Module, dense: nn.Module, *, before: bool = True) -> nn.Sequential:
    if before:
        return nn.Sequential(*(Residual(nn.Sequential(nn.LayerNorm(width), part)) for part in (attention, dense)))
    return nn.Sequential(*(Residual(part, behind=nn.LayerNorm(width)) for part in (attention, dense)))


def _transposed(x: torch.Tensor) -> torch.Tensor:
    return x.transpose(1, 2)


def _mean_of_tokens(x: torch.Tensor) -> torch.Tensor:
    return x.mean(1)


class Attention(nn.Module):
    """Self-attention; several heads may share keys and values.

    Args:
        width: of a token; heads divide it.
        groups: heads of keys and values, which divide `heads`.
        causal: number of tokens, of which each sees those before it; 0: all see all.
        rotary: whether positions turn queries and keys (Su et al., 2021).
    """

    def __init__(self, width: int, heads: int, groups: int, *, causal: int = 0, rotary: bool = False) -> None:
        super().__init__()
        self.heads, self.groups, self.each = heads, groups, width // heads
        self.query = nn.Linear(width, width)
        self.key, self.value = (nn.Linear(width, groups * self.each) for _ in range(2))
        self.out = nn.Linear(width, width)
        self.register_buffer("hidden", torch.full((causal, causal), -1e4).triu(1) if causal else None)
        self.turned = rotary
        if rotary:
            angles = torch.arange(causal)[:, None] / 1e4 ** (torch.arange(0, self.each, 2) / self.each)
            self.register_buffer("cosine", torch.cat([angles, angles], 1).cos())
            self.register_buffer("sine", torch.cat([angles, angles], 1).sin())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, width = x.shape
        query = self.query(x).view(batch, tokens, self.heads, self.each).transpose(1, 2)
        key, value = (
            layer(x).view(batch, tokens, self.groups, self.each).transpose(1, 2) for layer in (self.key, self.value)
        )
        if self.turned:
            query, key = self._rotated(query), self._rotated(key)
        if self.groups != self.heads:
            key, value = (each.repeat_interleave(self.heads // self.groups, 1) for each in (key, value))
        scores = query @ key.transpose(2, 3) * self.each**-0.5
        if self.hidden is not None:
            scores = scores + self.hidden
        mixed = scores.softmax(-1) @ value
        return self.out(mixed.transpose(1, 2).reshape(batch, tokens, width))

    def _rotated(self, x: torch.Tensor) -> torch.Tensor:
        first, second = x.chunk(2, -1)
        return x * self.cosine + torch.cat([-second, first], -1) * self.sine


class _SpatialGate(nn.Module):
    def __init__(self, tokens: int, width: int, by_convolution: bool) -> None:
        super().__init__()
        self.norm, self.by_convolution = nn.LayerNorm(width), by_convolution
        self.over_tokens = nn.Conv1d(tokens, tokens, 1) if by_convolution else nn.Linear(tokens, tokens)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept, gate = x.chunk(2, -1)
        gate = self.norm(gate)
        gate = self.over_tokens(gate) if self.by_convolution else _transposed(self.over_tokens(_transposed(gate)))
        return kept * gate


class _GatedDense(nn.Module):
    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.gate, self.up = (nn.Linear(width, inner, bias=False) for _ in range(2))
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(nn.functional.silu(self.gate(x)) * self.up(x))


class _RootMeanSquareNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.scale


class _Positions(nn.Module):
    def __init__(self, tokens: int, width: int) -> None:
        super().__init__()
        self.positions = nn.Parameter(torch.randn(tokens, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.positions
