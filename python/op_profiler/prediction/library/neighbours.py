"""Features of a convolution's shape, and times of its neighbours on the table's grid.

The features count the quantities that fast kernels quantise: output tiles of a matrix product with their padding, and
tiles of Winograd's algorithm with their padding (Lavin and Gray, 2016).
"""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np

from op_profiler.dataset.formats.format import FIELDS, Convolutions

_OVERHEAD_US = 5.0
_SIDES = (2, 4, 6, 8, 16, 32)
_TILES = ((128, 128), (128, 64), (64, 64), (128, 32), (256, 64))
_BLOCKS = (*_TILES, (32, 32), (64, 32), (256, 128), (64, 128), (32, 128))
_WINOGRAD = ((2, 16), (3, 25), (4, 36), (6, 64))  # side of an output tile, and its number of products
_SQUARES = tuple(itertools.product((8, 16), (32, 64)))  # side of a block's output square, and its channels
_DISTANCE = 0.05  # octaves added to distances, so that one close neighbour does not dominate
_RATIO = ("out_channels", "in_channels")  # vary together
_ROWS = ("batch", "size")  # a matrix product has one row per pixel of the batch
_AXES = (
    *(("size",), _RATIO, ("in_channels",), ("out_channels",), ("batch",)),
    *(("kernel",), ("fused",), ("stride",), ("depthwise",), _ROWS),
)  # axes along which neighbours differ
_BATCHES = 1024
_INTERPOLATED = 5  # the first axes are quantities and can be interpolated


@dataclasses.dataclass(frozen=True)
class TableRoofline:
    """Roofline of a table: the 98th percentiles of the rates that its entries reach (Williams et al., 2009)."""

    flops_per_us: float
    bytes_per_us: float

    @classmethod
    def of(cls, table: Convolutions) -> TableRoofline:
        """Return the rates of a table whose entries all have a time."""
        flops, moved = work_of(table)
        return cls(
            float(np.quantile(flops / table.latency_us, 0.98)), float(np.quantile(moved / table.latency_us, 0.98))
        )

    def bounds_us(self, table: Convolutions) -> tuple[np.ndarray, np.ndarray]:
        """Return the computation time and the memory traffic time of each entry, microseconds, shape (entries,)
        each."""
        flops, moved = work_of(table)
        return flops / self.flops_per_us, moved / self.bytes_per_us

    def latency_us(self, table: Convolutions) -> np.ndarray:
        """Return the longer of the two times of `bounds_us`, plus the time to start a kernel, microseconds, shape
        (entries,)."""
        return np.maximum(*self.bounds_us(table)) + _OVERHEAD_US


def shape_features(table: Convolutions, roofline: TableRoofline, units: int) -> np.ndarray:
    """Return the features of each shape, which include no measured time, as float32, shape (entries, features).

    Args:
        units: number of blocks that the device computes at once, as one wave; a kernel takes a whole number of waves.
    """
    plain = table.matrix.astype(np.float64)
    depthwise, batch, inputs, size, outputs, kernel, stride, fused = plain.T
    side = np.ceil(size / stride)
    rows, depth = batch * side**2, _depth(table)
    flops, moved = work_of(table)
    compute, memory = roofline.bounds_us(table)
    rooflines_us = roofline.latency_us(table)
    sizes = (batch, inputs, size, outputs, kernel, side, flops, moved, flops / moved, rows, depth)
    products = (rows * outputs, batch * outputs)
    columns = [np.log2(x) for x in (*sizes, *products, rooflines_us, compute / memory)]
    columns += [depthwise, stride, fused, kernel, inputs / outputs, inputs == 3]
    for high, wide in _TILES:
        tiles = np.ceil(rows / high) * np.ceil(outputs / wide)
        columns += [np.log2(tiles), tiles * high * wide / (rows * outputs)]
    columns += [channels % step for step in (8, 16, 32, 64) for channels in (inputs, outputs)]
    columns += [np.ceil(side / step) * step / side for step in _SIDES]
    columns += list(np.log2(blocked_us(table, roofline, units) / rooflines_us))
    return np.column_stack(columns).astype(np.float32)


