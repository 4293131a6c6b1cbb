"""`Correction`: what few measurements on a device change about predictions that were learned elsewhere.

The rest that is learned is the logarithm of measured over predicted. All operators have a part of it in common, those
that are as parallel, those of one kind, those that are computed the same way, and those whose time goes into the same:
arithmetic, chains of sums, calls, and what each cache and the memory hand on differ from processor to processor each by
itself. Where the device that is known was wrong itself, as about kinds that were never measured on it, those are as far
off whose loops do about the same. `op_profiler.prediction.latency.gaussian_process` weighs these against each other.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from op_profiler.prediction.latency.features import KINDS, NAMES
from op_profiler.prediction.latency.gaussian_process import GaussianProcess
from op_profiler.prediction.latency.kernel_model import KernelModel
from op_profiler.prediction.latency.launch_model import LaunchModel
from op_profiler.prediction.latency.query import Query
from op_profiler.prediction.latency.roofline import Roofline
from op_profiler.prediction.latency.traffic import NAMES as LOOP_NAMES
from op_profiler.prediction.latency.traffic import PARTS
from op_profiler.prediction.latency.vectors import in_other_vectors

MOST_LEARNED = 1500
"""Measurements that a correction is learned from at most; what that takes grows with their cube."""
_APART, _NEAR = 10.0, 3.0
"""Between what says nothing of each other, and what says a little."""
_SHARE = 0.3
"""Difference between two shares of a time that is near."""
_KIND_COLUMNS = [NAMES.index(f"is_{kind}") for kind in KINDS]
_WINDOWED = ("is_conv2d", "is_depthwise", "is_grouped", "is_other_conv", "is_pool")
_BLOCKED_RANK, _PLAIN_RANK = 5, 4
_CONTIGUOUS_BYTES = 4
_ODD_SHARE = 0.1
"""Of a kernel's instructions that makes it one of odd vectors."""
_OF_HELD_OUT = 0.5
"""How much of what was left of held-out measurements is left once all are learned from: regressions then say a part of
it. On each of the processors that ship, taken for a new one with 200 operators, half was closer."""


@dataclasses.dataclass(frozen=True)
class Correction:
    """Correction of predictions for another device, or for one with few measurements.

    Attributes:
        ratio: how much longer the vectors of the device are that is known (`op_profiler.prediction.latency.vectors`).
        looped: what is added where loops are known; None where they were not.
        plain: what is added where they are not; None: nothing is.
        loop_spreads: standard deviations of the loops of what it was fitted to, shape (len(LOOP_NAMES),).
    """

    ratio: float
    looped: GaussianProcess | None
    plain: GaussianProcess | None
    loop_spreads: np.ndarray

    @classmethod
    def fit(
        cls,
        ratio: float,
        query: Query,
        rest: tuple[np.ndarray, np.ndarray],
        weight: np.ndarray,
        roofline: Roofline,
        kernels: KernelModel | LaunchModel | None,
    ) -> Correction:
        """Fit to measurements, one per entry of `query`.

        Args:
            rest: logarithm of measured over what the other device's predictor says: with loops, which counts where
                these are known, and without.
            roofline: of the other device; `kernels`: too.
        """
        known = query.has_loops
        looped = None
        spreads = np.ones(len(LOOP_NAMES))
        if kernels is not None and known.any():
            seen = query.take(known)
            spreads = spreads_of(seen.loops)
            looped = GaussianProcess.fit(looped_places(seen, kernels, spreads), rest[0][known], weight[known])
        plain = GaussianProcess.fit(_plain_places(query, roofline), rest[1], weight)
        return cls(ratio, looped, plain, spreads)

    @classmethod
    def of_held_out(
        cls, query: Query, rest: np.ndarray, weight: np.ndarray, kernels: KernelModel | LaunchModel
    ) -> tuple[Correction, np.ndarray]:
        """Fit to the held-out errors of a device's own predictor, trained on few measurements and on other devices.

        Args:
            query: measurements whose loops are known.
            rest: logarithm of measured over predicted where each was held out.

        Returns:
            The correction, and what it leaves of the rest where all measurements of an operator are left out.
        """
        spreads = spreads_of(query.loops)
        process = GaussianProcess.fit(looped_places(query, kernels, spreads), rest, weight)
        left = rest + _OF_HELD_OUT * (process.off_if_left_out(query.keys) - rest)
        part = dataclasses.replace(process, coefficients=_OF_HELD_OUT * process.coefficients)
        return cls(1.0, part, None, spreads), left

    def seen(self, query: Query) -> Query:
        """The operators as the other device's predictor takes them."""
        return self.seen_in(self.ratio, query)

    @staticmethod
    def seen_in(ratio: float, query: Query) -> Query:
        """The operators with vectors `ratio` times as long."""
        if ratio == 1.0:
            return query
        return dataclasses.replace(query, features=in_other_vectors(query.columns, ratio)[:, : len(NAMES)])

    def off_if_left_out(self, query: Query, group: np.ndarray) -> np.ndarray:
        """Return the error on each measurement of the fit if its whole group were left out."""
        assert self.plain is not None, "of `fit`"
        found = self.plain.off_if_left_out(group)
        if self.looped is not None:
            found[query.has_loops] = self.looped.off_if_left_out(group[query.has_loops])
        return found

    def predict(self, query: Query, roofline: Roofline, kernels: KernelModel | LaunchModel | None) -> np.ndarray:
        """Return the correction to the logarithm of the time, shape (entries,)."""
        found = np.zeros(len(query))
        known = query.has_loops if self.looped is not None else np.zeros(len(query), dtype=bool)
        if self.looped is not None and kernels is not None and known.any():
            found[known] = self.looped.predict(looped_places(query.take(known), kernels, self.loop_spreads))
        if self.plain is not None and not known.all():
            found[~known] = self.plain.predict(_plain_places(query.take(~known), roofline))
        return found


