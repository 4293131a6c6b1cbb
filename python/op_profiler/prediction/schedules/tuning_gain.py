"""`TuningGain`: the predicted time of an operator after tuning, before any trial of it.

The prediction uses the searched operators in a dataset that are most similar in work, intensity and window, and whose
default schedule reached a similar share of their processor's best rate. The prediction is the mean of their gains,
weighted by similarity (Cover & Hart, Nearest Neighbor Pattern Classification, 1967). The interval comes from the errors
of the predictions for each searched operator when this operator is left out.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from op_profiler.prediction.schedules.ranking import group_of, stride_of, time_of

_NEIGHBOURS = 3
_NEAR = 0.1
_OWN = ".op_profiler"
_WINDOW, _KIND, _RATE = 3.0, 5.0, 2.0
"""Weights of three differences: whether Winograd's method applies, the op, and the rate of the default schedule."""
_ATTAINED = 0.9
_SMALLER = 2.0
_FEWEST = 10
_INTERVAL = (0.05, 0.95)


@dataclasses.dataclass(frozen=True)
class TunedTime:
    """Predicted time of an operator after a search for its best schedule, microseconds, with a 90 % interval."""

    us: float
    low_us: float
    high_us: float


@dataclasses.dataclass(frozen=True)
class SearchedAnchor:
    """An anchor with the result of a search.

    Attributes:
        operator: the anchor, as a mapping with the field names of `op_profiler.operators.operator.Operator`.
        cache: cache state.
        rate: FLOPs per microsecond of the default schedule, divided by the rate of good schedules on that device.
        gain: logarithm of the time of the default schedule divided by the best time.
    """

    operator: Mapping[str, Any]
    cache: str
    rate: float
    gain: float


class TuningGain:
    """A predictor of the time of an operator after a search.

    Args:
        known: results of at least `_FEWEST` searches.
    """

    def __init__(self, known: Sequence[SearchedAnchor]) -> None:
        self.known = known
        self._features = np.array([_features(one.operator, one.cache, one.rate) for one in known])
        self._gains = np.array([one.gain for one in known])
        errors = [self._gain(self._features[i], leave_out=i) - self._gains[i] for i in range(len(known))]
        self._low, self._high = np.quantile(errors, _INTERVAL)

    @classmethod
    def of(cls, rows: Iterable[Mapping[str, Any]]) -> TuningGain | None:
        """Return a predictor from rows of the flat table with origins ``trial`` and ``tuned``; None if the rows contain
        fewer than `_FEWEST` searches.
        """
        known = searches(rows)
        return cls(known) if len(known) >= _FEWEST else None

    def predict(
        self, operator: Mapping[str, Any], cache: str, default_us: float, peak_flops_per_us: float
    ) -> TunedTime | None:
        """Return the predicted time of an operator after a search.

        The result is None if the operator has far fewer FLOPs than every known search; its time is then mostly call
        overhead.

        Args:
            operator: an anchor, as a mapping with the field names of `op_profiler.operators.operator.Operator`.
            cache: cache state.
            default_us: time with the default schedule.
            peak_flops_per_us: peak rate of the processor at the same thread count, FLOPs per microsecond.
        """
        if operator["flops"] < min(float(one.operator["flops"]) for one in self.known) / _SMALLER:
            return None
        rate = operator["flops"] / default_us / (_ATTAINED * peak_flops_per_us)
        gain = max(self._gain(np.array(_features(operator, cache, max(rate, 1e-6)))), 0.0)
        low, high = max(gain - self._high, 0.0), max(gain - self._low, 0.0)
        return TunedTime(default_us * math.exp(-gain), default_us * math.exp(-high), default_us * math.exp(-low))

    def _gain(self, features: np.ndarray, leave_out: int | None = None) -> float:
        distances = np.linalg.norm(self._features - features, axis=1)
        if leave_out is not None:
            distances[leave_out] = np.inf
        nearest = np.argsort(distances)[:_NEIGHBOURS]
        weights = 1 / (distances[nearest] + _NEAR)
        return float((weights * self._gains[nearest]).sum() / weights.sum())

    def held_out(self) -> np.ndarray:
        """Return for each known search its speed-up as predicted from the other searches, divided by its measured
        speed-up."""
        predicted = [max(self._gain(f, leave_out=i), 0.0) for i, f in enumerate(self._features)]
        return np.exp(np.array(predicted) - self._gains)


def searches(rows: Iterable[Mapping[str, Any]]) -> list[SearchedAnchor]:
    """Return the searched anchors in rows of the flat table, except those whose default schedule was not timed."""
    groups: dict[str, tuple[Mapping[str, Any], _Least, _Least]] = {}
    for row in rows:
        if math.isfinite(time_of(row)) and row["flops"]:
            _, own, default = groups.setdefault(group_of(row), (row, _Least(), _Least()))
            (own if str(row["template"]).endswith(_OWN) else default).note(row)
    timed = [(row, own.us, default.us) for row, own, default in groups.values()]
    timed = [one for one in timed if math.isfinite(one[1]) and math.isfinite(one[2])]
    attained: dict[tuple[Any, Any], list[float]] = {}
    for row, best_us, _ in timed:
        attained.setdefault((row["device_key"], row["threads"]), []).append(row["flops"] / best_us)
    found = []
    for row, best_us, default_us in timed:
        usual = float(np.quantile(attained[row["device_key"], row["threads"]], 0.75))
        rate, gain = row["flops"] / default_us / usual, math.log(default_us / min(best_us, default_us))
        found.append(SearchedAnchor(row, str(row["cache"]), rate, gain))
    return found


class _Least:
    """The shortest time among many rows, none of which is stored."""

    def __init__(self) -> None:
        self._all = self._finalists = math.inf

    def note(self, row: Mapping[str, Any]) -> None:
        self._all = min(self._all, float(row["median_us"]))
        if row["origin"] == "tuned":
            self._finalists = min(self._finalists, float(row["median_us"]))

    @property
    def us(self) -> float:
        """The shortest time of the finalists, which were measured again, or of the trials; infinite if there are
        none."""
        return self._finalists if math.isfinite(self._finalists) else self._all


def _features(operator: Mapping[str, Any], cache: str, rate: float) -> list[float]:
    anchor, flops = str(operator["anchor"]), float(operator["flops"])
    moved = float(operator["bytes_read"] + operator["bytes_written"])
    return [
        math.log(flops),
        math.log(max(flops / moved, 1e-6)),
        _WINDOW * _winograd_applies(operator),
        float(cache == "cold"),
        *(_KIND * (kind in anchor) for kind in ("batch_matmul", "depthwise", "dense")),
        _RATE * math.log(rate),
    ]


def _winograd_applies(operator: Mapping[str, Any]) -> bool:
    """Return whether the window is 3 by 3 at stride 1 and the convolution is not depthwise."""
    anchor, params = str(operator["anchor"]), operator["params"]
    if "conv2d" not in anchor or "depthwise" in anchor or not params:
        return False
    return tuple(params[0]["shape"][2:4]) == (3, 3) and stride_of(operator) == 1
