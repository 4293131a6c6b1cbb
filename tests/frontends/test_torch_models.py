"""Layers and operators of real torch models: they return what torch returns, or are refused in a sentence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from op_profiler.errors import ModelError

from ..installed import needs
from .lowered import check, lower

pytestmark = needs("torch")

TVM_TEXTS = ("Check failed", "Var(", "NoneType", "KeyError", "No module named")


def module(torch: Any, function: Callable[..., Any], *layers: Any) -> Any:
    class Module(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList(layers)

        def forward(self, *tensors: Any) -> Any:
            return function(torch, self.layers, *tensors)

    return Module().eval()


@pytest.mark.parametrize("kind", ["GRU", "LSTM", "RNN"])
def test_recurrent_layers_return_the_states_of_torch(torch: Any, run: Any, kind: str) -> None:
    layer, proj = getattr(torch.nn, kind), {"proj_size": 3} if kind == "LSTM" else {}
    layers = [
        layer(4, 5, bidirectional=True, batch_first=True),
        layer(4, 5, 2, bidirectional=True, bias=False, dropout=0.5, **proj),
    ]
    check(module(torch, lambda _, both, x: [one(x) for one in both], *layers), run, torch, torch.randn(2, 3, 4))
    check(layer(4, 5, 2, bidirectional=True), run, torch, torch.randn(3, 4))
    if kind != "LSTM":
        given = module(torch, lambda _, one, x, h: one[0](x, h), layer(4, 5, 2, bidirectional=True))
        check(given, run, torch, torch.randn(3, 2, 4), torch.randn(4, 2, 5))


INDICES: dict[str, Callable[..., Any]] = {
    "first": lambda torch, _, x, k: x[k],
    "both": lambda torch, _, x, k: x[k, k],
    "second": lambda torch, _, x, k: x[:, k],
    "apart": lambda torch, _, x, k: x[k, :, k],
    "beside a range": lambda torch, _, x, k: x[torch.arange(3), k[0]],
    "taken": lambda torch, _, x, k: x.take(k * 9),
}


def test_indices_that_count_from_behind_at_run_time(torch: Any, run: Any) -> None:
    every = module(torch, lambda *given: [function(*given) for function in INDICES.values()])
    check(every, run, torch, torch.randn(4, 5, 6), torch.tensor([[-1, 0, 2], [1, -3, 3]]))


def test_triangles_and_causal_attention(torch: Any, run: Any) -> None:
    attention = torch.nn.functional.scaled_dot_product_attention

    def masked(torch: Any, _: Any, q: Any, k: Any, v: Any) -> Any:
        mask = torch.ones(5, 7, dtype=torch.bool).triu(1)
        return (
            attention(q, k, v, is_causal=True),
            attention(q[0], k[0], v[0], is_causal=True),
            attention(q, k[:, :2], v[:, :2], is_causal=True, scale=0.2, enable_gqa=True),
            (q @ k.mT).masked_fill(mask, float("-inf")).softmax(-1),
            (q @ k.mT) + torch.full((5, 7), float("-inf")).triu(2),
            q.tril(-1),
            (q * 3).long().triu(1),
        )

    check(module(torch, masked), run, torch, *(torch.randn(2, 4, size, 8) for size in (5, 7, 7)))


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_transposed_convolutions_with_dilation(torch: Any, run: Any, rank: int) -> None:
    layer = getattr(torch.nn, f"ConvTranspose{rank}d")
    layers = [
        layer(4, 6, 3, dilation=2, padding=1),
        layer(4, 6, 3, dilation=2, stride=2, padding=1, output_padding=1, groups=2),
        layer(4, 6, 2, dilation=2, padding=3, groups=2, bias=False),
    ]
    apart = module(torch, lambda _, all_of_them, x: [one(x) for one in all_of_them], *layers)
    check(apart, run, torch, torch.randn(2, 4, *(7, 8, 9)[:rank]))


def test_sums_of_windows_and_shuffled_pixels(torch: Any, run: Any) -> None:
    def windows(torch: Any, _: Any, x: Any, pixels: Any) -> Any:
        functions = torch.nn.functional
        return (
            functions.fold(x[:, :, :9], (4, 5), (2, 3)),
            functions.fold(x[0, :, :9], (4, 5), (2, 3)),
            functions.fold(x, (6, 7), (2, 3), dilation=2, padding=1),
            functions.fold(x[:, :8, :4], (5, 5), 2, stride=3),
            functions.pixel_unshuffle(pixels, 2),
            functions.pixel_unshuffle(pixels[0], 2),
            functions.pixel_shuffle(pixels[0], 2),
        )

    check(module(torch, windows), run, torch, torch.randn(2, 12, 30), torch.randn(2, 4, 4, 6))


def test_options_and_ranks_of_layers(torch: Any, run: Any) -> None:
    def layers(torch: Any, _: Any, x: Any) -> Any:
        functions = torch.nn.functional
        return (
            functions.group_norm(x, 2),
            functions.pad(x, (1, 2, 2, 1), mode="circular"),
            functions.max_pool2d(x[0], 2),
            functions.avg_pool2d(x[0], 2, padding=1),
            functions.adaptive_avg_pool2d(x[0], 2),
            x.roll(3),
            x.roll((1, 2), (1, 2)),
        )

    check(module(torch, layers), run, torch, torch.randn(2, 4, 6, 6))


def packed(torch: Any, layers: Any, x: Any) -> Any:
    lengths = torch.tensor([3, 2])
    return layers[0](torch.nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True))[1]


REFUSED: dict[str, tuple[Callable[..., Any], str]] = {
    "packed": (packed, "give recurrent layers the padded sequences"),
    "embeddings": (lambda torch, _, x: torch.nn.functional.embedding_bag(x[0].long() * 0, x[0]), "embedding_bag"),
    "mean": (lambda torch, _, x: x.scatter_reduce(1, (x * 0).long(), x, "mean"), "by mean"),
    "mixed": (lambda torch, _, x: x[x > 0], "index"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_no_refusal_has_the_text_of_tvm(torch: Any, name: str) -> None:
    function, message = REFUSED[name]
    with pytest.raises(ModelError, match=message) as refused:
        lower(module(torch, function, torch.nn.GRU(4, 5, batch_first=True)), torch.randn(2, 3, 4))
    assert not [text for text in TVM_TEXTS if text in str(refused.value)]
