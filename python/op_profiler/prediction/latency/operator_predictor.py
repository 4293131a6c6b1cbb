"""`OperatorPredictor`: estimates of operators on one device, with their source and a 90 % interval."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from op_profiler.errors import UsageError
from op_profiler.json_text import brief
from op_profiler.operators.operator import Operator
from op_profiler.option_values import threads_text
from op_profiler.prediction.latency import PREDICTORS
from op_profiler.prediction.latency.base import Base
from op_profiler.prediction.latency.coverage import Coverage
from op_profiler.prediction.latency.devices import DeviceName, measure_with
from op_profiler.prediction.latency.examples import Examples
from op_profiler.prediction.latency.features import NAMES
from op_profiler.prediction.latency.interpolation import Interpolation, families_of
from op_profiler.prediction.latency.intervals import Spread
from op_profiler.prediction.latency.kernel_model import KernelModel
from op_profiler.prediction.latency.loops import columns_of
from op_profiler.prediction.latency.query import Query
from op_profiler.prediction.latency.regression import Fitted
from op_profiler.prediction.latency.roofline import Roofline

if TYPE_CHECKING:
    from op_profiler.prediction.latency.launching import Launching
    from op_profiler.prediction.latency.method import Method

TIERS = ("measured", "sampled", "interpolated", "regressed", "bound", "unsupported", "vendor")
"""Sources of an estimate, from the most to the least trustworthy; ``vendor``: estimates of vendors' kernels."""

MEASURED, SAMPLED, INTERPOLATED, REGRESSED, BOUND, UNSUPPORTED, VENDOR = range(len(TIERS))


@dataclasses.dataclass(frozen=True)
class OperatorPrediction:
    """Predictions of operators, one entry per operator.

    Attributes:
        latency_us, low_us, high_us: estimate and 90 % interval; NaN if unsupported. For the source ``bound``, only
            `low_us` is known, the least time (`Roofline.least_us`).
        tier: index into `TIERS`.
        outside: whether few measurements support the estimate (`Coverage.outside`); its interval is then doubled.
        too_large: whether the operator is unsupported because its tensors do not fit into the device's memory.
    """

    latency_us: np.ndarray
    low_us: np.ndarray
    high_us: np.ndarray
    tier: np.ndarray
    outside: np.ndarray
    too_large: np.ndarray

    def tiers(self) -> list[str]:
        """Return the source of each estimate, one of `TIERS`."""
        return [TIERS[tier] for tier in self.tier]

    def widened(self, factor: float) -> OperatorPrediction:
        """Return the same estimates with half-widths multiplied by `factor` on a logarithmic scale; the least times of
        the source ``bound`` do not change."""
        if factor == 1:
            return self
        low = np.where(self.tier == BOUND, self.low_us, self.latency_us * (self.low_us / self.latency_us) ** factor)
        high = self.latency_us * (self.high_us / self.latency_us) ** factor
        return dataclasses.replace(self, low_us=low, high_us=high)


