"""Composes operators of torch of plainer ones, in torch itself, where torch's own decomposition is missing or too deep.

Each function has the arguments of its operator, and is only ever recorded (`torch_decompositions`), on tensors without
values.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from op_profiler.frontends.importers.torch_library import torch


def _expm1(data: Any) -> Any:
    """Return exp(x) - 1, exact for small values."""
    return torch.tanh(data * 0.5) * (torch.exp(data) + 1)


def _atan2(y: Any, x: Any) -> Any:
    """Return the angle of the point (x, y)."""
    half = torch.where(_signbit(y), -torch.pi, torch.pi)
    none = torch.zeros_like(half)
    angle = torch.where(x == 0, half / 2, torch.atan(y / x) + torch.where(x < 0, half, none))
    return torch.where(y == 0, torch.where(_signbit(x), half, none), angle)


def _signbit(data: Any) -> Any:
    """Return whether values are negative; -0.0 is."""
    return (data < 0) | ((data == 0) & (1 / data < 0)) if data.is_floating_point() else data < 0


def _copysign(data: Any, sign: Any) -> Any:
    return torch.where(_signbit(sign), -data.abs(), data.abs())


def _larger(one: Any, other: Any) -> Any:
    """Return the larger values; NaN only where both are."""
    return torch.where(torch.isnan(one), other, torch.where(torch.isnan(other), one, torch.maximum(one, other)))


def _masked_scatter(data: Any, mask: Any, source: Any) -> Any:
    """Write the first values of `source`, in order, to the places of a mask."""
    if not source.numel():  # no place of the mask is set
        return data.clone()
    mask = mask.expand_as(data)
    place = (torch.cumsum(mask.reshape(-1).to(torch.int64), 0) - 1).clamp(0, source.numel() - 1)
    return torch.where(mask, source.reshape(-1).index_select(0, place).reshape(data.shape), data)


def _index_add(data: Any, axis: int, index: Any, source: Any, *, alpha: float = 1) -> Any:
    return data.scatter_add(axis, _along(data, axis, index, source), source * alpha if alpha != 1 else source)


def _index_copy(data: Any, axis: int, index: Any, source: Any) -> Any:
    return data.scatter(axis, _along(data, axis, index, source), source)


def _index_fill(data: Any, axis: int, index: Any, value: float) -> Any:
    shape = [*data.shape[: axis % data.ndim], index.numel(), *data.shape[axis % data.ndim + 1 :]]
    return _index_copy(data, axis, index, torch.full(shape, value, dtype=data.dtype))


def _along(data: Any, axis: int, index: Any, source: Any) -> Any:
    """Return indices along an axis in the shape of `source`."""
    return index.reshape([-1 if at == axis % data.ndim else 1 for at in range(data.ndim)]).expand(source.shape)


def _as_strided(data: Any, size: Sequence[int], stride: Sequence[int], offset: int | None = None) -> Any:
    """Return elements by their places in memory, which are known from the strides that `data` had in the trace.

    Raises:
        ValueError: a place lies outside of `data`, or the offset counts from the start of a memory that is not known.
    """
    if offset:
        raise ValueError("the start of the memory is not known")
    held = {place: at for at, place in enumerate(_places(data.shape, data.stride()))}
    wanted = [held.get(place, -1) for place in _places(size, stride)]
    if min(wanted) < 0:
        raise ValueError("a place lies outside of the tensor")
    return data.reshape(-1).index_select(0, torch.from_numpy(np.array(wanted))).reshape(size)


def _places(size: Sequence[int], stride: Sequence[int]) -> list[int]:
    steps = [[step * at for at in range(count)] for count, step in zip(size, stride, strict=True)]
    return [sum(parts) for parts in itertools.product(*steps)]


def _histc(data: Any, bins: int = 100, low: float = 0, high: float = 0) -> Any:
    """Count the values in each of `bins` intervals of equal width.

    Raises:
        ValueError: there are no bounds; they would be the extremes of the data.
    """
    if low == high:
        raise ValueError("no bounds")
    flat = data.reshape(-1, 1)
    place = torch.floor((flat - low) * (bins / (high - low))).clamp(max=bins - 1)  # the last interval contains its end
    found = (flat >= low) & (flat <= high) & (place == torch.arange(bins, dtype=data.dtype))
    return found.to(data.dtype).sum(0)


def _grouped_mm(data: Any, weights: Any, ends: Any = None, bias: Any = None, kind: Any = None) -> Any:
    """Multiply rows, sorted by group, by the weights of their group, as mixtures of experts do.

    TVM has no product whose groups have sizes known only at run time. At most as many rows as groups are multiplied by
    a copy of the weights of their group; more rows are multiplied by the weights of all groups, and one result is kept.

    Args:
        ends: the row at which each group ends.

    Shapes: (rows, inner), (groups, inner, outer), (groups,) to (rows, outer); or (groups, rows, inner), (groups, inner,
    outer) to (groups, rows, outer).

    Raises:
        ValueError: other shapes.
    """
    if bias is not None or kind is not None or weights.ndim != 3 or (ends is None) == (data.ndim == 2):
        raise ValueError("other shapes")
    if ends is None:
        return torch.bmm(data, weights)
    row = torch.arange(data.shape[0])
    group = (ends[None] <= row[:, None]).to(torch.int64).sum(1).clamp(max=len(weights) - 1)
    if len(data) <= len(weights):
        return torch.bmm(data[:, None], weights.index_select(0, group))[:, 0]
    every = torch.bmm(data.expand(len(weights), *data.shape), weights)
    return every.reshape(-1, every.shape[-1]).index_select(0, group * len(data) + row)


def _solve_triangular(matrix: Any, right: Any, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Any:
    """Solve A X = B, or X A = B if not `left`, for a triangular A.

    A is D (I - N) with a diagonal D and a nilpotent N, so its inverse is (I + N) (I + N^2) (I + N^4) ... D^-1.
    """
    if not left:
        given = {"upper": not upper, "unitriangular": unitriangular}
        return _solve_triangular(matrix.mT, right.mT, **given).mT
    whole = torch.diagonal(matrix, dim1=-2, dim2=-1)[..., None]
    power = -torch.triu(matrix, 1) if upper else -torch.tril(matrix, -1)
    found = right
    if not unitriangular:
        power, found = power / whole, right / whole
    for _ in range((matrix.shape[-1] - 1).bit_length()):
        found, power = found + torch.matmul(power, found), torch.matmul(power, power)
    return found


def _cdist(one: Any, other: Any, p: float, _mode: Any = None) -> Any:
    """Return the distance of each row from each row of another tensor."""
    return _norm(one[..., :, None, :] - other[..., None, :, :], p)


def _pdist(data: Any, p: float = 2) -> Any:
    """Return the distance of each row from each later row."""
    first, second = np.triu_indices(len(data), 1)
    return _norm(data.index_select(0, torch.from_numpy(first)) - data.index_select(0, torch.from_numpy(second)), p)


def _norm(data: Any, p: float) -> Any:
    if p == 2:
        return data.square().sum(-1).sqrt()
    if p == 0:
        return (data != 0).to(data.dtype).sum(-1)
    if p == float("inf"):
        return data.abs().amax(-1)
    return data.abs().sum(-1) if p == 1 else data.abs().pow(p).sum(-1).pow(1 / p)


def _resized(reach: float, weigh: Callable[[float], float]) -> Callable[..., Any]:
    """Return a function that resizes images with antialiasing, as two products with matrices of weights.

    Args:
        reach: distance in pixels beyond which `weigh` is 0.
        weigh: weight of a pixel by its distance.
    """

    def resize(data: Any, size: Sequence[int], corners: bool, *scales: float | None) -> Any:
        made = []
        for before, after, given in zip(data.shape[-2:], size, (*scales, None, None), strict=False):
            step = (before - 1) / max(after - 1, 1) if corners else 1 / given if given else before / after
            made.append(torch.from_numpy(np.array(_weights(before, after, step, reach, weigh))).to(data.dtype))
        return torch.matmul(made[0], torch.matmul(data, made[1].T))

    return resize


def _weights(before: int, after: int, step: float, reach: float, weigh: Callable[[float], float]) -> list[list[float]]:
    """Return, for each pixel after resizing, the weight of each pixel before."""
    wide = max(step, 1.0)
    rows = []
    for at in range(after):
        center = step * (at + 0.5)
        first, last = max(int(center - reach * wide + 0.5), 0), min(int(center + reach * wide + 0.5), before)
        found = [weigh(abs((one - center + 0.5) / wide)) if first <= one < last else 0.0 for one in range(before)]
        rows.append([one / sum(found) for one in found])
    return rows


def _triangle(distance: float) -> float:
    return max(1 - distance, 0.0)


def _cubic(distance: float) -> float:
    """Return Keys' cubic with a = -0.5."""
    if distance < 1:
        return (1.5 * distance - 2.5) * distance * distance + 1
    return ((-0.5 * distance + 2.5) * distance - 4) * distance + 2 if distance < 2 else 0.0


