"""Options of torch's operators that TVM's importer overlooks, compared with torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from op_profiler.errors import ModelError

from .lowered import check, lower

OPTIONS: dict[str, Callable[..., Any]] = {
    "alpha": lambda torch, x: (
        torch.add(x, x, alpha=2),
        torch.sub(x, x.abs(), alpha=-3),
        torch.rsub(x, 1.0, alpha=2),
        (x * 1).add_(x, alpha=0.5),
        x.long().add(3, alpha=2),
    ),
    "masked": lambda torch, x: torch.masked.var(x, (0, 1, 2, 3)),
    "floor": lambda torch, x: (
        torch.div(x, -1.5, rounding_mode="floor"),
        torch.div((x * 9).long(), 3, rounding_mode="floor"),
    ),
    "trunc": lambda torch, x: (
        torch.div(x, -0.5, rounding_mode="trunc"),
        torch.div((x * 9).long(), 3, rounding_mode="trunc"),
        torch.div((x * 9).long(), x + 9, rounding_mode="trunc"),
    ),
    "rounded in place": lambda torch, x: ((x * 1).div_(0.5, rounding_mode="trunc"),),
    "divisor": lambda torch, x: (
        torch.nn.functional.avg_pool2d(x, 3, 2, 1, divisor_override=2),
        torch.nn.functional.avg_pool2d(x, (3, 2), 2, 1, ceil_mode=True, count_include_pad=False, divisor_override=5),
    ),
    "approximate": lambda torch, x: (
        torch.nn.functional.gelu(x, approximate="tanh"),
        torch.nn.functional.gelu(x),
    ),
    "corrections": lambda torch, x: (
        torch.var(x),
        x.std(),
        torch.var(x, 1, correction=0),
        x.std((2, 3), keepdim=True),
        *torch.var_mean(x, (1, 2), correction=1),
        *torch.std_mean(x, 3, correction=None),
    ),
    "parts": lambda torch, x: (*torch.chunk(x, 4, 3), *torch.chunk(x, 2, 1), *torch.arange(17.0).chunk(8)),
    "windows outside": lambda torch, x: (
        torch.nn.functional.avg_pool2d(x, (3, 2), 2, 1, ceil_mode=True),
        torch.nn.functional.max_pool2d(x, 2, 2, 1, ceil_mode=True),
        torch.nn.functional.max_pool2d(x, 2, ceil_mode=True),
    ),
    "windows outside along one axis": lambda torch, x: (
        torch.nn.functional.max_pool2d(x[..., :4], (2, 3), 2, 1, ceil_mode=True),
        torch.nn.functional.avg_pool2d(x[..., :4], (2, 3), 2, 1, ceil_mode=True),
        torch.nn.functional.avg_pool2d(x[..., :4], (2, 3), 2, 1, ceil_mode=True, count_include_pad=False),
        torch.nn.functional.avg_pool2d(x[..., :4], (2, 3), 2, 1, ceil_mode=True, divisor_override=5),
        torch.nn.functional.avg_pool2d(x[..., :4], 3, ceil_mode=True, divisor_override=5),
    ),
    "cross entropy": lambda torch, x: (
        torch.nn.functional.cross_entropy(x, x[:, 0].abs().long().clamp(0, 2)),
        torch.nn.functional.cross_entropy(x, x.softmax(1), weight=torch.arange(1.0, 4), reduction="none"),
        torch.nn.functional.cross_entropy(x, x.softmax(1)),
        torch.nn.functional.cross_entropy(x[0, :, 0, 0], x[0, 0, 0, 0].abs().long().clamp(0, 2), reduction="sum"),
    ),
    "indexing": lambda torch, x: (
        *torch.meshgrid(x[0, 0, 0], x[0, 0, :3, 0], indexing="xy"),
        *torch.meshgrid(x[0, 0, 0], x[0, 0, :3, 0], indexing="ij"),
    ),
    "sums of booleans": lambda torch, x: (
        (x > 0).sum(1),
        (x > 0).sum(),
        (x > 0).prod(1, keepdim=True),
        (x > 0).cumsum(1),
        x.int().sum((2, 3)),
    ),
    "types": lambda torch, x: (
        (x > 0).long().mean(1, dtype=torch.float32),
        torch.softmax(x.long(), 1, dtype=torch.float32),
        x.sum(dtype=torch.float64),
        x.to(torch.bool).float(),
        x.abs().to(torch.uint8),
        x.to(torch.arange(3)),
    ),
    "fractions of whole numbers": lambda torch, x: (
        1 / (x.abs().long() + 1),
        x.long() / 3,
        torch.exp(x.long()),
        (x > 0) / (x.abs().int() + 1),
        torch.reciprocal(x.long() * 2 + 1),
    ),
    "booleans": lambda torch, x: ((x > 0) + (x < -1), torch.add(x > 1, x > 2)),
    "own statistics": lambda torch, x: (
        torch.nn.functional.batch_norm(x, torch.ones(3), torch.full((3,), 2.0), training=True),
        torch.nn.functional.batch_norm(x, torch.ones(3), torch.full((3,), 2.0)),
    ),
    "indices from behind": lambda torch, x: (
        x[:, torch.tensor([-1, 0])],
        x[0, 1, torch.tensor([[-2], [1]]), torch.tensor([0, -1])],
        x[:, [0, 2]],
    ),
    "halves": lambda torch, x: (torch.round(x), torch.round(torch.arange(-5.0, 6.0) / 2 + 0 * x[0, 0, 0, 0])),
    "whole scales": lambda torch, x: (
        torch.nn.functional.interpolate(x, scale_factor=1.6, mode="bilinear"),
        torch.nn.functional.interpolate(x, scale_factor=1.5),
    ),
}


def module(torch: Any, function: Callable[..., Any]) -> Any:
    class Module(torch.nn.Module):
        def forward(self, *tensors: Any) -> Any:
            return function(torch, *tensors)

    return Module()


@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_is_heeded(torch: Any, run: Any, name: str) -> None:
    check(module(torch, OPTIONS[name]), run, torch, torch.randn(2, 3, 5, 5) * 3)


@pytest.mark.parametrize("shared", [False, True])
def test_attention_by_a_scale(torch: Any, run: Any, shared: bool) -> None:
    attention = torch.nn.functional.scaled_dot_product_attention
    query, key = torch.randn(2, 4, 3, 8), torch.randn(2, 2 if shared else 4, 3, 8)
    scaled = module(torch, lambda _, q, k: attention(q, k, k * 2, scale=1.0, enable_gqa=shared))
    check(scaled, run, torch, query, key)


@pytest.mark.parametrize("name", ["alpha", "indices from behind"])
def test_an_exported_program_heeds_them_too(torch: Any, run: Any, name: str) -> None:
    x = torch.randn(2, 3, 5, 5)
    exported = torch.export.export(module(torch, OPTIONS[name]), (x,)).module()
    outputs = run(lower(exported, x), {"x0": x.numpy()})
    for output, expected in zip(outputs, OPTIONS[name](torch, x), strict=True):
        torch.testing.assert_close(torch.from_numpy(output), expected)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda torch, x: torch.round(x, decimals=2), "to decimals"),
        (lambda torch, x: torch.nn.functional.dropout(x, 0.5, training=True), "drops at random"),
        (lambda torch, x: torch.var(x, correction=3), "a correction of 3"),
        (
            lambda torch, x: torch.nn.functional.interpolate(x, scale_factor=1.5, mode="bilinear"),
            "recompute_scale_factor=True",
        ),
        (lambda torch, x: torch.bincount(x.abs().long().reshape(-1)), "whose result has a size that depends on values"),
        (
            lambda torch, x: torch.nn.functional.cross_entropy(x, torch.ones(2, 5, 6).long(), label_smoothing=0.1),
            "smooth the targets",
        ),
    ],
)
def test_what_cannot_be_said_in_another_way_is_refused(torch: Any, function: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        lower(module(torch, function), torch.randn(2, 3, 5, 6))
