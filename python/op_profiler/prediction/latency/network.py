"""The latency of a network: the sum over its calls of operators, with an interval."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from op_profiler.json_text import brief
from op_profiler.operators.layers import CallLayers, by_operator
from op_profiler.operators.operator import Operator
from op_profiler.operators.titles import title_of
from op_profiler.prediction.latency.intervals import sum_half_width
from op_profiler.prediction.latency.loops import loops_of
from op_profiler.prediction.latency.operator_predictor import (
    BOUND,
    TIERS,
    UNSUPPORTED,
    OperatorPrediction,
    OperatorPredictor,
)
from op_profiler.prediction.latency.query import Query, unknown_loops

if TYPE_CHECKING:
    from op_profiler.compilers.compiled_model import Occurrence
    from op_profiler.prediction.latency.vendor import VendorPredictor


@dataclasses.dataclass(frozen=True)
class Network:
    """The distinct operators of a lowered model with their numbers of calls, in the form that predictors need.

    Attributes:
        operators: distinct operators in the order of their first call.
        calls: number of calls of each operator.
        query: the operators at one thread, with the bytes that one run of the model reads and writes.
        layers: by workload key, layers of the user's model in each call of the operator; operators whose layers are
            unknown are missing.
    """

    name: str
    operators: tuple[Operator, ...]
    calls: np.ndarray
    query: Query
    layers: Mapping[str, CallLayers] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, name: str, operators: Sequence[Operator], layers: Sequence[Sequence[str]] | None = None) -> Network:
        """Return the network of a model's calls.

        Args:
            operators: operator of each call, in order.
            layers: layers of the user's model in each call; None if unknown.
        """
        counts: dict[str, int] = {}
        first: dict[str, Operator] = {}
        for operator in operators:
            counts[operator.key] = counts.get(operator.key, 0) + 1
            first.setdefault(operator.key, operator)
        network = cls.of_calls(name, list(first.values()), list(counts.values()))
        if layers is None:
            return network
        return dataclasses.replace(network, layers=by_operator([operator.key for operator in operators], layers))

    @classmethod
    def of_calls(
        cls, name: str, operators: Sequence[Operator], calls: Sequence[int], loops: np.ndarray | None = None
    ) -> Network:
        """Return the network of distinct operators, each with its number of calls.

        Args:
            loops: result of `op_profiler.prediction.latency.loops.loops_of`; None if unknown.
        """
        moved = sum((o.bytes_read + o.bytes_written) * count for o, count in zip(operators, calls))
        once = sum(o.bytes_read + o.bytes_written for o in operators)
        counts = np.asarray(calls, dtype=np.int64)
        query = Query.of(
            operators, traffic_bytes=float(moved), working_set_bytes=float(once), calls=counts, loops=loops
        )
        return cls(name, tuple(operators), counts, query)

    def with_loops(
        self,
        predictor: OperatorPredictor | VendorPredictor,
        threads: Sequence[int],
        *,
        target: str | None = None,
        note: Callable[[str], None] = lambda text: None,
    ) -> Network:
        """Return a copy with the loops of its kernels, which makes estimates more accurate.

        This takes some hundredths of a second for each new operator; operators that the predictor looks up are skipped.

        Args:
            threads: thread counts that will be predicted.
            target: target that the network was lowered for; None for that of the predictor.
            note: called with a text before each step that takes long.
        """
        asked = [self.query.at(count) for count in threads]
        wanted = np.flatnonzero(np.any([predictor.sees_loops(query) for query in asked], axis=0))
        if not len(wanted):
            return self
        found = loops_of([self.operators[at] for at in wanted], target or predictor.device.target, note)
        loops = self.query.loops
        if loops.shape[1] != found.shape[1]:  # loops of a GPU and of a processor have different columns
            loops = unknown_loops(len(loops), found.shape[1])
        loops = loops.copy()
        loops[wanted] = found
        return dataclasses.replace(self, query=dataclasses.replace(self.query, loops=loops))

    @classmethod
    def of_occurrences(cls, name: str, occurrences: Sequence[Occurrence]) -> Network:
        """Return the network of a compiled model's operators."""
        return cls.of(name, [one.operator for one in occurrences], [one.layers for one in occurrences])


