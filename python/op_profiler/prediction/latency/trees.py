"""`Trees`: boosted trees that xgboost fitted, evaluated by numpy.

A network has a few dozen operators. For so few rows, a call of xgboost takes several times as long, most of it
overhead. Importing xgboost takes another half second.
"""

from __future__ import annotations

import dataclasses
import io
import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from op_profiler.cores import usable_cores
from op_profiler.lean_imports import load_xgboost

if TYPE_CHECKING:
    from xgboost import Booster

_ROWS_AT_ONCE = 512
"""Rows of one step, so few that their state stays in a cache."""
_DEEPEST = 16


@dataclasses.dataclass(frozen=True)
class Trees:
    """Boosted trees, whose sum is the prediction; all are padded to the depth of the deepest tree.

    Where a branch ends early, all rows continue to the left.

    Attributes:
        columns: column that each node compares, int16: level by level, and in each level tree by tree; shape (nodes,).
        bounds: a row with a smaller value continues to the left, float32, shape (nodes,).
        leaves: value of each leaf, float32, shape (trees, 2**depth).
        start: constant that is added to the sum.
    """

    columns: np.ndarray
    bounds: np.ndarray
    leaves: np.ndarray
    start: float

    @classmethod
    def of_xgboost(cls, booster: Any) -> Trees:
        """Convert an `xgboost.Booster` with one output and identity link, trained on rows without missing values."""
        learned = json.loads(bytes(booster.save_raw("json")))["learner"]
        trees = learned["gradient_booster"]["model"]["trees"]
        sizes = np.array([len(tree["left_children"]) for tree in trees])
        roots = np.cumsum(sizes) - sizes
        ends, looked_at, bound = (
            np.concatenate([np.asarray(tree[name]) for tree in trees])
            for name in ("left_children", "split_indices", "split_conditions")
        )
        left, right = (
            np.concatenate([np.asarray(tree[name]) + root for tree, root in zip(trees, roots)])
            for name in ("left_children", "right_children")
        )
        is_leaf = ends < 0
        bound = bound.astype(np.float32)  # of a leaf, the field contains its value
        columns, bounds, at = [], [], roots
        while not is_leaf[at].all():
            columns.append(np.where(is_leaf[at], 0, looked_at[at]))
            bounds.append(np.where(is_leaf[at], np.inf, bound[at]))
            at = np.where(is_leaf[at], at, np.stack([left[at], right[at]])).T.ravel()
        start = float(str(learned["learner_model_param"]["base_score"]).strip("[]"))
        return cls(
            np.concatenate([[], *columns]).astype(np.int16),
            np.concatenate([[], *bounds]).astype(np.float32),
            bound[at].reshape(len(trees), -1),
            start,
        )

    def predict(self, rows: np.ndarray) -> np.ndarray:
        """Return the predictions for rows without missing values, shape (rows,), float64."""
        if len(rows) <= _ROWS_AT_ONCE:
            return self._predict(rows)
        with ThreadPoolExecutor(usable_cores()) as pool:
            parts = np.split(rows, range(_ROWS_AT_ONCE, len(rows), _ROWS_AT_ONCE))
            return np.concatenate(list(pool.map(self._predict, parts)))

    def _predict(self, rows: np.ndarray) -> np.ndarray:
        trees, width = self.leaves.shape
        values, first = np.ascontiguousarray(rows).ravel(), np.arange(len(rows))[:, None] * rows.shape[1]
        at = np.broadcast_to(np.arange(trees), (len(rows), trees))
        for begin, end in pairwise(trees * (2 ** np.arange(width.bit_length()) - 1)):
            columns, bounds = self.columns[begin:end], self.bounds[begin:end]
            right = values.take(first + columns.take(at)) >= bounds.take(at)
            at = 2 * at + right  # the children of node i are 2 i and 2 i + 1 of the next level
        found: np.ndarray = self.leaves.take(at).sum(axis=1, dtype=np.float64) + self.start
        return found

    def to_bytes(self) -> bytes:
        """Return the trees as the content of a numpy archive (npz)."""
        buffer = io.BytesIO()
        np.savez(buffer, columns=self.columns, bounds=self.bounds, leaves=self.leaves, start=self.start)
        return buffer.getvalue()

    @classmethod
    def from_bytes(cls, content: bytes) -> Trees:
        """Return the trees that `to_bytes` wrote; raises ValueError, KeyError or zipfile's errors for other content."""
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            columns, bounds, leaves, start = (file[name] for name in ("columns", "bounds", "leaves", "start"))
        trees, width = leaves.shape
        nodes = (trees * (width - 1),)
        if width not in 2 ** np.arange(_DEEPEST) or columns.shape != nodes or bounds.shape != nodes:
            raise ValueError("its trees do not fit together")
        if columns.dtype != np.int16 or {bounds.dtype, leaves.dtype} != {np.dtype(np.float32)} or (columns < 0).any():
            raise ValueError("it holds no trees")
        return cls(columns, bounds, leaves, float(start))


def boost(
    columns: np.ndarray,
    targets: np.ndarray,
    settings: Mapping[str, Any],
    rounds: int,
    seed: int,
    weight: np.ndarray | None = None,
) -> Booster:
    """Return a model that is fitted by gradient boosting, with xgboost's default settings except for `settings`."""
    xgboost = load_xgboost()
    return xgboost.train({"seed": seed, **settings}, xgboost.DMatrix(columns, targets, weight=weight), rounds)
