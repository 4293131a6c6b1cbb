"""Regressions of another device, corrected by what few measurements of a new one say."""

from __future__ import annotations

import dataclasses
import io
import json
import zipfile
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any, ClassVar

import numpy as np

from op_profiler.predict.latency import PREDICTORS
from op_profiler.predict.latency.features import KINDS, NAMES
from op_profiler.predict.latency.query import SETTING_NAMES
from op_profiler.predict.latency.regression import Boosted, Fitted
from op_profiler.predict.latency.roofline import Roofline, Work
from op_profiler.predict.latency.vectors import in_other_vectors

_COLUMNS = [*NAMES, *SETTING_NAMES]
_KINDS = [_COLUMNS.index(f"is_{kind}") for kind in KINDS]
_THREADS = _COLUMNS.index("threads")
_SHAPES = [*range(len(NAMES)), _THREADS]
_SHRINKAGE = 4.0
"""The prior counts as much as two operators of a kind at two thread counts."""
_ROUNDS = 300
_TREES: dict[str, Any] = {
    "max_depth": 4,
    "eta": 0.03,
    "subsample": 0.7,
    "colsample_bytree": 0.3,
    "min_child_weight": 3.0,
}
"""Flatter and slower than what learns from thousands."""


class Corrected:
    """Another device's regressions, a line of a few general columns, and trees of the shape for what is left.

    Args:
        choice: one of `PREDICTORS`, which made `models`.
        models: the other device's regressions, which see no loops; `roofline`: that device's.
        ratio: how much longer its vectors are, see `op_profiler.predict.latency.vectors`.
    """

    suffix: ClassVar[str] = ".corrected"

    def __init__(self, choice: str, models: Sequence[Fitted], roofline: Roofline, ratio: float) -> None:
        self._choice = choice
        self._models = models
        self._roofline = roofline
        self._ratio = ratio
        self._line = np.zeros(0)  # the constant is the last
        self._trees = Boosted(rounds=_ROUNDS, **_TREES)

    def fit(self, columns: np.ndarray, target: np.ndarray, weight: np.ndarray) -> None:
        """Learn the logarithm of time over the source's bound, shape (rows,)."""
        from sklearn.linear_model import Ridge

        general, shapes, base = self._described(columns)
        ridge = Ridge(_SHRINKAGE).fit(general, target - base, sample_weight=weight)
        self._line = np.append(ridge.coef_, ridge.intercept_)
        self._trees.fit(shapes, target - base - self._straight(general), weight)

    def predict(self, columns: np.ndarray) -> np.ndarray:
        general, shapes, base = self._described(columns)
        found: np.ndarray = base + self._straight(general) + self._trees.predict(shapes)
        return found

    def _straight(self, general: np.ndarray) -> np.ndarray:
        found: np.ndarray = general @ self._line[:-1] + self._line[-1]
        return found

    def _described(self, columns: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """What the line and the trees see, and what the source says."""
        seen = in_other_vectors(columns, self._ratio)
        base = PREDICTORS.get(self._choice).combined([model.predict(seen) for model in self._models])
        shares = self._shares(columns)
        most = columns[:, [_THREADS]] == self._roofline.threads.max()
        general = np.concatenate([shares, columns[:, _KINDS], most], axis=1)
        return general, np.concatenate([seen[:, _SHAPES], base[:, None], shares], axis=1), base

    def _shares(self, columns: np.ndarray) -> np.ndarray:
        """Parts of arithmetic, memory and functions in the roofline, shape (rows, 3)."""

        def amount(name: str) -> np.ndarray:
            return 2.0 ** columns[:, _COLUMNS.index(name)].astype(np.float64)

        moved = amount("input_bytes") + amount("weight_bytes") + amount("output_bytes")
        work = Work(amount("flops"), moved, amount("transcendental_work"))
        parts = self._roofline.parts_us(work, columns[:, _THREADS].astype(np.int64))
        shares: np.ndarray = parts / parts.sum(axis=1, keepdims=True)
        return shares

    def to_bytes(self) -> bytes:
        """A zip archive: numbers as JSON, the trees, and the source's regressions in their own formats."""
        roofline = {field.name: getattr(self._roofline, field.name).tolist() for field in dataclasses.fields(Roofline)}
        numbers = {"choice": self._choice, "ratio": self._ratio, "line": self._line.tolist(), "roofline": roofline}
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            archive.writestr("numbers.json", json.dumps(numbers))
            archive.writestr("trees.ubj", self._trees.to_bytes())
            for number, model in enumerate(self._models):
                archive.writestr(f"model{number}{model.suffix}", model.to_bytes())
        return buffer.getvalue()

    @classmethod
    def from_bytes(cls, content: bytes) -> Corrected:
        """What `to_bytes` wrote; raises ValueError, KeyError or what the formats raise for anything else."""
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
        numbers = json.loads(members["numbers.json"])
        roofline = Roofline(**{name: np.array(values) for name, values in numbers["roofline"].items()})
        kinds = {kind.suffix: kind for kind in PREDICTORS.get(numbers["choice"]).regressor_types}
        names = sorted(name for name in members if name.startswith("model"))
        models = [kinds[PurePath(name).suffix].from_bytes(members[name]) for name in names]
        found = cls(numbers["choice"], models, roofline, float(numbers["ratio"]))
        found._line = np.array(numbers["line"], dtype=np.float64)
        found._trees = Boosted.from_bytes(members["trees.ubj"])
        return found
