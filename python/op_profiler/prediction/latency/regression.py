"""Regressions of the logarithm of an operator's time over its roofline bound."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Any, ClassVar, Protocol

import numpy as np

from op_profiler.cores import usable_cores
from op_profiler.errors import needing
from op_profiler.prediction.latency.trees import Trees, boost

_TREES = {
    "max_depth": 8,
    "eta": 0.16,
    "subsample": 0.8,
    "colsample_bytree": 0.5,
    "min_child_weight": 2.0,
    "lambda": 2.0,
    "tree_method": "hist",
    "max_bin": 128,
    "nthread": 1,
}
"""Each fit uses one thread: threads wait for each other at every node, which takes ten times as long under background
load. `fit_all` runs several fits in parallel. 512 bins instead of 128 take twice as long, for the same errors."""
_ROUNDS = 120
_TRUSTED = ["sklearn.tree._tree.Tree"]
"""Type of the arrays of nodes; skops does not trust it by default, because it is compiled."""


class Fitted(Protocol):
    """A fitted regression of any kind.

    Attributes:
        suffix: suffix of files with the content of `to_bytes`; it differs between the classes of a method.
    """

    suffix: ClassVar[str]

    def predict(self, columns: np.ndarray) -> np.ndarray:
        """Return the predictions, shape (rows,)."""

    def to_bytes(self) -> bytes:
        """Return the regression as the content of a file; it is never a pickle."""


class Regressor(Fitted, Protocol):
    """A regression that is fitted once and then used for any number of predictions."""

    @classmethod
    def from_bytes(cls, content: bytes) -> Regressor:
        """Return the regression whose `to_bytes` returned `content`; raises an error for other content, such as a
        pickle."""

    def fit(self, columns: np.ndarray, target: np.ndarray, weight: np.ndarray) -> None:
        """Fit to `target` (shape (rows,)) from `columns` (shape (rows, columns))."""


def fit_all(
    models: Sequence[Regressor], columns: np.ndarray, targets: Sequence[np.ndarray], weight: np.ndarray
) -> None:
    """Fit each model to its target (shape (rows,)), all with the same `columns` and `weight`; as many fits run in
    parallel as there are cores."""
    with ThreadPoolExecutor(usable_cores()) as pool:
        for done in [pool.submit(model.fit, columns, target, weight) for model, target in zip(models, targets)]:
            done.result()


class BoostedTrees:
    """Gradient-boosted trees (Chen & Guestrin, XGBoost, KDD 2016); xgboost is needed only to fit them."""

    suffix: ClassVar[str] = ".npz"

    def __init__(self, seed: int = 0, rounds: int = _ROUNDS, **parameters: Any) -> None:
        self._parameters = _TREES | {"verbosity": 0} | parameters
        self._seed = seed
        self._rounds = rounds
        self._trees: Trees | None = None

    def fit(self, columns: np.ndarray, target: np.ndarray, weight: np.ndarray) -> None:
        """Fit the trees with xgboost and store them as arrays."""
        fitted = boost(columns, target, self._parameters, self._rounds, self._seed, weight)
        self._trees = Trees.of_xgboost(fitted)

    def predict(self, columns: np.ndarray) -> np.ndarray:
        """Return the sum over the trees for each row, shape (rows,)."""
        assert self._trees is not None, "it is not fitted"
        return self._trees.predict(columns)

    def to_bytes(self) -> bytes:
        """Return the trees as bytes; see `Trees.to_bytes`."""
        assert self._trees is not None, "it is not fitted"
        return self._trees.to_bytes()

    @classmethod
    def from_bytes(cls, content: bytes) -> BoostedTrees:
        """Return the trees that `to_bytes` wrote; for errors see `Trees.from_bytes`."""
        found = cls()
        found._trees = Trees.from_bytes(content)
        return found


class SklearnTrees:
    """A tree or a forest of scikit-learn, stored in skops' format."""

    suffix: ClassVar[str] = ".skops"

    def __init__(self, model: Any) -> None:
        self.model = model

    @classmethod
    def of(cls, name: str, seed: int) -> SklearnTrees:
        """Return a ``random_forest`` or a ``decision_tree`` that is not fitted yet."""
        with needing("scikit-learn", f"the predictor {name}", extra="predict"):
            from sklearn import ensemble, tree
        if name == "decision_tree":
            return cls(tree.DecisionTreeRegressor(min_samples_leaf=2, random_state=seed))
        return cls(ensemble.RandomForestRegressor(100, max_features=0.5, n_jobs=-1, random_state=seed))

    def fit(self, columns: np.ndarray, target: np.ndarray, weight: np.ndarray) -> None:
        """Fit the model of scikit-learn with `weight` as sample weights, shape (rows,)."""
        self.model.fit(columns, target, sample_weight=weight)

    def predict(self, columns: np.ndarray) -> np.ndarray:
        """Return the estimate for each row, shape (rows,), float64."""
        return np.asarray(self.model.predict(columns), dtype=np.float64)

    def to_bytes(self) -> bytes:
        """Return the model in skops' format."""
        return bytes(_skops().dumps(self.model))

    @classmethod
    def from_bytes(cls, content: bytes) -> SklearnTrees:
        """Return the model that `to_bytes` wrote.

        Raises:
            ValueError: the content is not a tree or forest of scikit-learn.
        """
        io = _skops()
        unknown = set(io.get_untrusted_types(data=content)) - set(_TRUSTED)
        if unknown:
            raise ValueError(f"it holds objects that are not trusted: {', '.join(sorted(unknown))}")
        return cls(io.loads(content, trusted=_TRUSTED))


def _skops() -> ModuleType:
    with needing("skops", "a stored predictor of scikit-learn's", extra="predict"):
        from skops import io
    return io
