"""The convolution predictor of TinyNAS's op_profiler, reproduced exactly.

Convolutions of one kind, stride, fusion, kernel, batch and channel ratio form a plane over output channels and size. On
a plane, scipy interpolates linearly in milliseconds. Outside of the plane, or if the result is negative, the nearest
point is used, so nothing is extrapolated on a plane. For a ratio or a batch that is not in the table, the results of
the planes with other ratios or batches are interpolated. (alibaba/lightweight-neural-architecture-search,
tinynas/latency/op_profiler.)
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from scipy.interpolate import LinearNDInterpolator, NearestNDInterpolator
from scipy.spatial import QhullError

from op_profiler.dataset.formats.format import Convolutions
from op_profiler.prediction.library.library_predictor import LibraryPrediction

_SMALLEST_SIZE = 5  # rows with size 4 are left out
_Plane = Callable[[float, float], float]
_Group = tuple[int, int, int, int]  # depthwise, stride, fused, kernel


class OriginalPredictor:
    """TinyNAS's predictor as a `LibraryPredictor`: linear interpolation between fitted entries, without intervals."""

    def __init__(self, seed: int = 0) -> None:
        self._planes: dict[_Group, dict[int, dict[float, _Plane]]] = {}

    def fit(self, table: Convolutions) -> None:
        """Store a plane over output channels and size for each group of convolutions (see the module).

        Sizes below 5 are left out.
        """
        table = table.where(table.column("size") >= _SMALLEST_SIZE)
        names = ("depthwise", "stride", "fused", "kernel", "batch")
        keys = np.column_stack([*(table.column(name) for name in names), table.ratio * 100]).round().astype(np.int64)
        found, which = np.unique(keys, axis=0, return_inverse=True)
        for number, (depthwise, stride, fused, kernel, batch, percent) in enumerate(found.tolist()):
            rows = table.where(which.ravel() == number)
            batches = self._planes.setdefault((depthwise, stride, fused, kernel), {})
            batches.setdefault(batch, {})[percent / 100] = _plane(rows)

    def predict(self, table: Convolutions) -> LibraryPrediction:
        """Return the interpolated microseconds of each entry; NaN if the fitted table has no convolution of the entry's
        kind, stride, fusion and kernel."""
        estimates = [
            self._one((depthwise, stride, fused, kernel), batch, in_channels, size, out_channels) * 1e3
            for depthwise, batch, in_channels, size, out_channels, kernel, stride, fused in table.matrix.tolist()
        ]
        return LibraryPrediction.without_interval(np.asarray(estimates))

    def _one(self, group: _Group, batch: int, in_channels: int, size: int, out_channels: int) -> float:
        """Return the milliseconds of one convolution; NaN if the fitted table has no convolution of its group."""
        batches = self._planes.get(group, {})
        if not batches:
            return float("nan")
        ratio = 0.0 if in_channels == 3 else int(in_channels / out_channels * 100) / 100

        def at(wanted: int) -> float:
            return _at_ratio(batches[wanted], ratio, out_channels, size)

        if batch in batches:
            return at(batch)
        return _between({float(known): at(known) for known in batches}, float(batch))


def _at_ratio(planes: Mapping[float, _Plane], ratio: float, out_channels: int, size: int) -> float:
    if ratio in planes:
        return planes[ratio](out_channels, size)
    return _between({known: plane(out_channels, size) for known, plane in planes.items() if known > 0}, ratio)


def _between(values: Mapping[float, float], wanted: float) -> float:
    """Return the value at `wanted`, interpolated or extrapolated linearly.

    Only points whose value is larger than those of all points before them are used, and always the first two points. If
    the result is negative, the value of the first point is scaled in proportion.
    """
    places = sorted(values)
    if len(places) < 2:
        return values[places[0]] * wanted / places[0] if places else float("nan")
    kept = places[:2]
    for place in places[2:]:
        if values[place] > values[kept[-1]]:
            kept.append(place)
    after = int(np.clip(np.searchsorted(kept, wanted), 1, len(kept) - 1))
    (x0, x1), (y0, y1) = kept[after - 1 : after + 1], (values[kept[after - 1]], values[kept[after]])
    estimate = y0 + (y1 - y0) * (wanted - x0) / (x1 - x0)
    return estimate if estimate >= 0 else wanted / kept[0] * values[kept[0]]


def _plane(rows: Convolutions) -> _Plane:
    points = np.column_stack([rows.column("out_channels"), rows.column("size")]).astype(np.float64)
    milliseconds = rows.latency_us / 1e3
    linear: Any = None
    if len(points) > 3:
        try:
            linear = LinearNDInterpolator(points, milliseconds)
        except QhullError:  # the points lie on a line
            linear = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a plane of one width or size cannot be rescaled
        nearest = NearestNDInterpolator(points, milliseconds, rescale=True)

    def at(out_channels: float, size: float) -> float:
        estimate = float(linear(out_channels, size)) if linear is not None else float("nan")
        if np.isnan(estimate) or estimate < 0:
            return float(nearest(out_channels, size))
        return estimate

    return at
