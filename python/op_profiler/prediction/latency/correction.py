"""`Correction`: changes to the predictions of another device, fitted to few measurements on a device.

The correction is fitted to the logarithms of measured over predicted time. One part of it is common to all operators;
other parts are common to operators that are equally parallel, of the same kind, computed in the same way, or that spend
their time on the same work. Processors differ separately in arithmetic, chains of sums, function calls, and in the
bandwidth of each cache and of the memory. The other device's predictor may itself be wrong, for example about kinds of
operators that were never measured there; its errors are similar for operators whose loops do similar work.
`op_profiler.prediction.latency.gaussian_process` determines the weights of these parts.
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
"""Largest number of measurements to learn a correction from; the time of the fit grows with the cube of this number."""
_APART, _NEAR = 10.0, 3.0
"""Coordinate distances at which the error of one operator does not help (`_APART`) or hardly helps (`_NEAR`) to predict
that of another.
"""
_SHARE = 0.3
"""Difference between two shares of a time that counts as similar."""
_KIND_COLUMNS = [NAMES.index(f"is_{kind}") for kind in KINDS]
_WINDOWED = ("is_conv2d", "is_depthwise", "is_grouped", "is_other_conv", "is_pool")
_BLOCKED_RANK, _PLAIN_RANK = 5, 4
_CONTIGUOUS_BYTES = 4
_ODD_SHARE = 0.1
"""From this share of a kernel's instructions on, the kernel counts as one with odd vectors."""
_OF_HELD_OUT = 0.5
"""Part of the correction of held-out errors that is applied. Once regressions are trained on all measurements, they
already contain a part of it. With 200 operators on each included processor, taken as a new one, half was more
accurate than all of it."""


@dataclasses.dataclass(frozen=True)
class Correction:
    """Correction of predictions for another device, or for one with few measurements.

    Attributes:
        ratio: vector length of the other device divided by that of this one (`op_profiler.prediction.latency.vectors`).
        looped: correction of operators with known loops; None if no loops were known.
        plain: correction of operators without known loops; None if these are not corrected.
        loop_spreads: standard deviations of the loop columns that the correction was fitted to, shape
            (len(LOOP_NAMES),).
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
        """Fit the correction to measurements, one per entry of `query`.

        Args:
            rest: two arrays of log(measured over predicted time): one of predictions from loops, which is used for
                entries with known loops, and one of predictions without loops.
            roofline, kernels: models of the other device.
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
        """Fit the correction to the held-out errors of a device's own predictor, which was trained on few measurements
        of the device and on measurements of other devices.

        Args:
            query: measurements whose loops are known.
            rest: logarithm of measured over predicted time while each measurement was held out.

        Returns:
            The correction, and the error of each measurement that remains when all measurements of its operator are
            left out of the fit.
        """
        spreads = spreads_of(query.loops)
        process = GaussianProcess.fit(looped_places(query, kernels, spreads), rest, weight)
        left = rest + _OF_HELD_OUT * (process.off_if_left_out(query.keys) - rest)
        part = dataclasses.replace(process, coefficients=_OF_HELD_OUT * process.coefficients)
        return cls(1.0, part, None, spreads), left

    def seen(self, query: Query) -> Query:
        """Return the operators described with the vector length of the other device, as that device's predictor expects
        them."""
        return self.seen_in(self.ratio, query)

    @staticmethod
    def seen_in(ratio: float, query: Query) -> Query:
        """Return the operators described with vectors `ratio` times as long."""
        if ratio == 1.0:
            return query
        return dataclasses.replace(query, features=in_other_vectors(query.columns, ratio)[:, : len(NAMES)])

    def off_if_left_out(self, query: Query, group: np.ndarray) -> np.ndarray:
        """Return the error of each measurement, on a logarithmic scale, if its whole group is left out of the fit.

        Args:
            query: the measurements that the correction was fitted to.
            group: number of the group of each measurement.
        """
        assert self.plain is not None, "of `fit`"
        found = self.plain.off_if_left_out(group)
        if self.looped is not None:
            found[query.has_loops] = self.looped.off_if_left_out(group[query.has_loops])
        return found

    def predict(self, query: Query, roofline: Roofline, kernels: KernelModel | LaunchModel | None) -> np.ndarray:
        """Return the correction to add to the logarithm of each entry's predicted time, shape (entries,)."""
        found = np.zeros(len(query))
        known = query.has_loops if self.looped is not None else np.zeros(len(query), dtype=bool)
        if self.looped is not None and kernels is not None and known.any():
            found[known] = self.looped.predict(looped_places(query.take(known), kernels, self.loop_spreads))
        if self.plain is not None and not known.all():
            found[~known] = self.plain.predict(_plain_places(query.take(~known), roofline))
        return found


