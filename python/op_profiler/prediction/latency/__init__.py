"""Predictors of the latency of operators and networks on a device, fitted to a dataset."""

from __future__ import annotations

from typing import TYPE_CHECKING

from op_profiler.registry import Entry, Registry

if TYPE_CHECKING:
    from op_profiler.prediction.latency.method import Method

_HERE = "op_profiler.prediction.latency"

PREDICTORS: Registry[Method] = Registry(
    "predictors",
    "predictor",
    f"{_HERE}.method:Method",
    {
        "default": Entry(
            f"{_HERE}.methods:DEFAULT",
            "look-up of measured times; otherwise sampled times, corrected for a network; otherwise boosted trees, or "
            "interpolation if it was more accurate on held-out operators",
        ),
        "lookup": Entry(f"{_HERE}.methods:LOOKUP", "look-up of measured times only"),
        "interpolation": Entry(
            f"{_HERE}.methods:INTERPOLATION", "interpolation between measured operators of one family"
        ),
        "decision_tree": Entry(f"{_HERE}.methods:DECISION_TREE", "one tree"),
        "random_forest": Entry(f"{_HERE}.methods:RANDOM_FOREST", "a forest of trees"),
        "xgboost": Entry(f"{_HERE}.methods:XGBOOST", "gradient-boosted trees"),
        "mean": Entry(f"{_HERE}.methods:MEAN", "the mean of the estimates of xgboost, random_forest and decision_tree"),
        "roofline": Entry(f"{_HERE}.methods:ROOFLINE", "the least time that the device's peaks allow, scaled"),
    },
)
