"""Predicted turnaround points of operators that were not swept.

The classes are the turnaround points, and ``> n`` for operators whose latency still decreased at the largest value n. A
random forest (scikit-learn) is fitted to the operators' sizes, FLOPs, bytes, window and anchor. Its accuracy is
measured by cross-validation, with all sweeps of an operator in the same fold, and compared with always answering the
most frequent class, by the p-value of McNemar's exact test (Dietterich 1998). A model that is not better than the most
frequent class is useless, and the score reports this.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from op_profiler.analysis.table import FactorTable, plain_anchor
from op_profiler.analysis.turnaround import Turnaround
from op_profiler.errors import needing

if TYPE_CHECKING:
    import pandas

MINIMUM_OPERATORS = 20
"""Smallest number of swept operators for a prediction: four per fold."""

_FOLDS = 5
_SIGNIFICANT = 0.05
_SIZES = (
    *("input_size", "batch", "input_channels", "output_channels", "kernel", "stride"),
    *("flops", "bytes", "arithmetic_intensity"),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TurnaroundPrediction:
    """Predicted turnaround points of operators that were not swept, and the accuracy of the prediction.

    Attributes:
        factor: name of the factor.
        operators: number of swept operators.
        sweeps: number of sweeps of these operators; an operator may be swept under several settings.
        classes: number of sweeps by turnaround point.
        accuracy: share of held-out sweeps whose turnaround point is predicted; None if nothing is predicted.
        baseline: accuracy of always answering the most frequent class; None if nothing is predicted.
        p_value: two-sided p-value of McNemar's exact test between accuracy and baseline; None if nothing is predicted.
        better: whether the accuracy is above the baseline with a p-value below 0.05.
        predicted: predicted turnaround point of each operator that was not swept, by workload key.
        refused: reason why nothing is predicted; None if there are predictions.
    """

    factor: str
    operators: int
    sweeps: int
    classes: dict[str, int]
    accuracy: float | None = None
    baseline: float | None = None
    p_value: float | None = None
    better: bool = False
    predicted: dict[str, str] = dataclasses.field(default_factory=dict)
    refused: str | None = None


def predict_unswept(table: FactorTable, factor: str, swept: Sequence[Turnaround]) -> TurnaroundPrediction:
    """Predict the turnaround points of the operators in `table` that were not swept over a factor, and evaluate the
    prediction on the operators that were swept.

    Args:
        swept: result of `turnarounds` for this factor and this table.

    Raises:
        MissingPackageError: scikit-learn is not installed.
    """
    labels = np.array([f"{one.value:g}" if one.value is not None else f"> {one.values[-1]:g}" for one in swept])
    keys = np.array([found.operator_key for found in swept])
    counts = dict(sorted(Counter(labels.tolist()).items()))
    known: dict[str, Any] = {
        "factor": factor,
        "operators": len(set(keys.tolist())),
        "sweeps": len(swept),
        "classes": counts,
    }
    if known["operators"] < MINIMUM_OPERATORS:
        reason = f"{known['operators']} operators were swept over {factor}, {MINIMUM_OPERATORS} are needed"
        return TurnaroundPrediction(**known, refused=f"not enough: {reason}")
    if len(counts) == 1:
        return TurnaroundPrediction(**known, refused=f"nothing to compare: every sweep gave {next(iter(counts))}")
    features = _features(table.frame)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The number of unique classes")  # as many as sweeps: the score tells
        right, common = _held_out(features.loc[keys].to_numpy(), labels, keys)
        others = features.drop(index=sorted({member for found in swept for member in found.members}))
        predicted: dict[str, str] = {}
        if len(others):
            answers = _model().fit(features.loc[keys].to_numpy(), labels).predict(others.to_numpy())
            predicted = dict(zip(map(str, others.index), map(str, answers)))
    p_value = _mcnemar(right, common)
    accuracy, baseline = float(right.mean()), float(common.mean())
    better = accuracy > baseline and p_value < _SIGNIFICANT
    return TurnaroundPrediction(
        **known, accuracy=accuracy, baseline=baseline, p_value=p_value, better=better, predicted=predicted
    )


def _features(frame: pandas.DataFrame) -> pandas.DataFrame:
    """Return one row per operator: logarithms of its sizes (-1 if it has none), and a column per anchor."""
    import pandas

    one = frame.drop_duplicates("operator_key").set_index("operator_key")
    sizes = np.log2(one[list(_SIZES)].clip(lower=1e-3)).fillna(-1.0)
    anchors = pandas.get_dummies(one["anchor"].map(plain_anchor), dtype=float)
    return pandas.concat([sizes, anchors], axis=1)


def _held_out(features: np.ndarray, labels: np.ndarray, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return two masks of the sweeps: where the model predicted the right class while the operator of the sweep was
    held out, and where the most frequent class was right."""
    with needing("scikit-learn", "predicting turnaround points", extra="predict"):
        from sklearn import dummy, model_selection
    folds = list(model_selection.GroupKFold(_FOLDS, shuffle=True, random_state=0).split(features, labels, keys))
    ours = model_selection.cross_val_predict(_model(), features, labels, cv=folds)
    most_frequent = dummy.DummyClassifier(strategy="most_frequent")
    common = model_selection.cross_val_predict(most_frequent, features, labels, cv=folds)
    return ours == labels, common == labels


def _mcnemar(one: np.ndarray, other: np.ndarray) -> float:
    from scipy.stats import binomtest

    only_one, only_other = int((one & ~other).sum()), int((other & ~one).sum())
    discordant = only_one + only_other
    return float(binomtest(only_one, discordant).pvalue) if discordant else 1.0


def _model() -> Any:
    from sklearn.ensemble import RandomForestClassifier

    return RandomForestClassifier(n_estimators=100, min_samples_leaf=2, random_state=0)