def _addbmm(data: Any, one: Any, other: Any, *, beta: float = 1, alpha: float = 1) -> Any:
    return beta * data + alpha * torch.bmm(one, other).sum(0)


def _trilinear(
    one: Any, two: Any, three: Any, new_one: Any, new_two: Any, new_three: Any, over: Any, _unroll: int = 1
) -> Any:
    """Return the sum, over some axes, of the product of three tensors, each with new axes."""
    for axis in sorted(new_one):
        one = one.unsqueeze(axis)
    for axis in sorted(new_two):
        two = two.unsqueeze(axis)
    for axis in sorted(new_three):
        three = three.unsqueeze(axis)
    return (one * two * three).sum(over)


def _conv_tbc(data: Any, weight: Any, bias: Any, pad: int = 0) -> Any:
    """Convolve over the first axis of (time, batch, channels)."""
    out = torch.nn.functional.conv1d(data.permute(1, 2, 0), weight.permute(2, 1, 0), bias, padding=pad)
    return out.permute(2, 0, 1)


def compositions() -> dict[Any, Any]:
    """Return the functions of this module, each by the operator of torch that it replaces."""
    aten = torch.ops.aten
    return {
        aten._cdist_forward.default: _cdist,
        aten._grouped_mm.default: _grouped_mm,
        aten._pdist_forward.default: _pdist,
        aten._trilinear.default: _trilinear,
        aten._upsample_bicubic2d_aa.default: _resized(2, _cubic),
        aten._upsample_bilinear2d_aa.default: _resized(1, _triangle),
        aten.acosh.default: lambda data: torch.log(data + torch.sqrt(data * data - 1)),
        aten.addbmm.default: _addbmm,
        aten.as_strided.default: _as_strided,
        aten.asinh.default: lambda data: torch.sign(data) * torch.log(data.abs() + torch.sqrt(data * data + 1)),
        aten.atan2.default: _atan2,
        aten.atanh.default: lambda data: 0.5 * (torch.log1p(data) - torch.log1p(-data)),
        aten.conv_tbc.default: _conv_tbc,
        aten.convolution.default: lambda *given: aten._convolution.default(*given, False, False, False, False),
        aten.copysign.Tensor: _copysign,
        aten.erfc.default: lambda data: 1 - torch.erf(data),
        aten.expm1.default: _expm1,
        aten.fmax.default: _larger,
        aten.fmin.default: lambda one, other: -_larger(-one, -other),
        aten.histc.default: _histc,
        aten.hypot.default: lambda one, other: torch.sqrt(one * one + other * other),
        aten.index_add.default: _index_add,
        aten.index_copy.default: _index_copy,
        aten.index_fill.int_Scalar: _index_fill,
        aten.linalg_solve_triangular.default: _solve_triangular,
        aten.masked_scatter.default: _masked_scatter,
        aten.signbit.default: _signbit,
    }