def blocked_us(table: Convolutions, roofline: TableRoofline, units: int) -> np.ndarray:
    """Return the estimated times of each convolution by kernels that compute whole blocks, `units` blocks at once.

    This is wave quantisation (NVIDIA, Matrix Multiplication Background, 2023).

    Returns:
        Microseconds, shape (kernels, entries): first one row for each block size of matrix products, then rows for
        Winograd's kernels.
    """
    _, batch, inputs, size, outputs, _, stride, _ = table.matrix.astype(np.float64).T
    side = np.ceil(size / stride)
    depth, channels = (np.ceil(each / 8) * 8 for each in (_depth(table), inputs))

    def waves_us(blocks: np.ndarray, multiply_adds: np.ndarray) -> np.ndarray:
        us: np.ndarray = np.ceil(blocks / units) * units * multiply_adds * 2 / roofline.flops_per_us + _OVERHEAD_US
        return us

    kernels = [
        waves_us(np.ceil(batch * side**2 / high) * np.ceil(outputs / wide), high * wide * depth)
        for high, wide in _BLOCKS
    ]
    for tile, products in _WINOGRAD:
        tiles = batch * np.ceil(side / tile) ** 2
        kernels.append(waves_us(np.ceil(tiles / 32) * np.ceil(outputs / 32), 32 * 32 * channels * products))
    for square, wide in _SQUARES:
        blocks = batch * np.ceil(side / square) ** 2 * np.ceil(outputs / wide)
        kernels.append(waves_us(blocks, square**2 * wide * channels * 9))
    return np.stack(kernels)


def bases_us(table: Convolutions, roofline: TableRoofline, units: int) -> np.ndarray:
    """Return the estimates of four simple models of the device for each convolution, in microseconds.

    The errors of the models differ, so the regressions that correct them differ too.

    Returns:
        Shape (4, entries): the roofline; the longer of the fastest matrix product in whole blocks and the memory
        traffic; the sum of these two; the mean over the matrix products in whole blocks.
    """
    products = blocked_us(table, roofline, units)[: len(_BLOCKS)]
    memory = roofline.bounds_us(table)[1] + _OVERHEAD_US
    fastest = products.min(axis=0)
    return np.stack([roofline.latency_us(table), np.maximum(fastest, memory), fastest + memory, products.mean(axis=0)])


@dataclasses.dataclass(frozen=True)
class Surroundings:
    """Features and an estimate of each entry, from the known values at its neighbours.

    Attributes:
        features: shape (entries, 9 for each axis): values at the neighbours on an axis and distances to them
            (`_along`), NaN if there is no neighbour.
        estimate: estimated value, shape (entries,): interpolated between neighbours on both sides; otherwise the mean
            of the nearest neighbours; 0 if there is no neighbour.
    """

    features: np.ndarray
    estimate: np.ndarray


def surroundings(known: Convolutions, values: np.ndarray, wanted: Convolutions) -> Surroundings:
    """Return the values at the neighbours that each entry of `wanted` has in `known`; an entry is never its own
    neighbour.

    Args:
        values: value of each entry of `known`.
    """
    columns: list[np.ndarray] = []
    between, nearest = _Mean(len(wanted)), _Mean(len(wanted))
    for number, axis in enumerate(_AXES):
        found = _along(known, values, wanted, axis)
        columns += found
        if number < _INTERPOLATED:
            before, after, middle, to_before, to_after = found[:5]
            between.add(middle, to_after - to_before)
            nearest.add(before, -to_before)
            nearest.add(after, to_after)
    interpolated = between.mean()
    estimate = np.where(np.isfinite(interpolated), interpolated, np.nan_to_num(nearest.mean()))
    return Surroundings(np.column_stack(columns).astype(np.float32), estimate)