@dataclasses.dataclass
class MeasuredTimes:
    """Look-up table by workload key, thread count and context: in a network, or in a batch of sampled operators.

    Attributes:
        keys: sorted results of `mixed`. All attributes have the shape (entries,).
        latency_us: median over the networks in which the operator was measured. For a sampled operator, the time in the
            batch with the median time, which the next three attributes describe.
        traffic_bytes, working_set_bytes, calls: context of the operator in that batch, as in `Query`.
        spread: half-width of the interval on a logarithmic scale.
    """

    keys: np.ndarray
    latency_us: np.ndarray
    traffic_bytes: np.ndarray
    working_set_bytes: np.ndarray
    calls: np.ndarray
    spread: np.ndarray

    @staticmethod
    def mixed(query: Query) -> np.ndarray:
        """Return for each entry a hash of workload key, thread count and context (Knuth's multiplicative hash)."""
        counts = (2 * query.threads.astype(np.uint64) + query.network) * np.uint64(0x9E3779B97F4A7C15)
        mixed: np.ndarray = query.keys ^ counts
        return mixed

    def find(self, query: Query) -> tuple[np.ndarray, np.ndarray]:
        """Return a mask of the entries of `query` that are in this table, and the index of each entry in this table.

        The index of an entry that is not in this table has no meaning.
        """
        wanted = self.mixed(query)
        at = np.minimum(np.searchsorted(self.keys, wanted), max(len(self.keys) - 1, 0))
        return (self.keys[at] == wanted) if len(self.keys) else np.zeros(len(query), dtype=bool), at

    def before(self, others: MeasuredTimes) -> MeasuredTimes:
        """Return a table with all entries of this table, and the entries of `others` whose keys this table lacks."""
        more = ~np.isin(others.keys, self.keys)
        fields = [field.name for field in dataclasses.fields(self)]
        joined = {name: np.concatenate([getattr(self, name), getattr(others, name)[more]]) for name in fields}
        order = np.argsort(joined["keys"], kind="stable")
        return MeasuredTimes(**{name: values[order] for name, values in joined.items()})

    def as_sampled(self, query: Query, at: np.ndarray) -> Query:
        """Return the operators of a query with the context in which they were measured in batches of sampled operators.

        Args:
            at: indices that `find` returned.
        """
        context = {name: getattr(self, name)[at] for name in ("traffic_bytes", "working_set_bytes", "calls")}
        return dataclasses.replace(query.sampled(), **context)