def spreads_of(loops: np.ndarray) -> np.ndarray:
    """Return the standard deviation of each column; inf for constant columns, which then have no weight."""
    found = loops.std(axis=0, dtype=np.float64)
    return np.where(found > 0, found, np.inf)


def looped_places(query: Query, kernels: KernelModel | LaunchModel, spreads: np.ndarray) -> list[np.ndarray]:
    """Return places by shares of the time in the model of kernels, and by loops: two operators are near if their
    columns differ by one standard deviation in the root mean square."""
    done = query.loops / (spreads * np.sqrt(len(spreads)))
    odd = _odd_lanes(query) if isinstance(kernels, KernelModel) else np.zeros((len(query), 1))
    return [*_places(query, kernels.threads, kernels.shares(query), odd), done]


def _plain_places(query: Query, roofline: Roofline) -> list[np.ndarray]:
    """By what the roofline says."""
    parts = roofline.parts_us(query.amounts, query.threads)
    parts = np.concatenate([parts, roofline.call_us[np.searchsorted(roofline.threads, query.threads)][:, None]], axis=1)
    return _places(query, roofline.threads, parts / parts.sum(axis=1, keepdims=True), np.zeros((len(query), 1)))


def _places(query: Query, threads: np.ndarray, shares: np.ndarray, odd: np.ndarray) -> list[np.ndarray]:
    """For each kernel of the processes; `odd`: of `_odd_lanes`."""
    most = _APART * (query.threads == threads.max()).astype(np.float64)[:, None]
    kinds = query.features[:, _KIND_COLUMNS].astype(np.float64)
    how = _NEAR * np.concatenate([kinds, _computed(query), odd], axis=1)
    return [
        np.zeros((len(query), 1)),
        most,
        _APART * odd,
        _APART * kinds,
        how,
        np.concatenate([how, most / _APART * _NEAR], axis=1),
        np.concatenate([shares / _SHARE, most, _NEAR * odd], axis=1),
    ]


def _odd_lanes(query: Query) -> np.ndarray:
    """Whether vectors hold a number of values that is no power of two: each processor is slow at these in a way of its
    own. Shape (entries, 1)."""
    odd, all_of_them = (
        sum(2.0 ** query.loops[:, LOOP_NAMES.index(f"{part}_{name}")].astype(np.float64) - 1.0 for part in PARTS)
        for name in ("odd_lanes", "arithmetic")
    )
    return np.asarray(odd > _ODD_SHARE * all_of_them, dtype=np.float64)[:, None]


def _computed(query: Query) -> np.ndarray:
    """How operators of one kind are computed, as far as their schedules differ: 0 or 1, shape (entries, 8)."""
    column = query.column
    windowed = np.any([column(name) > 0 for name in _WINDOWED], axis=0)
    last = (column("columns") == column("last_out")) & (column("out_width") != column("last_out"))
    found = [
        windowed & (column("rank") == _BLOCKED_RANK),
        windowed & (column("rank") == _PLAIN_RANK) & last,  # channels are the last dimension
        windowed & (column("window") == 0),  # of one element
        column("transposed_a") > 0,
        column("transposed_b") > 0,
        column("rows") == 0,  # a single one
        column("transcendental") > 0,
        column("read_stride") > np.log2(_CONTIGUOUS_BYTES),
    ]
    return np.stack(found, axis=1).astype(np.float64)
