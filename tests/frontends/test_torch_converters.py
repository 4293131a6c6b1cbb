"""Operators of torch that TVM's importer does not know, compared with torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from .lowered import check


def weights(torch: Any, groups: int) -> Any:
    """Of grouped products."""
    return torch.linspace(-1, 1, groups * 4 * 8).reshape(groups, 4, 8)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "rms_norm": lambda torch, x: (
        torch.nn.functional.rms_norm(x, (6,), torch.arange(6.0)),
        torch.nn.functional.rms_norm(x, (4, 6), eps=0.1),
    ),
    "mish": lambda torch, x: (torch.nn.functional.mish(x), torch.nn.functional.mish(x * 100)),
    "bounds": lambda torch, x: (
        torch.clamp(x, -x.abs() / 2, x.abs() / 3),
        torch.clamp(x, -0.5, 0.5),
        torch.clamp(x, max=x[0]),
        torch.clamp_min(x, x.mean()),
        x.clamp(max=0.3),
        (x * 5).long().clamp(min=(x * 3).long()),
    ),
    "largest": lambda torch, x: (*x.max(1), *x.min(2, keepdim=True), x.max(), torch.max(x, -x), x.max(1)[0]),
    "whole": lambda torch, x: (
        (x * 1e12).long() & 0x7FFFFFFFFF,
        (x * 1e12).long() | (x * 1e11).long(),
        (x * 1e12).long() ^ (x * 9).int(),
        ~(x * 1e12).long(),
        (x > 0) & (x < 1) ^ (x > 2),
        x.argsort(2),
        torch.nn.functional.one_hot((x.abs() * 3).long(), 20),
    ),
    "lerp": lambda torch, x: (torch.lerp(x, -x, 0.25), torch.lerp(x, -x, x.abs())),
    "shrink": lambda torch, x: (torch.nn.functional.softshrink(x), torch.nn.functional.hardshrink(x, 0.7)),
    "similarity": lambda torch, x: (
        torch.nn.functional.cosine_similarity(x, x.roll(1, 2)),
        torch.nn.functional.cosine_similarity(x[:1], x[:, :1], dim=-1),
    ),
    "scales": lambda torch, x: (
        torch.expm1(x),
        torch.expm1(x * 1e-6),
        torch.exp2(x),
        torch.deg2rad(x),
        torch.rad2deg(x),
        torch.cumprod(x, 2),
        +x,
    ),
    "counts": lambda torch, x: (torch.histc(x, 5, -1, 1), torch.histc((x * 3).round(), bins=4, min=0, max=3)),
    "experts": lambda torch, x: (
        torch.nn.functional.grouped_mm(x.reshape(-1, 4), weights(torch, 3), offs=torch.tensor([2, 2, 12]).int()),
        torch.nn.functional.grouped_mm(
            x.reshape(-1, 4)[:3], weights(torch, 8), offs=torch.tensor([0, 1, 1, 2, 3, 3, 3, 3]).int()
        ),
        torch.nn.functional.grouped_mm(x.reshape(-1, 4)[:8].reshape(2, 4, 4), weights(torch, 2)),
    ),
    "unfold": lambda torch, x: (x.unfold(2, 3, 2), x.unfold(1, 2, 2), x.unfold(-1, 4, 1)),
    "moved": lambda torch, x: (x.movedim(0, 2), torch.moveaxis(x, (0, 1), (-1, 0)), x.mT),
    "stacked": lambda torch, x: (
        torch.hstack([x, x]),
        torch.vstack([x[0, 0], x[1, 1]]),
        torch.dstack([x[0], x[1]]),
        torch.dstack([x[0, 0], x[1, 1]]),
        torch.hstack([x[0, 0], x[1, 1]]),
    ),
    "along": lambda torch, x: (
        torch.take_along_dim(x, torch.argsort(x, 2), 2),
        torch.take_along_dim(x, torch.tensor([[[0], [-1]]]), 1),
        torch.take_along_dim(x, torch.tensor([[3, 2]])),
    ),
    "diagonal": lambda torch, x: (torch.diagonal(x, 1, 1, 2), torch.diagonal(x[0], -2), x.diagonal(0, 2, 0)),
    "nearest": lambda torch, x: (
        torch.nn.functional.interpolate(x, 9),
        torch.nn.functional.interpolate(x, scale_factor=2.0),
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_it_computes_what_torch_computes(torch: Any, run: Any, name: str) -> None:
    class Module(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return FUNCTIONS[name](torch, x)

    check(Module(), run, torch, torch.randn(2, 4, 6))
