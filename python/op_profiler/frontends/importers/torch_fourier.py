"""Fourier transforms of torch as products with a matrix of sines and cosines, since TVM has no fast Fourier transform.

A transform of n values takes n^2 multiplications for each row, where a fast one takes about n log n.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from op_profiler.frontends.importers.torch_library import torch

Parts = tuple[Any, Any]
"""Real and imaginary part of a tensor; the imaginary part of a real tensor is None."""
_FORWARD, _INVERSE = -1, 1
"""Sign of the exponent."""


def _one_axis(transform: Callable[..., Parts]) -> Callable[..., Parts]:
    """Return the function of one axis, such as ``fft_fft``."""

    def call(data: Parts, size: int | None = None, axis: int = -1, norm: str | None = None) -> Parts:
        return transform(data, None if size is None else [size], [axis], norm)

    return call


def _complex(sign: int) -> Callable[..., Parts]:
    def transform(
        data: Parts, sizes: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str | None = None
    ) -> Parts:
        for axis, size in _spans(data[0], sizes, axes):
            data = _product(_sized(data, axis, size), axis, _matrix(size, sign), sign, norm)
        return data

    return transform


def _from_real(
    data: Parts, sizes: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str | None = None
) -> Parts:
    """Return the first half of the spectrum of a real tensor; the other half mirrors it."""
    *others, (axis, size) = _spans(data[0], sizes, axes)
    half = _matrix(size, _FORWARD)[:, : size // 2 + 1]
    data = _product(_sized(data, axis, size), axis, half, _FORWARD, norm)
    for axis, size in others:
        data = _product(_sized(data, axis, size), axis, _matrix(size, _FORWARD), _FORWARD, norm)
    return data


def _to_real(
    data: Parts, sizes: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str | None = None
) -> Parts:
    """Invert `_from_real`: each value but the first, and the middle one of an even size, occurs twice."""
    *others, (axis, size) = _spans(data[0], sizes, axes, is_half=True)
    for other, length in others:
        data = _product(_sized(data, other, length), other, _matrix(length, _INVERSE), _INVERSE, norm)
    kept = size // 2 + 1
    times = np.full((kept, 1), 2.0)
    times[0] = 1.0
    if size % 2 == 0:
        times[-1] = 1.0
    return _product(_sized(data, axis, kept), axis, times * _matrix(size, _INVERSE)[:kept], _INVERSE, norm)


def _spans(
    data: Any, sizes: Sequence[int] | None, axes: Sequence[int] | None, *, is_half: bool = False
) -> list[tuple[int, int]]:
    """Return the axes to transform and their sizes.

    Args:
        is_half: whether the last of the axes is half a spectrum.
    """
    if axes is None:
        axes = range(data.ndim - len(sizes), data.ndim) if sizes else range(data.ndim)
    axes = [axis % data.ndim for axis in axes]
    found = list(sizes) if sizes else [-1] * len(axes)
    whole = [int(data.shape[axis]) for axis in axes]  # tensors in a trace
    if is_half:
        whole[-1] = 2 * (whole[-1] - 1)
    return [(axis, size if size > 0 else length) for axis, size, length in zip(axes, found, whole, strict=True)]


def _matrix(size: int, sign: int) -> np.ndarray:
    """Return the complex factors of a transform, in double precision."""
    places = np.arange(size)
    return np.exp(sign * 2j * np.pi * (np.outer(places, places) % size) / size)


def _sized(data: Parts, axis: int, size: int) -> Parts:
    """Cut an axis, or fill it with zeros."""

    def one(part: Any) -> Any:
        missing = size - int(part.shape[axis])
        if missing <= 0:
            return part.narrow(axis, 0, size) if missing else part
        zeros = part.new_zeros([*part.shape[:axis], missing, *part.shape[axis + 1 :]])
        return torch.cat([part, zeros], axis)

    return one(data[0]), None if data[1] is None else one(data[1])


def _product(data: Parts, axis: int, matrix: np.ndarray, sign: int, norm: str | None) -> Parts:
    """Multiply an axis by a matrix, scaled as the norm says by the size of the transform."""
    size = max(matrix.shape)
    scale = {"ortho": 1 / math.sqrt(size), "forward": 1 / size if sign == _FORWARD else 1.0}
    matrix = matrix * scale.get(norm or "backward", 1 / size if sign == _INVERSE else 1.0)
    real: Any
    real, imaginary = (None if part is None else part.movedim(axis, -1) for part in data)
    cosine, sine = (torch.from_numpy(np.ascontiguousarray(one)).to(real.dtype) for one in (matrix.real, matrix.imag))
    made = real @ cosine, real @ sine
    if imaginary is not None:
        made = made[0] - imaginary @ sine, made[1] + imaginary @ cosine
    return made[0].movedim(-1, axis), made[1].movedim(-1, axis)


def _stft(
    data: Parts,
    size: int,
    step: int | None = None,
    width: int | None = None,
    window: Parts | None = None,
    normalized: bool = False,
    onesided: bool | None = None,
    _is_complex: bool | None = None,
    _align: bool | None = None,
) -> Parts:
    """Transform frames of a signal. Shapes: (..., samples) to (..., frequencies, frames)."""
    width = width or size
    weights = window[0] if window is not None else torch.ones(width, dtype=data[0].dtype)
    before = (size - width) // 2
    weights = torch.nn.functional.pad(weights, (before, size - width - before))
    frames = data[0].unfold(-1, size, step or size // 4) * weights
    norm = "ortho" if normalized else None
    transform = _complex(_FORWARD) if onesided is False else _from_real
    real, imaginary = transform((frames, None), None, [-1], norm)
    return real.transpose(-1, -2), imaginary.transpose(-1, -2)


_SPACES: dict[str, Callable[..., Parts]] = {
    "fft": _complex(_FORWARD),
    "ifft": _complex(_INVERSE),
    "rfft": _from_real,
    "irfft": _to_real,
}


def _plane(transform: Callable[..., Parts]) -> Callable[..., Parts]:
    """Return the function of the last two axes, such as ``fft_fft2``."""

    def call(
        data: Parts, sizes: Sequence[int] | None = None, axes: Sequence[int] = (-2, -1), norm: str | None = None
    ) -> Parts:
        return transform(data, sizes, axes, norm)

    return call


FOURIER: dict[str, Callable[..., Parts]] = {
    **{f"aten::fft_{name}": _one_axis(transform) for name, transform in _SPACES.items()},
    **{f"aten::fft_{name}2": _plane(transform) for name, transform in _SPACES.items()},
    **{f"aten::fft_{name}n": transform for name, transform in _SPACES.items()},
    "aten::stft": _stft,
}
"""Functions of parts by the name of the operator; those of ``aten::fft_irfft``, ``2`` and ``n`` have a real result."""