def _along(known: Convolutions, values: np.ndarray, wanted: Convolutions, axis: tuple[str, ...]) -> list[np.ndarray]:
    """Return arrays about the two nearest neighbours on each side of an entry that differ from it on one axis only.

    Returns:
        values of the nearest neighbours before and after, the interpolated value, their distances in octaves, values of
        the second neighbours before and after, and the values extrapolated from both neighbours of a side.
    """
    line_known, line_wanted = _lines(known, wanted, axis)
    place_known, place_wanted = _place(known, axis), _place(wanted, axis)
    span = int(max(place_known.max(initial=0), place_wanted.max(initial=0))) + 1
    keys = line_known * span + place_known
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    sought = line_wanted * span + place_wanted
    start = 1 if axis[0] in ("fused", "depthwise") else 0  # flags may be 0, which has no logarithm

    def at(index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        row = order[np.clip(index, 0, len(order) - 1)]
        there = (index >= 0) & (index < len(order)) & (line_known[row] == line_wanted)
        distance = np.log2((place_known[row] + start) / (place_wanted + start))
        return np.where(there, values[row], np.nan), np.where(there, distance, np.nan)

    low, high = np.searchsorted(keys, sought, "left") - 1, np.searchsorted(keys, sought, "right")
    (before, to_before), (before2, to_before2) = at(low), at(low - 1)
    (after, to_after), (after2, to_after2) = at(high), at(high + 1)
    share = to_after / (to_after - to_before)
    with np.errstate(divide="ignore", invalid="ignore"):
        from_before = before - (before - before2) / (to_before - to_before2) * to_before
        from_after = after - (after - after2) / (to_after - to_after2) * to_after
    middle = before * share + after * (1 - share)
    return [before, after, middle, to_before, to_after, before2, after2, from_before, from_after]


def _place(table: Convolutions, axis: tuple[str, ...]) -> np.ndarray:
    """Return the positions of entries on an axis."""
    if axis != _ROWS:
        return table.column(axis[0])
    batch, size = table.column("batch"), table.column("size")
    # The batch adds a negligible distance, so that entries with equally many rows and another batch are neighbours.
    return batch * size**2 * _BATCHES + np.minimum(batch, _BATCHES - 1)


def _lines(known: Convolutions, wanted: Convolutions, axis: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return the number of the line of each entry of both tables; the entries of a line differ only along the axis."""

    def rest(table: Convolutions) -> list[np.ndarray]:
        percent = np.round(table.ratio * 100).astype(np.int64)
        return [table.column(name) for name in FIELDS if name not in axis] + ([percent] if axis == _RATIO else [])

    line = np.zeros(len(known) + len(wanted), dtype=np.int64)
    for one, other in zip(rest(known), rest(wanted)):
        both = np.concatenate([one, other])
        line = np.unique(line * (both.max(initial=0) + 1) + both, return_inverse=True)[1].ravel()
    return line[: len(known)], line[len(known) :]


class _Mean:
    """A weighted mean over neighbours, in which closer ones have more weight."""

    def __init__(self, entries: int) -> None:
        self._sum, self._weight = np.zeros(entries), np.zeros(entries)

    def add(self, values: np.ndarray, distance: np.ndarray) -> None:
        there = np.isfinite(values)
        weight = np.where(there, 1 / (_DISTANCE + distance), 0.0)
        self._sum += np.where(there, values * weight, 0.0)
        self._weight += weight

    def mean(self) -> np.ndarray:
        return np.divide(self._sum, self._weight, out=np.full(len(self._sum), np.nan), where=self._weight > 0)


def _depth(table: Convolutions) -> np.ndarray:
    """Return the number of multiply-adds of one output."""
    channels = np.where(table.column("depthwise") == 1, 1, table.column("in_channels"))
    return (channels * table.column("kernel") ** 2).astype(np.float64)


def work_of(table: Convolutions) -> tuple[np.ndarray, np.ndarray]:
    """Return the FLOPs of each convolution, and the bytes that it moves if each tensor is moved once as FP32."""
    plain = table.matrix.astype(np.float64)
    _, batch, inputs, size, outputs, _, stride, fused = plain.T
    written = batch * outputs * np.ceil(size / stride) ** 2
    weights = outputs * _depth(table)
    return 2 * written * _depth(table), 4 * (batch * inputs * size**2 + written * (1 + fused) + weights)