def spreads_of(loops: np.ndarray) -> np.ndarray:
    """Return the standard deviation of each column of `loops`; inf for a constant column, which then has no weight."""
    found = loops.std(axis=0, dtype=np.float64)
    return np.where(found > 0, found, np.inf)


def looped_places(query: Query, kernels: KernelModel | LaunchModel, spreads: np.ndarray) -> list[np.ndarray]:
    """Return the coordinates of operators for each covariance kernel of the Gaussian process: shares of the modelled
    time, and loops.

    In the coordinates by loops, two operators have the distance 1 if their loop columns differ by one standard
    deviation in the root mean square.

    Args:
        spreads: result of `spreads_of`.
    """
    done = query.loops / (spreads * np.sqrt(len(spreads)))
    odd = _odd_lanes(query) if isinstance(kernels, KernelModel) else np.zeros((len(query), 1))
    return [*_places(query, kernels.threads, kernels.shares(query), odd), done]


def _plain_places(query: Query, roofline: Roofline) -> list[np.ndarray]:
    """Return coordinates of operators by their shares of the roofline model's time."""
    parts = roofline.parts_us(query.amounts, query.threads)
    parts = np.concatenate([parts, roofline.call_us[np.searchsorted(roofline.threads, query.threads)][:, None]], axis=1)
    return _places(query, roofline.threads, parts / parts.sum(axis=1, keepdims=True), np.zeros((len(query), 1)))


def _places(query: Query, threads: np.ndarray, shares: np.ndarray, odd: np.ndarray) -> list[np.ndarray]:
    """Return the coordinates of operators for each kernel of the Gaussian processes.

    Args:
        odd: result of `_odd_lanes`.
    """
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
    """Return whether kernels use vectors whose number of values is not a power of two, shape (entries, 1).

    Each processor is slow at such vectors in a different way.
    """
    odd, all_of_them = (
        sum(2.0 ** query.loops[:, LOOP_NAMES.index(f"{part}_{name}")].astype(np.float64) - 1.0 for part in PARTS)
        for name in ("odd_lanes", "arithmetic")
    )
    return np.asarray(odd > _ODD_SHARE * all_of_them, dtype=np.float64)[:, None]


def _computed(query: Query) -> np.ndarray:
    """Return by which kind of schedule operators are computed, as 0 or 1, shape (entries, 8)."""
    column = query.column
    windowed = np.any([column(name) > 0 for name in _WINDOWED], axis=0)
    last = (column("columns") == column("last_out")) & (column("out_width") != column("last_out"))
    found = [
        windowed & (column("rank") == _BLOCKED_RANK),
        windowed & (column("rank") == _PLAIN_RANK) & last,  # channels are the last dimension
        windowed & (column("window") == 0),  # log2: a window of one element
        column("transposed_a") > 0,
        column("transposed_b") > 0,
        column("rows") == 0,  # log2: a single row
        column("transcendental") > 0,
        column("read_stride") > np.log2(_CONTIGUOUS_BYTES),
    ]
    return np.stack(found, axis=1).astype(np.float64)
