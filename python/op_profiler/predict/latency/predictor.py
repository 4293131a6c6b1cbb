"""Predicts operators on one device, each with the tier that answered and a 90 % interval."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from op_profiler.errors import UsageError
from op_profiler.operators._base import Operator
from op_profiler.predict.latency.examples import DeviceName, Examples
from op_profiler.predict.latency.features import NAMES
from op_profiler.predict.latency.interpolation import Interpolation, families_of
from op_profiler.predict.latency.intervals import Spread
from op_profiler.predict.latency.query import Query
from op_profiler.predict.latency.regression import Fitted, combined
from op_profiler.predict.latency.roofline import Roofline

if TYPE_CHECKING:
    from op_profiler.frontends._base import RelayModel
    from op_profiler.predict.latency.network import Network, NetworkPrediction

TIERS = ("measured", "interpolated", "regressed", "bound", "unsupported")
"""How an estimate came about, from the most to the least trustworthy."""

MEASURED, INTERPOLATED, REGRESSED, BOUND, UNSUPPORTED = range(len(TIERS))

CHOICES = ("default", "lookup", "interpolation", "xgboost", "random_forest", "decision_tree", "mean", "roofline")
"""``default`` looks up, else combines two boosted models with interpolation where that proved better; the others answer
by one tier alone."""


@dataclasses.dataclass(frozen=True)
class Prediction:
    """One entry an operator.

    Attributes:
        latency_us, low_us, high_us: estimate and 90 % interval; NaN where unsupported.
        tier: index into `TIERS`.
        outside: whether the operator is larger or smaller than all that the predictor learned from.
    """

    latency_us: np.ndarray
    low_us: np.ndarray
    high_us: np.ndarray
    tier: np.ndarray
    outside: np.ndarray

    def tiers(self) -> list[str]:
        """Names in place of numbers."""
        return [TIERS[tier] for tier in self.tier]


@dataclasses.dataclass
class Measured:
    """Look-up by workload key and thread count.

    Attributes:
        keys: rising; `threads` beside them; both shape (entries,).
        latency_us: median over the models in which the operator was measured.
        spread: half-width of the interval on a logarithmic scale.
    """

    keys: np.ndarray
    latency_us: np.ndarray
    spread: np.ndarray

    @staticmethod
    def mixed(keys: np.ndarray, threads: np.ndarray) -> np.ndarray:
        """Workload key and thread count as one number (Knuth's multiplicative hash of the count)."""
        counts = threads.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        mixed: np.ndarray = keys ^ counts
        return mixed

    def find(self, query: Query) -> tuple[np.ndarray, np.ndarray]:
        """Whether each entry was measured, and where."""
        wanted = self.mixed(query.keys, query.threads)
        at = np.minimum(np.searchsorted(self.keys, wanted), max(len(self.keys) - 1, 0))
        return (self.keys[at] == wanted) if len(self.keys) else np.zeros(len(query), dtype=bool), at


@dataclasses.dataclass
class Predictor:
    """Fitted to one device; made by `fit`, kept by `op_profiler.predict.latency.storage`.

    Attributes:
        device: that it speaks for.
        choice: one of `CHOICES`.
        vocabulary: sets of op names and dtypes that it has learned from.
        limits: least and largest of each feature, shape (2, features).
        gaps_us: by thread count, what a call costs in a model beside the kernel.
        network_scale: factor between the intervals of operators and that of a whole network.
        fingerprint: of the measurements that it was fitted to.
    """

    device: DeviceName
    choice: str
    roofline: Roofline
    measured: Measured
    models: Sequence[Fitted]
    interpolation: Interpolation | None
    interpolated_families: np.ndarray
    vocabulary: frozenset[str]
    limits: np.ndarray
    spread: Spread
    gaps_us: dict[int, float]
    network_scale: float
    fingerprint: str

    @classmethod
    def from_dataset(
        cls,
        db: str | None = None,
        *,
        device: str | None = None,
        choice: str = "default",
    ) -> Predictor:
        """The predictor of a device in a dataset; fitted where nothing has been fitted to the same measurements yet.

        Args:
            db: SQLAlchemy address; None for the dataset that ships.
            device: start of its key or part of its processor's name; None for the only one, or this machine.
            choice: one of `CHOICES`.

        Raises:
            DatasetError: the dataset cannot be read, or is of several devices and none was chosen.
            UnknownNameError: no such choice.
        """
        from op_profiler.predict.latency.open import open_predictor

        return open_predictor(choice, db=db, device=device)

    def predict_model(self, model: RelayModel | Network, *, threads: int = 1) -> NetworkPrediction:
        """The latency of a network, and of every operator in it.

        Args:
            model: one that a frontend has loaded, which is lowered for this predictor's target, or one that was
                lowered before (`op_profiler.predict.latency.network.Network`), which takes a millisecond or two.
            threads: one of `thread_counts`.

        Raises:
            ModelError: it does not lower.
            UsageError: a thread count that was never measured.
        """
        from op_profiler.predict.latency.network import Network, predict_network

        if not isinstance(model, Network):
            from op_profiler.compiler import resolve_target
            from op_profiler.operators.lower import optimize

            occurrences = optimize(model, resolve_target(self.device.target))
            model = Network.of_occurrences(model.name, occurrences)
        return predict_network(self, model, threads=threads)

    @property
    def thread_counts(self) -> list[int]:
        """That it has learned from."""
        return [int(count) for count in self.roofline.threads]

    def predict(
        self, operators: Sequence[Operator] | Query, *, threads: int = 1, traffic_bytes: float = 0.0
    ) -> Prediction:
        """Estimates for operators, in their order.

        Args:
            operators: or a `Query`, which is made once and asked often; its own settings then count.
            threads: one of `thread_counts`.
            traffic_bytes: what all calls of the model around the operators read and write.

        Raises:
            UsageError: a thread count that was never measured; tells which were.
        """
        query = (
            operators
            if isinstance(operators, Query)
            else Query.of(operators, threads=threads, traffic_bytes=traffic_bytes)
        )
        self.check_threads(query.threads)
        tier, log_ratio = self._tiers(query)
        bound = self.roofline.bound_us(query.amounts, query.threads)
        latency = bound * np.exp(log_ratio)
        width = np.empty(len(query))
        for number in (INTERPOLATED, REGRESSED, BOUND):
            mine = np.flatnonzero(tier == number)
            if len(mine):
                width[mine] = self.spread.half_width(query.take(mine), TIERS[number])
        known = np.flatnonzero(tier == MEASURED)
        at = self.measured.find(query.take(known))[1]
        latency[known], width[known] = self.measured.latency_us[at], self.measured.spread[at]
        outside = self._outside(query) & (tier != MEASURED)
        width = np.where(outside, 2 * width, width)  # a tree says the same beyond the data as at its edge
        unsupported = tier == UNSUPPORTED
        latency[unsupported] = width[unsupported] = np.nan
        low = np.where(tier == BOUND, bound, latency * np.exp(-width))
        return Prediction(latency, low, latency * np.exp(width), tier, outside)

    def check_threads(self, threads: Sequence[int] | np.ndarray) -> None:
        """Refuse thread counts that were never measured.

        Raises:
            UsageError: tells which were.
        """
        strange = np.setdiff1d(threads, self.roofline.threads)
        if len(strange):
            raise UsageError(
                f"there are no measurements at {', '.join(map(str, strange))} threads on {self.device.processor}; "
                f"there are at {', '.join(map(str, self.thread_counts))}. Measure with: op-profiler sample --threads "
                f"{strange[0]}"
            )

    def _tiers(self, query: Query) -> tuple[np.ndarray, np.ndarray]:
        """The tier of each entry, and log of time over bound where a tier below ``measured`` answers."""
        log_ratio = np.zeros(len(query))
        known = np.array([s <= self.vocabulary for s in query.op_sets], dtype=bool)
        tier = np.where(known[query.vocabulary], REGRESSED, BOUND)
        if self.choice in ("default", "lookup"):
            tier[self.measured.find(query)[0]] = MEASURED
        dtypes = np.array([self._has_dtypes(s) for s in query.op_sets], dtype=bool)[query.vocabulary]
        tier[~dtypes & (tier != MEASURED)] = UNSUPPORTED
        if self.choice == "lookup":
            tier[tier != MEASURED] = UNSUPPORTED
        elif self.choice == "roofline":
            tier[tier == REGRESSED] = BOUND
        regressed = np.flatnonzero(tier == REGRESSED)
        if len(regressed):
            self._regress(query.take(regressed), regressed, tier, log_ratio)
        bound = tier == BOUND
        log_ratio[bound] = self.spread.typical_above_bound
        return tier, log_ratio

    def _has_dtypes(self, words: frozenset[str]) -> bool:
        return {w for w in words if w.startswith(("dtype ", "dynamic"))} <= self.vocabulary

    def _regress(self, query: Query, at: np.ndarray, tier: np.ndarray, log_ratio: np.ndarray) -> None:
        """Fill in what regressions and interpolation say of the entries `at`."""
        if self.models:
            columns = query.columns
            log_ratio[at] = combined(self.choice, [model.predict(columns) for model in self.models])
        else:
            tier[at] = UNSUPPORTED
        if self.interpolation is None:
            return
        families = families_of(query)
        trusted = (
            np.flatnonzero(np.isin(families, self.interpolated_families))
            if self.choice == "default"
            else np.arange(len(query))
        )
        if not len(trusted):
            return
        found = self.interpolation.predict(query.take(trusted), families[trusted])
        inside = np.isfinite(found)
        log_ratio[at[trusted[inside]]] = found[inside]
        tier[at[trusted[inside]]] = INTERPOLATED

    def _outside(self, query: Query) -> np.ndarray:
        sizes = [NAMES.index(name) for name in ("flops", "input_bytes", "weight_bytes", "output_bytes")]
        values = query.features[:, sizes]
        beyond = (values < self.limits[0, sizes]) | (values > self.limits[1, sizes])
        return np.asarray(beyond.any(axis=1))


def query_of(examples: Examples) -> Query:
    """The operators of examples as a query, one an entry of the examples."""
    distinct = Query.of(examples.operators)
    network = ~examples.sampled[examples.model]
    return distinct.take(examples.operator).under(examples.threads, examples.traffic_bytes, network)