@dataclasses.dataclass
class OperatorPredictor:
    """Predictor of operators on one device; `fit` creates one, `op_profiler.prediction.latency.predictor_files` stores
    it.

    Attributes:
        device: device to predict for.
        choice: one of `PREDICTORS`.
        coverage: ops, attributes, dtypes and sizes that the predictor was fitted to.
        correlation: share of the errors of a network's operators that has a common cause; it determines the interval of
            a network (`op_profiler.prediction.latency.intervals.sum_half_width`).
        median_traffic_bytes: bytes that all calls of a network read and write, median over the networks that the
            predictor was fitted to.
        fingerprint: fingerprint of the measurements that the predictor was fitted to.
        launching: time of a network beyond its kernels; None on processors.
    """

    device: DeviceName
    choice: str
    base: Base
    measured: MeasuredTimes
    models: Sequence[Fitted]
    interpolation: Interpolation | None
    interpolated_families: np.ndarray
    coverage: Coverage
    spread: Spread
    correlation: float
    median_traffic_bytes: float
    fingerprint: str
    launching: Launching | None = None

    __repr__ = brief

    @property
    def roofline(self) -> Roofline:
        """Roofline of the device, from the rates that measured operators reached."""
        return self.base.roofline

    @functools.cached_property
    def method(self) -> Method:
        """The method with the name `choice`."""
        return PREDICTORS.get(self.choice)

    @property
    def thread_counts(self) -> list[int]:
        """Thread counts that the predictor was fitted to."""
        return [int(count) for count in self.roofline.threads]

    def predict(
        self, operators: Sequence[Operator] | Query, *, threads: int = 1, traffic_bytes: float | None = None
    ) -> OperatorPrediction:
        """Predict operators inside a network, in their order.

        Args:
            operators: operators, or a `Query`, which can be created once and used often. A `Query` contains its
                settings, so the other arguments have no effect on it.
            threads: one of `thread_counts`.
            traffic_bytes: number of bytes that all calls of the network read and write, which determines how cold the
                caches are; None for `median_traffic_bytes`.

        Raises:
            UsageError: the thread count was never measured; the message lists those that were.
        """
        if isinstance(operators, Query):
            query = operators
        else:
            traffic_bytes = self.median_traffic_bytes if traffic_bytes is None else traffic_bytes
            query = Query.of(operators, threads=threads, traffic_bytes=traffic_bytes)
        self.check_threads(query.threads)
        known, at = self._looked_up(query)
        latency, width = np.empty((2, len(query)))
        latency[known], width[known] = self.measured.latency_us[at[known]], self.measured.spread[at[known]]
        tier = np.full(len(query), MEASURED)
        outside = np.zeros(len(query), dtype=bool)
        too_large = self._too_large(query)
        rest = ~known | too_large
        if rest.any():
            latency[rest], width[rest], tier[rest], outside[rest] = self._estimated(query.take(rest), too_large[rest])
        low, bounded = latency * np.exp(-width), tier == BOUND
        asked = query.take(bounded)
        low[bounded] = self.spread.least_us(
            self.roofline.least_us(asked.amounts, asked.threads, self.device.cache_bytes)
        )
        return OperatorPrediction(latency, low, latency * np.exp(width), tier, outside, too_large)

    def check(self) -> None:
        """Check that the parts of a predictor fit together, by predicting a measured and an unmeasured operator.

        The parts of a damaged file may not fit together.

        Raises:
            ValueError, TypeError, KeyError, AttributeError, ...: the error of a part.
        """
        if self.choice not in PREDICTORS or not isinstance(self.fingerprint, str):
            raise ValueError("it is of no known kind")
        numbers = [self.correlation, self.median_traffic_bytes]
        tables = [getattr(self.measured, field.name) for field in dataclasses.fields(MeasuredTimes)]
        if not np.isfinite(numbers).all() or len({table.shape for table in tables}) != 1:
            raise ValueError("its tables do not fit together")
        for words in (frozenset(self.coverage.own), frozenset({"an op that nobody has seen"})):
            features = np.zeros((len(self.thread_counts), len(NAMES)), dtype=np.float32)
            count = len(features)
            loops = np.ones((count, len(columns_of(self.device.target))), dtype=np.float32)
            self.predict(
                Query(
                    keys=self.measured.keys[:1].repeat(count)
                    if len(self.measured.keys)
                    else np.zeros(count, np.uint64),
                    features=features,
                    loops=loops,
                    work=np.ones((count, 3)),
                    threads=np.array(self.thread_counts),
                    traffic_bytes=np.ones(count),
                    working_set_bytes=np.ones(count),
                    network=np.ones(count, dtype=bool),
                    calls=np.ones(count, dtype=np.int64),
                    vocabulary=np.zeros(count, dtype=np.intp),
                    op_sets=(words,),
                    form=np.zeros(count, dtype=np.intp),
                    forms=(("an op that nobody has seen",),),
                )
            )

    def sees_loops(self, query: Query) -> np.ndarray:
        """Return the mask of entries whose estimate is more accurate if `Query.loops` contains their loops."""
        if self.base.kernels is None:
            return np.zeros(len(query), dtype=bool)
        return np.asarray(~self._looked_up(query)[0])

    def check_threads(self, threads: Sequence[int] | np.ndarray) -> None:
        """Check that thread counts were measured.

        Raises:
            UsageError: a thread count was never measured; the message lists those that were.
        """
        asked = np.asarray(threads)
        unknown = ~np.isin(asked, self.roofline.threads)
        if unknown.any():
            strange = np.unique(asked[unknown])
            cores = self.device.cores
            command = measure_with(self.device.compiler, f" --threads {strange[0]}")
            advice = f"Measure with: {command}" if not cores or strange[0] <= cores else f"It has {cores} cores"
            raise UsageError(
                f"there are no measurements at {threads_text(*strange)} on {self.device.processor}; "
                f"there are at {', '.join(map(str, self.thread_counts))}. {advice}"
            )

    def _looked_up(self, query: Query) -> tuple[np.ndarray, np.ndarray]:
        """Return whether each entry is looked up, and its index in `measured`."""
        if self.method.looks_up:
            return self.measured.find(query)
        return np.zeros(len(query), dtype=bool), np.zeros(len(query), dtype=np.intp)

    def _estimated(self, query: Query, too_large: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Estimate entries that are not looked up.

        Returns:
            Latency, half-width of the interval on a logarithmic scale, source, and whether each entry is `outside`.
        """
        tier, log_ratio = self._tiers(query, too_large)
        latency = self.roofline.bound_us(query.amounts, query.threads) * np.exp(log_ratio)
        width = self.half_width(query, np.array(TIERS)[tier])
        outside = (self.coverage.outside(query) | self._is_new_work(query)) & (tier > SAMPLED) & (tier < BOUND)
        latency[tier >= BOUND] = np.nan
        return latency, np.where(outside, 2 * width, width), tier, outside

    def half_width(self, query: Query, tiers: str | np.ndarray = "regressed") -> np.ndarray:
        """Return half of the interval of each entry, on a logarithmic scale; NaN where there is no estimate.

        Args:
            tiers: source of the estimate of all entries, or of each entry.
        """
        return self.spread.half_width(query, self.base.all_columns(query), tiers, self.coverage.in_no_network(query))

    def _tiers(self, query: Query, too_large: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the source of each estimate that is not looked up, and log(time over bound)."""
        log_ratio = np.zeros(len(query))
        tier = np.where(self.coverage.learned(query), REGRESSED, BOUND)
        if self.method.corrects_samples:
            tier[self.measured.find(query.sampled())[0]] = SAMPLED
        tier[~self.coverage.has_dtypes(query) & (tier > SAMPLED)] = UNSUPPORTED
        tier[too_large] = UNSUPPORTED
        if not self.method.bounds:
            tier[tier == BOUND] = UNSUPPORTED
        sampled, regressed = tier == SAMPLED, tier == REGRESSED
        if sampled.any():
            log_ratio[sampled] = self._in_network(query.take(sampled))
        if regressed.any():
            self._regress(query.take(regressed), np.flatnonzero(regressed), tier, log_ratio)
        return tier, log_ratio

    def _is_new_work(self, query: Query) -> np.ndarray:
        """Return the mask of the kernels that spend most of their time on work that is rare in measured kernels."""
        kernels = self.base.kernels
        if not isinstance(kernels, KernelModel):
            return np.zeros(len(query), dtype=bool)
        return self.coverage.is_new_work(kernels.main_costs(query))

    def _too_large(self, query: Query) -> np.ndarray:
        """Return the mask of operators that move more bytes than the size of the device's memory."""
        memory = np.inf if self.device.memory_bytes is None else self.device.memory_bytes
        return np.asarray(query.amounts.moved > memory)

    def _in_network(self, query: Query) -> np.ndarray:
        """Return log(time over bound) of sampled operators: the measured time, corrected by the difference that the
        regressions estimate between a network and a batch of sampled operators."""
        at = self.measured.find(query.sampled())[1]
        alone = self.measured.as_sampled(query, at)
        change = self._regressed(query) - self._regressed(alone)
        bound = self.roofline.bound_us(query.amounts, query.threads)
        corrected: np.ndarray = np.log(self.measured.latency_us[at] / bound) + change
        return corrected

    def _regressed(self, query: Query) -> np.ndarray:
        return self.base.regressed(self.method, self.models, query)

    def _regress(self, query: Query, at: np.ndarray, tier: np.ndarray, log_ratio: np.ndarray) -> None:
        """Fill in the estimates of regressions and interpolation for the entries `at`."""
        if self.models:
            log_ratio[at] = self._regressed(query)
        elif self.method.scales:
            log_ratio[at] = self.spread.typical_above_bound
        else:
            tier[at] = UNSUPPORTED
        if self.interpolation is None:
            return
        families = families_of(query)
        trusted = (
            np.flatnonzero(np.isin(families, self.interpolated_families))
            if self.method.interpolates == "where better"
            else np.arange(len(query))
        )
        if not len(trusted):
            return
        found = self.interpolation.predict(query.take(trusted), families[trusted])
        inside = np.isfinite(found)
        log_ratio[at[trusted[inside]]] = found[inside]
        tier[at[trusted[inside]]] = INTERPOLATED


def query_of(examples: Examples) -> Query:
    """Return the operators of examples as a query, one entry per example."""
    distinct = Query.of(examples.operators, loops=examples.loops)
    return dataclasses.replace(
        distinct.take(examples.operator),
        threads=examples.threads,
        traffic_bytes=examples.traffic_bytes,
        working_set_bytes=examples.working_set_bytes,
        network=~examples.sampled[examples.model],
        calls=examples.occurrences,
    )
