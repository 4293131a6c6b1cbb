"""Random graphs of torch operators, which chain what no test of a single operator does: a seed is a graph."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

_MOST_ELEMENTS = 60_000
_SHAPES = (
    (1, 16, 7, 7),
    (2, 24, 6, 5),
    (1, 32, 4, 4),
    (1, 12, 40),
    (2, 9, 32),
    (17, 64),
    (3, 5, 8, 24),
    (1, 8, 3, 6, 6),
)
_LEAST_STEPS, _MOST_STEPS = 3, 9


@dataclasses.dataclass(frozen=True)
class _Step:
    """One call.

    Attributes:
        call: function of tensors.
        places: of its arguments among the inputs and the results of earlier steps.
    """

    call: Callable[..., Any]
    places: tuple[int, ...]


def drawn_graph(seed: int) -> tuple[torch.nn.Module, torch.Tensor]:
    """Return a module and its input. The results that no step uses are its outputs."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    draw = _Draw(random.Random(seed), torch, generator)
    data = torch.randn(draw.random.choice(_SHAPES), generator=generator)
    values, steps = [data], list[_Step]()
    wanted = draw.random.randint(_LEAST_STEPS, _MOST_STEPS)
    while len(steps) < wanted:
        places = [draw.place(len(values)) for _ in range(2)]
        made = draw.step(*(values[place] for place in places))
        if made is None:
            continue
        call, count = made
        with torch.no_grad():
            result = call(*(values[place] for place in places[:count]))
        if 0 < result.numel() <= _MOST_ELEMENTS and result.isfinite().all() and result.abs().max() < 1e4:
            steps.append(_Step(call, tuple(places[:count])))
            values.append(result)
    return _module(steps), data


def _module(steps: Sequence[_Step]) -> torch.nn.Module:
    import torch

    used = {place for step in steps for place in step.places}
    outputs = [place for place in range(1, len(steps) + 1) if place not in used]

    class Graph(torch.nn.Module):
        def forward(self, data: Any) -> Any:
            values = [data]
            for step in steps:
                values.append(step.call(*(values[place] for place in step.places)))
            return tuple(values[place] for place in outputs)

    return Graph().eval()


