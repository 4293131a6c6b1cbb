"""Correlations between the latency of operators and each factor.

**Factors of an operator** (sizes, FLOPs, bytes) are compared between operators. Each operator is one sample: the
fastest of its measured schedules, in the combination of device and settings in which most operators of the anchor were
measured (`Correlation.under`). Hundreds of trials of one operator are one sample, because otherwise any p-value would
be small. Pearson's r is computed from the logarithms of latency and factor, so that 1 is a power law; a factor that can
be 0 is used without logarithm.

**Factors of a schedule or a setting** are compared within an operator, where differences between operators cannot hide
them. A group is one operator on one device under the same settings (for a setting: also with the same schedule). Groups
in which the factor does not vary are left out. Latency is relative to the median of the group, because the smallest of
many noisy times is too small. Pearson's r is computed from the logarithms of latency and factor, each minus its mean in
the group (the "within estimator" of panel data, Wooldridge, Econometric Analysis, 10.5). Spearman and Kendall are
computed from the ranks within the group, so that a factor that orders every group perfectly has 1.

**Mutual information** (nats) is estimated from nearest neighbours (Kraskov et al. 2004; Ross 2014 if the factor has few
values), by scikit-learn. It also detects relations that are not monotonic, and is never negative.

**Categories** have no order and therefore no r. They have mutual information, and eta (the correlation ratio: the root
of the share of the variance of log latency that lies between the categories, 0 to 1). Their p-value is that of Kruskal
and Wallis' test. eta increases with the number of categories even by chance: consider p and the count too.

p-values are not corrected for the number of factors, and assume independent samples. The trials of a search are not
fully independent, because a tuner continues where it was fast. Within operators, the mean of each group uses one degree
of freedom (Wooldridge, 10.5). p-values show whether there is a relation, not how strong it is. Failed schedules have no
latency and are not included.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import stats

from op_profiler.analysis.table import PLACE, SETTINGS, Factor, FactorTable
from op_profiler.errors import needing

if TYPE_CHECKING:
    import pandas

MINIMUM = 10
"""Smallest number of samples for a result: with 9, a rank correlation of 0.66 still has p = 0.05."""

_FEW_VALUES = 0.2
"""A number with fewer distinct values than this share of the samples counts as discrete for mutual information."""

_COMBINATION = ["device_key", *SETTINGS]
_SEED = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Correlation:
    """Correlation between the latency of one anchor's operators and one factor.

    A statistic is None if it does not apply to the factor or if there are too few samples.

    Attributes:
        anchor: heavy op of the operators.
        factor: name of the factor.
        kind: ``number`` or ``category``.
        compared: ``between operators`` or ``within operators``.
        samples: number of samples.
        operators: number of operators that the samples belong to.
        levels: number of distinct values of the factor.
        under: device and settings under which operators were compared; empty if there is only one combination, or
            within operators.
        pearson, spearman, kendall: -1 to 1 (Kendall's tau-b), each with its two-sided p-value.
        mutual_information: nats.
        eta: correlation ratio of a category, 0 to 1; see the description of the module.
        eta_p: p-value of Kruskal and Wallis' test.
        not_enough: reason why the statistics are missing; None if they were computed.
    """

    anchor: str
    factor: str
    kind: str
    compared: str
    samples: int
    operators: int
    levels: int
    under: dict[str, Any] = dataclasses.field(default_factory=dict)
    pearson: float | None = None
    pearson_p: float | None = None
    spearman: float | None = None
    spearman_p: float | None = None
    kendall: float | None = None
    kendall_p: float | None = None
    mutual_information: float | None = None
    eta: float | None = None
    eta_p: float | None = None
    not_enough: str | None = None


def correlations(table: FactorTable, factors: Sequence[str]) -> list[Correlation]:
    """Return the correlation of each anchor and factor, sorted by anchor.

    Raises:
        UnknownNameError: there is no such factor; the message names the most similar one.
        MissingPackageError: scikit-learn is not installed.
    """
    chosen = table.choose(factors)
    return [
        _correlation(str(anchor), frame, factor)
        for anchor, frame in table.frame.groupby("anchor", sort=True)
        for factor in chosen
    ]


def _group_columns(factor: Factor) -> list[str]:
    """Return the columns whose values must be equal in a group for a factor of a schedule or setting."""
    schedule = ["schedule_key"] if factor.level == "setting" else []
    return ["operator_key", *schedule, *PLACE, *(name for name in SETTINGS if name != factor.name)]


def comparable(frame: pandas.DataFrame, factor: Factor) -> pandas.DataFrame:
    """Return the samples from which the correlation of a factor is computed.

    Returns:
        A frame with the columns ``operator_key``, ``x`` (value of the factor), ``y`` and ``group``. ``y`` is the
        logarithm of the latency in microseconds for a factor of the operator; for other factors, it is the logarithm of
        the latency divided by the median of its group.
    """
    known = frame[frame[factor.name].notna()]
    if factor.level == "operator":
        same = _in_one_combination(known)
        best = same.loc[same.groupby("operator_key")["latency_us"].idxmin()]
        samples = best.assign(x=best[factor.name], y=np.log(best["latency_us"]), group=0)
    else:
        groups = known.groupby(_group_columns(factor), dropna=False)
        varying = known[groups[factor.name].transform("nunique") > 1]
        groups = varying.groupby(_group_columns(factor), dropna=False)
        relative = np.log(varying["latency_us"] / groups["latency_us"].transform("median"))
        samples = varying.assign(x=varying[factor.name], y=relative, group=groups.ngroup())
    return samples[["operator_key", "x", "y", "group"]]


def _in_one_combination(frame: pandas.DataFrame) -> pandas.DataFrame:
    """Return the measurements in the combination of device and settings in which most operators were measured; if
    several combinations have equally many operators, those of the first in sorted order."""
    if frame.empty:
        return frame
    combinations = frame.groupby(_COMBINATION, dropna=False)
    operators, number = combinations["operator_key"].transform("nunique"), combinations.ngroup()
    return frame[number == number[operators == operators.max()].min()]


def _under(frame: pandas.DataFrame, factor: Factor) -> dict[str, Any]:
    """Return `Correlation.under`."""
    known = frame[frame[factor.name].notna()]
    chosen = _in_one_combination(known).head(1)
    several = [name for name in _COMBINATION if known[name].nunique(dropna=False) > 1]
    return {name: None if chosen[name].isna().item() else chosen[name].item() for name in several}


def _correlation(anchor: str, frame: pandas.DataFrame, factor: Factor) -> Correlation:
    samples = comparable(frame, factor)
    between = factor.level == "operator"
    known: dict[str, Any] = {
        "anchor": anchor,
        "factor": factor.name,
        "kind": factor.kind,
        "compared": "between operators" if between else "within operators",
        "samples": len(samples),
        "operators": samples["operator_key"].nunique(),
        "levels": samples["x"].nunique(),
        "under": _under(frame, factor) if between else {},
    }
    reason = _not_enough(frame[factor.name], samples, between=between)
    if reason is not None:
        return Correlation(**known, not_enough=reason)
    known |= (
        _of_numbers(samples, between=between) if factor.kind == "number" else _of_categories(samples, between=between)
    )
    return Correlation(**known)


def _not_enough(values: pandas.Series, samples: pandas.DataFrame, *, between: bool) -> str | None:
    given = values.dropna()
    if given.empty:
        return "no measurement contains it"
    if given.nunique() == 1:
        return f"it is {_plain(given.iloc[0])} in every measurement"
    if not between and samples.empty:
        return "it does not vary within any operator whose other conditions stay the same"
    if len(samples) < MINIMUM:
        return f"{len(samples)} samples ({'operators' if between else 'measurements'}), {MINIMUM} are needed"
    if samples["x"].nunique() == 1:
        return f"it is {_plain(samples['x'].iloc[0])} in every sample"
    if samples["y"].nunique() == 1:
        return "the latency is the same in every sample"
    return None


def _plain(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _of_numbers(samples: pandas.DataFrame, *, between: bool) -> dict[str, float | None]:
    raw, latency = samples["x"].to_numpy(float), samples["y"].to_numpy(float)
    x, y = np.log(raw) if (raw > 0).all() else raw, latency
    ranked = samples[["x", "y"]]
    if not between:
        groups = samples["group"].to_numpy()
        x, y = _without_means(x, groups), _without_means(y, groups)
        ranked = samples.groupby("group")[["x", "y"]].rank(pct=True)
        ranked -= ranked.groupby(samples["group"]).transform("mean")  # or a large group's ranks would count as more
    figures: dict[str, float | None] = {}
    tests = {
        "pearson": stats.pearsonr(x, y),
        "spearman": stats.spearmanr(ranked["x"], ranked["y"]),
        "kendall": stats.kendalltau(ranked["x"], ranked["y"]),
    }
    free = 1.0 if between else _free(samples)
    for name, result in tests.items():
        p = result.pvalue if between else _p_value(name, result, len(samples), free)
        figures[name], figures[f"{name}_p"] = _finite(result.statistic), _finite(p)
    few = len(np.unique(raw)) < _FEW_VALUES * len(raw)
    figures["mutual_information"] = _information(raw if few else x, latency, discrete=few)
    return figures


def _free(samples: pandas.DataFrame) -> float:
    """Return the share of degrees of freedom that remains after the mean of each group is subtracted."""
    return 1.0 - samples["group"].nunique() / len(samples)


def _p_value(name: str, result: Any, samples: int, free: float) -> float:
    """Return the p-value of a correlation between deviations from group means, for the remaining degrees of freedom."""
    if name == "kendall":  # the variance of tau falls with the number of samples
        return float(2 * stats.norm.sf(stats.norm.isf(result.pvalue / 2) * math.sqrt(free)))
    freedom = samples * free - 1
    with np.errstate(divide="ignore"):
        t = result.statistic * np.sqrt(freedom / (1 - np.square(result.statistic)))
    return float(2 * stats.t.sf(abs(t), freedom))


def _of_categories(samples: pandas.DataFrame, *, between: bool) -> dict[str, float | None]:
    codes, latency = samples["x"].astype(str).factorize()[0], samples["y"].to_numpy(float)
    groups = [latency[codes == code] for code in np.unique(codes)]
    explained = sum(len(group) * (group.mean() - latency.mean()) ** 2 for group in groups)
    total = float(((latency - latency.mean()) ** 2).sum())
    test = stats.kruskal(*groups)
    p = test.pvalue if between else stats.chi2.sf(test.statistic * _free(samples), len(groups) - 1)
    return {
        "mutual_information": _information(codes.astype(float), latency, discrete=True),
        "eta": math.sqrt(explained / total),
        "eta_p": _finite(p),
    }


def _without_means(values: np.ndarray, groups: np.ndarray) -> np.ndarray:
    sums, counts = np.bincount(groups, weights=values), np.bincount(groups)
    without: np.ndarray = values - (sums / np.maximum(counts, 1))[groups]
    return without


def _finite(value: Any) -> float | None:
    return float(value) if math.isfinite(value) else None


def _information(x: np.ndarray, y: np.ndarray, *, discrete: bool) -> float:
    with needing("scikit-learn", "mutual information", extra="predict"):
        from sklearn.feature_selection import mutual_info_regression
    if discrete:
        x = np.unique(x, return_inverse=True)[1].astype(float)
    found = mutual_info_regression(x[:, None], y, discrete_features=discrete, random_state=_SEED)
    return float(found[0])