@dataclasses.dataclass(frozen=True)
class NetworkPrediction:
    """Prediction of a network at one thread count.

    Attributes:
        total_us, low_us, high_us: latency with a 90 % interval. If an operator has no estimate, `low_us` is the least
            time of the network, and `total_us` and `high_us` are NaN.
        partial_us: sum over the operators with an estimate; equal to `total_us` if all operators have an estimate, NaN
            if no operator has.
        beyond_us: part of `total_us` that a GPU spends between kernels or waiting for launches; 0 on processors.
        tiers: share of `partial_us` by source of the estimate.
        bounded: names of operators for which only the least time is known.
        unsupported: names of operators without an estimate and without a least time.
        too_large: names of the unsupported operators whose tensors do not fit into the device's memory.
        outside: names of operators with doubled intervals, see `OperatorPrediction.outside`.
        operators: predictions of one call, one entry per distinct operator.
    """

    network: Network
    threads: int
    total_us: float
    low_us: float
    high_us: float
    partial_us: float
    beyond_us: float
    tiers: dict[str, float]
    bounded: tuple[str, ...]
    unsupported: tuple[str, ...]
    too_large: tuple[str, ...]
    outside: tuple[str, ...]
    operators: OperatorPrediction

    __repr__ = brief

    @property
    def without_estimate(self) -> tuple[str, ...]:
        """Names of operators that are missing from `partial_us`."""
        return (*self.bounded, *self.unsupported)

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-serializable dictionary of the prediction; None replaces numbers that are not known."""
        found = self.operators
        return {
            "model": self.network.name,
            "threads": self.threads,
            "total_us": _number(self.total_us),
            "interval_us": [_number(self.low_us), _number(self.high_us)],
            "partial_us": _number(self.partial_us),
            "beyond_us": _number(self.beyond_us),
            "tiers": self.tiers,
            "bounded": list(self.bounded),
            "unsupported": list(self.unsupported),
            "too_large": list(self.too_large),
            "outside": list(self.outside),
            "operators": [
                {
                    "name": operator.name,
                    "title": title_of(operator.op_names),
                    "output": list(operator.outputs[0].shape) if operator.outputs else [],
                    "layers": [list(call) for call in self.network.layers.get(operator.key, ())],
                    "operator_key": operator.workload,
                    "anchor": operator.anchor,
                    "calls": int(calls),
                    "latency_us": _number(latency),
                    "interval_us": [_number(low), _number(high)],
                    "tier": TIERS[tier],
                }
                for operator, calls, latency, low, high, tier in zip(
                    self.network.operators,
                    self.network.calls,
                    found.latency_us,
                    found.low_us,
                    found.high_us,
                    found.tier,
                )
            ],
        }


def predict_network(
    predictor: OperatorPredictor | VendorPredictor, network: Network, *, threads: int = 1, widening: float = 1.0
) -> NetworkPrediction:
    """Predict a network: sum the estimates over all calls; on a GPU, add gaps between kernels and launch overhead.

    For a GPU, see `op_profiler.prediction.latency.launching`; on a processor, the times of kernels include everything.
    The errors of operators partly cancel and partly have a common cause. Which share of them has a common cause was
    calibrated on held-out networks (`OperatorPredictor.correlation`); the interval of the sum follows from it
    (`op_profiler.prediction.latency.intervals.sum_half_width`).

    Args:
        widening: factor on the half-widths of the operators' intervals (`op_profiler.prediction.latency.checks`).

    Raises:
        UsageError: there are no measurements at that thread count.
    """
    return predict_networks(predictor, [network], threads=threads, widening=widening)[0]


def predict_networks(
    predictor: OperatorPredictor | VendorPredictor,
    networks: Sequence[Network],
    *,
    threads: int = 1,
    widening: float = 1.0,
) -> list[NetworkPrediction]:
    """Predict many networks at once, in a fraction of the time of single calls, as an architecture search needs.

    >>> from op_profiler import Predictor
    >>> from op_profiler.operators.kinds.described import described
    >>> from op_profiler.operators.kinds.convolutions import Conv2d
    >>> from op_profiler.operators.kinds.products import Dense
    >>> def network(width, depth):
    ...     layers = [Conv2d(1, width, 28, 28, width, 3, 1, epilogue="bias_relu")] * depth
    ...     return Network.of(f"{width}x{depth}", [described(layer) for layer in layers + [Dense(1, width, 10)]])
    >>> networks = [network(width, depth) for width in (16, 32) for depth in (1, 8)]
    >>> found = predict_networks(Predictor.from_dataset(), networks)
    >>> found[0].total_us < found[1].total_us < found[3].total_us
    True

    Raises:
        UsageError: there are no measurements at that thread count.
    """
    if not networks:
        return []
    query = Query.joined([network.query for network in networks])
    found = predictor.predict(query.at(threads)).widened(widening)
    if len(networks) == 1:
        return [_total(predictor, networks[0], threads, found)]
    ends = np.cumsum([len(network.calls) for network in networks])[:-1]
    parts = [np.split(getattr(found, field.name), ends) for field in dataclasses.fields(found)]
    return [
        _total(predictor, network, threads, OperatorPrediction(*of_one))
        for network, of_one in zip(networks, zip(*parts))
    ]


def _total(
    predictor: OperatorPredictor | VendorPredictor, network: Network, threads: int, found: OperatorPrediction
) -> NetworkPrediction:
    """Return the prediction of a network from those of its operators."""
    estimated = np.isfinite(found.latency_us)
    times = np.where(estimated, found.latency_us, 0.0) * network.calls
    kernels = float(times.sum())
    partial = kernels if estimated.any() else np.nan
    beyond = 0.0
    if kernels > 0 and predictor.launching is not None:
        partial = predictor.launching.total_us(kernels, network.operators, np.where(estimated, network.calls, 0))
        beyond = partial - kernels
    half = 0.0
    if kernels > 0:
        widths = np.log(np.where(estimated, found.high_us / found.latency_us, 1.0))
        # On a device without measurements by the rule, one cause may make all its operators slower or faster.
        shared = float(times[found.outside & network.query.by_rule].sum()) / kernels
        half = sum_half_width(times * widths / kernels, max(predictor.correlation, shared))
    bounded, unsupported = found.tier == BOUND, found.tier == UNSUPPORTED
    least = float(np.nan_to_num(partial * np.exp(-half)) + (found.low_us * network.calls)[bounded].sum())
    total = partial if estimated.all() else np.nan
    shares = {
        name: float(times[found.tier == tier].sum() / kernels) if kernels else 0.0 for tier, name in enumerate(TIERS)
    }
    names = np.array([operator.name for operator in network.operators], dtype=object)
    return NetworkPrediction(
        network=network,
        threads=threads,
        total_us=total,
        low_us=least or np.nan,
        high_us=total * float(np.exp(half)),
        partial_us=partial,
        beyond_us=beyond,
        tiers={name: share for name, share in shares.items() if share > 0},
        bounded=tuple(names[bounded]),
        unsupported=tuple(names[unsupported]),
        too_large=tuple(names[found.too_large]),
        outside=tuple(names[found.outside]),
        operators=found,
    )


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