class _Draw:
    """Draws one step after the other."""

    def __init__(self, drawn: random.Random, library: Any, generator: torch.Generator) -> None:
        self.random = drawn
        self.torch = library
        self.generator = generator

    def place(self, count: int) -> int:
        """Return the place of an argument, most often of the last result."""
        return count - 1 if self.random.random() < 0.7 else self.random.randrange(count)

    def step(self, one: torch.Tensor, other: torch.Tensor) -> tuple[Callable[..., Any], int] | None:
        """Return a function of one or two tensors and how many it takes; None if the drawn one does not fit."""
        kind = self.random.choice(
            (self.heavy, self.heavy, self.view, self.view, self.reduction, self.plain, self.joined)
        )
        return kind(one, other)

    def weight(self, *shape: int) -> torch.Tensor:
        """Return random weights that keep the size of what they multiply."""
        inner = 1
        for size in shape[1:]:
            inner *= size
        return self.torch.randn(shape, generator=self.generator) / max(inner, 1) ** 0.5

    def heavy(self, one: torch.Tensor, _other: torch.Tensor) -> tuple[Callable[..., Any], int] | None:
        """Return a convolution, a linear layer or a product with itself."""
        torch, functional, r = self.torch, self.torch.nn.functional, self.random
        if one.ndim in (3, 4, 5) and r.random() < 0.8:
            rank, channels = one.ndim - 2, one.shape[1]
            groups = r.choice([1, 1, channels, *(g for g in (2, 4) if channels % g == 0)])
            out = groups * r.choice([1, 2]) if groups > 1 else r.choice([8, 12, 16, 24, 32])
            size, stride, dilation = r.choice([1, 3]), r.choice([1, 1, 2]), r.choice([1, 1, 2])
            bias = r.choice([None, self.weight(out)])
            if r.random() < 0.2:
                weight = self.weight(channels, out // groups, *[size] * rank)
                transposed = getattr(functional, f"conv_transpose{rank}d")
                return (lambda x: transposed(x, weight, bias, stride, size // 2, 0, groups)), 1
            weight, convolution = (
                self.weight(out, channels // groups, *[size] * rank),
                getattr(functional, f"conv{rank}d"),
            )
            return (lambda x: convolution(x, weight, bias, stride, size // 2 * dilation, dilation, groups)), 1
        if one.ndim < 2:
            return None
        if r.random() < 0.3:
            return (lambda x: torch.matmul(x, x.transpose(-1, -2)) / x.shape[-1] ** 0.5), 1
        weight = self.weight(r.choice([1, 10, 16, 33]), one.shape[-1])
        bias = r.choice([None, self.weight(len(weight))])
        return (lambda x: functional.linear(x, weight, bias)), 1

    def view(self, one: torch.Tensor, _other: torch.Tensor) -> tuple[Callable[..., Any], int] | None:
        """Return a change of shape or order, or a part."""
        torch, r, rank = self.torch, self.random, one.ndim
        axis = r.randrange(rank) if rank else 0
        size = one.shape[axis] if rank else 1
        order = r.sample(range(rank), rank)
        places = torch.tensor([r.randrange(size) for _ in range(r.randint(1, 5))])
        half, first = max(size // 2, 1), r.randrange(size)
        options: list[Callable[[Any], Any] | None] = [
            lambda x: x.permute(order),
            lambda x: x.permute(order).contiguous(),
            lambda x: x.flatten(min(axis, rank - 1)),
            (lambda x: x.reshape(*x.shape[:-2], -1)) if rank > 1 else None,
            (lambda x: x.unsqueeze(axis)) if rank < 5 else None,
            lambda x: x.squeeze(axis),
            lambda x: x.squeeze(),
            (lambda x: x.chunk(2, axis)[1]) if size > 1 else None,
            lambda x: x.split(half, axis)[-1],
            lambda x: x.narrow(axis, first, 1),
            lambda x: x.select(axis, first),
            lambda x: x.index_select(axis, places),
            lambda x: x.flip(axis),
            lambda x: x.roll(first, axis),
            lambda x: x.repeat_interleave(2, axis),
            (lambda x: x.unflatten(axis, (2, half))) if size % 2 == 0 and rank < 5 else None,
            (lambda x: x.transpose(0, axis)[::2].transpose(0, axis)),
            (lambda x: torch.nn.functional.pad(x, (1, 0) + (0, 2) * (rank > 1))),
            (lambda x: torch.nn.functional.pixel_shuffle(x, 2)) if rank == 4 and one.shape[1] % 4 == 0 else None,
            (lambda x: x.unfold(axis, half, half)) if rank < 5 else None,
        ]
        chosen = r.choice(options) if rank else None
        return None if chosen is None else (chosen, 1)

    def reduction(self, one: torch.Tensor, _other: torch.Tensor) -> tuple[Callable[..., Any], int] | None:
        """Return a mean, a norm, or another operator along axes."""
        torch, functional, r, rank = self.torch, self.torch.nn.functional, self.random, one.ndim
        if rank < 2:
            return None
        axes = r.sample(range(rank), r.choice([1, 1, 2]))
        axis, keep = axes[0], r.random() < 0.5
        channels = one.shape[1]
        weight, bias, mean = (self.weight(channels) for _ in range(3))
        shape = one.shape[-r.choice([1, 1, 2]) :]
        few = min(3, one.shape[axis])
        pools = {3: functional.max_pool1d, 4: functional.avg_pool2d, 5: functional.max_pool3d}
        options: list[Callable[[Any], Any] | None] = [
            lambda x: x.mean(axes, keep),
            lambda x: x.sum(axes, keep) / 4,
            lambda x: x.amax(axes, keep),
            (lambda x: x.var(axes, unbiased=False, keepdim=keep)),
            (lambda x: (x.var(axes, unbiased=False, keepdim=True) + 1).sqrt() * x),
            lambda x: x.norm(dim=axis, keepdim=keep),
            lambda x: x.softmax(axis),
            lambda x: x.log_softmax(axis),
            lambda x: x.logsumexp(axes, keep),
            lambda x: x.cumsum(axis) / 4,
            lambda x: x.topk(few, axis)[0],
            lambda x: x.sort(axis, descending=True)[0],
            lambda x: functional.layer_norm(x, shape, eps=0.1),
            (lambda x: functional.batch_norm(x, mean, mean.abs() + 1, weight, bias)) if rank < 6 else None,
            (lambda x: functional.group_norm(x, 2, weight, bias, 0.1)) if channels % 2 == 0 and rank > 2 else None,
            (lambda x: functional.instance_norm(x, eps=0.1)) if rank > 2 and one[0, 0].numel() > 1 else None,
            lambda x: functional.normalize(x, dim=axis, eps=0.1),
            (lambda x: pools[rank](x, 2)) if rank in pools and min(one.shape[2:]) > 1 else None,
            (lambda x: functional.adaptive_avg_pool2d(x, 1)) if rank == 4 else None,
            (lambda x: functional.interpolate(x, scale_factor=2)) if rank in (3, 4, 5) else None,
            (lambda x: functional.interpolate(x, scale_factor=1.5, mode="bilinear")) if rank == 4 else None,
            (lambda x: torch.einsum("...ij,...kj->...ik", x, x) / x.shape[-1]),
            (lambda x: functional.glu(x, axis)) if one.shape[axis] % 2 == 0 else None,
        ]
        chosen = r.choice(options)
        return None if chosen is None else (chosen, 1)

    def plain(self, one: torch.Tensor, _other: torch.Tensor) -> tuple[Callable[..., Any], int]:
        """Return a function of each element, or a write to a part."""
        torch, functional, r = self.torch, self.torch.nn.functional, self.random
        constant = r.choice([0.5, -1.0, 2.0])
        limit = one.mean().item()

        def written(x: Any) -> Any:
            x = x.clone()
            x[..., :1] = constant
            return x

        options: list[Callable[[Any], Any]] = [
            functional.relu,
            functional.gelu,
            functional.silu,
            functional.hardswish,
            functional.elu,
            torch.sigmoid,
            torch.tanh,
            lambda x: functional.leaky_relu(x, 0.1),
            lambda x: x * constant + 1,
            lambda x: x.clamp(-1, constant + 1),
            lambda x: (x.abs() + 1).rsqrt(),
            lambda x: (x.abs() + 0.1).log(),
            lambda x: (-x.abs()).exp(),
            lambda x: x.square(),
            lambda x: x.masked_fill(x.round() > limit + 10, constant),
            lambda x: torch.erf(x),
            lambda x: x.double().float(),
            written,
        ]
        return r.choice(options), 1

    def joined(self, one: torch.Tensor, other: torch.Tensor) -> tuple[Callable[..., Any], int] | None:
        """Return a function of two tensors, or of one and weights that are broadcast."""
        torch, r = self.torch, self.random
        if not one.ndim:
            return None
        axis = r.randrange(one.ndim)
        shape = [size if r.random() < 0.5 else 1 for size in one.shape[r.randrange(one.ndim) :]]
        weight = torch.randn(shape, generator=self.generator)
        binary = r.choice([torch.add, torch.mul, torch.sub, torch.maximum, lambda a, b: a / (b.abs() + 1)])
        try:
            fits = torch.broadcast_shapes(one.shape, other.shape) is not None
        except RuntimeError:
            fits = False
        can_join = one.ndim == other.ndim and all(
            a == b for at, (a, b) in enumerate(zip(one.shape, other.shape)) if at != axis
        )
        options: list[tuple[Callable[..., Any], int] | None] = [
            ((lambda x: binary(x, weight)), 1),
            (binary, 2) if fits else None,
            ((lambda x, y: torch.cat([x, y], axis)), 2) if can_join else None,
            ((lambda x: torch.cat([x, -x, x], axis)), 1),
            ((lambda x: torch.stack([x, x + 1], axis)), 1) if one.ndim < 5 else None,
            ((lambda x: x - x.mean(axis, keepdim=True)), 1),
            ((lambda x: x * x.mean(axis, keepdim=True).sigmoid()), 1),
            ((lambda x: torch.where(weight > 0, x, -x)), 1),
        ]
        return r.choice(options)
