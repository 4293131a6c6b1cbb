"""Interpolation between measured operators that differ only in their sizes.

Operators of one family have the same ops, window, stride, blocks and transposed arguments, and run at one thread count,
all in networks or all in batches of sampled operators. Their time over the roofline bound is interpolated linearly over
the logarithms of the sizes that vary in the family (barycentric over a Delaunay triangulation,
`scipy.interpolate.LinearNDInterpolator`), only inside the convex hull of the measured sizes.
"""

from __future__ import annotations

import functools
import hashlib
from typing import Any

import numpy as np

from op_profiler.prediction.latency.features import NAMES
from op_profiler.prediction.latency.query import Query

_AXES = [NAMES.index(name) for name in ("rows", "columns", "reduction", "batch", "width")]
"""Features to interpolate over, besides the bytes that the network moves."""
_FIXED = [
    at
    for at, name in enumerate(NAMES)
    if name.startswith("is_")
    or name in ("window", "stride", "in_block", "out_block", "transposed_a", "transposed_b")
    or name in ("inputs", "ops", "transcendental", "roots", "moves", "rank")
]
_MULTIPLIERS = np.random.default_rng(0).integers(1, 2**63, size=len(_FIXED) + 2, dtype=np.uint64) | np.uint64(1)
_MOST_AXES = 4
_POINTS_PER_AXIS = 8
_SPREAD = 0.5
"""Range from which on an axis counts as varying: half a factor of two, as sizes are logarithms to base 2."""


def families_of(query: Query) -> np.ndarray:
    """Return a number for each entry, equal for entries of one family, shape (entries,), uint64.

    The number is a multiply-shift hash (Dietzfelbinger et al., 1997) of all properties that a family has in common, so
    it is the same in every process.
    """
    fixed = np.column_stack([query.features[:, _FIXED], query.network])
    words = np.array([_digest(ops) for ops in query.op_sets], dtype=np.uint64)[query.vocabulary]
    parts = np.ascontiguousarray(fixed, dtype=np.float32).view(np.uint32).astype(np.uint64)
    families: np.ndarray = (parts * _MULTIPLIERS[:-1]).sum(axis=1, dtype=np.uint64)
    return families ^ (words * _MULTIPLIERS[-1]) ^ (query.threads.astype(np.uint64) << np.uint64(48))


@functools.lru_cache(maxsize=1 << 12)
def _digest(words: frozenset[str]) -> int:
    return int.from_bytes(hashlib.blake2b("|".join(sorted(words)).encode(), digest_size=8).digest(), "little")


class Interpolation:
    """Interpolators of all families, each created at its first use.

    Attributes:
        learned: the arguments of the constructor.

    Args:
        query: the measured operators; `families`: their families, see `families_of`.
        target: values to interpolate, shape (entries,): logarithm of the time over the roofline bound.
    """

    def __init__(self, query: Query, families: np.ndarray, target: np.ndarray) -> None:
        self.learned = query, families, target
        self._points = _axes(query)
        self._target = target
        order = np.argsort(families, kind="stable")
        names, starts = np.unique(families[order], return_index=True)
        self._members = dict(zip(names.tolist(), np.split(order, starts[1:])))
        self._made: dict[int, tuple[np.ndarray, Any] | None] = {}

    def predict(self, query: Query, families: np.ndarray) -> np.ndarray:
        """Return the interpolated value of each entry, shape (entries,).

        A value is NaN if the entry is outside the convex hull of its family's measured operators, or if there are too
        few of them.

        Args:
            families: result of `families_of` for `query`.
        """
        found = np.full(len(query), np.nan)
        points = _axes(query)
        for family in np.unique(families).tolist():
            made = self._interpolator(family)
            if made is not None:
                axes, interpolator = made
                mine = np.flatnonzero(families == family)
                found[mine] = interpolator(points[np.ix_(mine, axes)])
        return found

    def _interpolator(self, family: int) -> tuple[np.ndarray, Any] | None:
        if family not in self._made:
            members = self._members.get(family)
            self._made[family] = None if members is None else self._make(members)
        return self._made[family]

    def _make(self, members: np.ndarray) -> tuple[np.ndarray, Any] | None:
        from scipy import interpolate, spatial

        points = self._points[members]
        spread = points.max(axis=0) - points.min(axis=0)
        axes = np.flatnonzero(spread > _SPREAD)
        axes = np.sort(axes[np.argsort(spread[axes])[::-1]][:_MOST_AXES])
        if len(axes) < 2 or len(members) < _POINTS_PER_AXIS * len(axes):
            return None
        places, which = np.unique(points[:, axes], axis=0, return_inverse=True)
        values = np.bincount(which.ravel(), self._target[members]) / np.bincount(which.ravel())
        try:
            return axes, interpolate.LinearNDInterpolator(places, values)
        except spatial.QhullError:  # all points lie in one plane
            return None


def _axes(query: Query) -> np.ndarray:
    traffic = np.log2(np.maximum(query.traffic_bytes, 1.0))
    return np.column_stack([query.features[:, _AXES], traffic]).astype(np.float64)
