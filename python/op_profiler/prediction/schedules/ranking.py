"""`RankingModel`: ranks the schedules of an operator; it is fitted to the trials of other operators.

A gradient-boosted model (xgboost) regresses the logarithm of a candidate's time divided by the best time of its
operator, from the operator's shape and the schedule's factors. Only the order of the schedules of one operator is used,
as in the cost models of Chen et al., Learning to Optimize Tensor Programs (2018).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from op_profiler.prediction.latency.trees import boost

_LOOPS = ("ic.o", "ic.i", "kh", "kw", "k.o", "k.i", "y")
_UNROLL = {"none": 0.0, "tile": 1.0, "tile and reduction": 2.0}
_ROUNDS = 400
_SLOWEST = math.log(20.0)
"""Logarithm of the largest ratio to the best time: slower schedules count as 20 times slower than the best one."""


@dataclasses.dataclass(frozen=True)
class Example:
    """One trial: an anchor, a schedule, and its time.

    Attributes:
        operator: workload key of the anchor.
        group: group within which times are comparable: one operator, thread count, cache state and device.
        features: see `features_of`.
        latency_us: median time; inf for a schedule that failed.
    """

    operator: str
    group: str
    features: dict[str, float]
    latency_us: float


def examples(rows: Iterable[Mapping[str, Any]]) -> list[Example]:
    """Return examples from rows of the flat table (`op_profiler.dataset.COLUMNS`) whose origin is ``trial``."""
    found = []
    for row in rows:
        features = features_of(row, str(row["template"]), row, int(row["threads"]))
        found.append(Example(str(row["operator_key"]), group_of(row), features, time_of(row)))
    return found


def group_of(row: Mapping[str, Any]) -> str:
    """Return a text that identifies the operator, thread count, cache state and device of a row of the flat table."""
    return "|".join(str(row[name]) for name in ("operator_key", "threads", "cache", "device_key"))


def time_of(row: Mapping[str, Any]) -> float:
    """Return the median time of a row of the flat table in microseconds; inf for a schedule that failed."""
    us = row["median_us"]
    return math.inf if us is None or math.isnan(us) else float(us)


def features_of(
    operator: Mapping[str, Any], template: str, factors: Mapping[str, Any], threads: int
) -> dict[str, float]:
    """Return the features of one schedule of one operator as numbers; sizes as logarithms to base 2.

    Args:
        operator: the operator, as a mapping with ``inputs``, ``params``, ``outputs`` (lists of {shape, dtype}),
            ``attrs`` and ``flops``.
        template: template of the schedule.
        factors: factors of the schedule, with the names of `op_profiler.schedules.factors.Factors`.
        threads: thread count of the kernel.
    """
    sizes = _sizes(operator)
    values = {f"size_{name}": math.log2(max(size, 1)) for name, size in sizes.items()}
    values["flops"] = math.log2(max(float(operator["flops"]), 1.0))
    values["stride"] = stride_of(operator)
    values["winograd"] = float("winograd" in template)
    values["own"] = float(template.endswith(".op_profiler"))
    tile: Mapping[str, Any] = factors["tile"] or {}
    split: Mapping[str, Any] = factors["split"] or {}
    present = {axis: float(size) for axis, size in tile.items() if size is not None}
    for axis, size in present.items():
        values[f"tile_{axis}"] = math.log2(max(size, 1))
        if axis in sizes:
            values[f"left_{axis}"] = math.log2(max(sizes[axis] / size, 1))
    vectors = math.prod(size for axis, size in present.items() if axis != "rows")
    values["register_tile"] = math.log2(max(vectors, 1))
    for size in split.values():
        if size is not None:
            values["split"] = math.log2(max(float(size), 1))
    values["fuse"] = float(factors["fuse"] or 0)
    values["vectorize"] = math.log2(max(float(factors["vectorize"] or 1), 1))
    values["unroll"] = _UNROLL.get(str(factors["unroll"]), 0.0)
    values |= _order(factors, sizes, present)
    values["parallel_per_thread"] = values["log_parallel"] - math.log2(threads)
    values["threads"] = float(threads)
    return values


def _order(factors: Mapping[str, Any], sizes: Mapping[str, float], tile: Mapping[str, float]) -> dict[str, float]:
    """Return features of the order of the loops, of the extent of the parallel loop, and of ``compute_at``."""
    values: dict[str, float] = {}
    outer, _, inner = str(factors["reorder"] or "").partition(" | ")
    for place, axis in enumerate(outer.split()):
        values[f"outer_{axis}"] = float(place)
    loops = inner.split()
    for place, loop in enumerate(loops):
        values[f"inner_{loop}"] = float(len(loops) - place)
    for loop in _LOOPS:
        values[f"innermost_{loop}"] = float(bool(loops) and loops[-1] == loop)
    axes = str(factors["parallel"] or "").replace(",", " ").split()
    parallel = math.prod(max(sizes.get(axis, 1.0) / tile.get(axis, 1.0), 1.0) for axis in axes)
    values["log_parallel"] = math.log2(max(parallel, 1.0))
    where = str(factors["compute_at"] or "")
    values["at_root"], values["at_inline"] = float(where.startswith("root")), float(where == "inline")
    values["at_depth"] = float(outer.split().index(where.split(" ")[-1]) + 1) if where in outer.split() else 0.0
    return values


def _sizes(operator: Mapping[str, Any]) -> dict[str, float]:
    """Return the extents of the loops of an anchor, by the names that factors use."""
    output = _shape(operator["outputs"][0])
    first = _shape(operator["inputs"][0])
    weight = _shape(operator["params"][0]) if operator["params"] else None
    if len(output) == 5:
        kernel = weight if weight is not None else _shape(operator["inputs"][1])
        n, oc, oh, ow, lanes = output
        ic = kernel[1] * kernel[4] if len(kernel) == 6 else kernel[3]
        kh, kw = (kernel[2], kernel[3]) if len(kernel) == 6 else (3, 3)
        return {"n": n, "oc": oc, "oh": oh, "ow": ow, "lanes": lanes, "ic": ic, "kh": kh, "kw": kw, "h": first[2]}
    if len(output) == 3:
        return {"b": output[0], "y": output[1], "x": output[2] / 16, "lanes": 16, "k": first[-1]}
    if len(output) == 2:
        lanes = weight[2] if weight is not None and len(weight) == 3 else 16
        return {"y": output[0], "x": output[1] / lanes, "lanes": lanes, "k": first[-1]}
    return {f"d{i}": size for i, size in enumerate(output)}


def _shape(tensor: Mapping[str, Any]) -> tuple[float, ...]:
    return tuple(float(d) for d in tensor["shape"])


def stride_of(operator: Mapping[str, Any]) -> float:
    """Return the stride of an operator along its first axis; 1 if it has none.

    Args:
        operator: as in `features_of`.
    """
    strides = next((attrs["strides"] for attrs in operator["attrs"] if "strides" in attrs), 1)
    return float(strides[0] if isinstance(strides, (list, tuple)) else strides)


class RankingModel:
    """A model that ranks the schedules of an operator by predicted time; `train` creates it."""

    def __init__(self, names: Sequence[str], booster: Any) -> None:
        self._names = list(names)
        self._booster = booster

    @classmethod
    def train(cls, data: Sequence[Example]) -> RankingModel:
        """Return a ranking that is fitted to trials.

        Args:
            data: at least 50 trials, of at least two operators.

        Raises:
            ValueError: there are too few trials.
        """
        best = best_of_groups(data)
        usable = [e for e in data if math.isfinite(best[e.group])]
        if len(usable) < 50 or len({e.operator for e in usable}) < 2:
            raise ValueError(f"{len(usable)} trials are too few to learn a ranking from")
        names = sorted({name for e in usable for name in e.features})
        target = np.array([min(math.log(e.latency_us / best[e.group]), _SLOWEST) for e in usable])
        weights = np.exp(-target)  # the order of slow schedules does not matter
        parameters = {
            "max_depth": 7,
            "eta": 0.06,
            "subsample": 0.8,
            "colsample_bytree": 0.6,
            "min_child_weight": 3,
            "nthread": 1,  # for thousands of rows, more threads are no faster, and 10 times slower under load
        }
        rows = _matrix([e.features for e in usable], names)
        return cls(names, boost(rows, target, parameters, _ROUNDS, 0, weights + 0.05))

    def predict(self, features: Sequence[Mapping[str, float]]) -> np.ndarray:
        """Return the logarithm of the time divided by the operator's best time, for each schedule of one operator.

        Only the order of the values is meaningful.

        Args:
            features: result of `features_of` for each schedule.
        """
        return np.asarray(self._booster.inplace_predict(_matrix(features, self._names)))


def best_of_groups(data: Iterable[Example]) -> dict[str, float]:
    """Return the shortest time of each group in microseconds."""
    best: dict[str, float] = {}
    for example in data:
        best[example.group] = min(best.get(example.group, math.inf), example.latency_us)
    return best


def _matrix(features: Sequence[Mapping[str, float]], names: Sequence[str]) -> np.ndarray:
    return np.array([[one.get(name, math.nan) for name in names] for one in features], dtype="float32")


@dataclasses.dataclass(frozen=True)
class RankingScore:
    """Accuracy of a ranking on the trials of held-out operators.

    Attributes:
        operators, trials: numbers of held-out operators and trials.
        pairwise: share of pairs of schedules that the ranking puts in the right order, among pairs of one operator
            whose times differ by more than 5 %; NaN if there are no such pairs.
        top: for each k, the best time among the k schedules that are ranked first, divided by the best time of all
            schedules; the value is the geometric mean of this ratio over operators. The ratio of an operator counts as
            at most 20, also if all k schedules failed.
    """

    operators: int
    trials: int
    pairwise: float
    top: dict[int, float]


def evaluate(data: Sequence[Example], groups: Sequence[Sequence[str]], ks: Sequence[int] = (1, 8, 16)) -> RankingScore:
    """Return the accuracy of rankings on the trials of held-out operators; each group of operators is held out once.

    Args:
        data: trials of all operators.
        groups: workload keys of the anchors of each group, e.g. one group per model.
        ks: numbers of schedules for `RankingScore.top`.
    """
    right = pairs = trials = 0
    losses: dict[int, list[float]] = {k: [] for k in ks}
    for group in groups:
        held = set(group)
        model = RankingModel.train([e for e in data if e.operator not in held])
        for name in sorted({e.group for e in data if e.operator in held}):
            mine = [e for e in data if e.group == name]
            times = np.array([e.latency_us for e in mine])
            if not np.isfinite(times).any():
                continue
            predicted = model.predict([e.features for e in mine])
            good, all_pairs = _ordered_pairs(times, predicted)
            right, pairs, trials = right + good, pairs + all_pairs, trials + len(mine)
            order = np.argsort(predicted)
            for k in ks:
                losses[k].append(min(math.log(times[order[:k]].min() / times.min()), _SLOWEST))
    top = {k: math.exp(float(np.mean(v))) for k, v in losses.items() if v}
    return RankingScore(len(losses[ks[0]]), trials, right / pairs if pairs else math.nan, top)


def _ordered_pairs(times: np.ndarray, predicted: np.ndarray) -> tuple[int, int]:
    apart = times[:, None] > 1.05 * times[None, :]
    return int((apart & (predicted[:, None] > predicted[None, :])).sum()), int(apart.sum())
