"""op_profiler: a compiler-level operator profiler and latency predictor for deep learning, built on TVM.

The names of `__all__` are loaded when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

__all__ = [
    "Dataset",
    "Predictor",
    "Run",
    "collect",
    "compare",
    "corun",
    "explain",
    "export",
    "predict",
    "sample",
    "schedule",
    "tune",
]
__version__ = "0.1.0"

if TYPE_CHECKING:
    from op_profiler.api import collect, compare, corun, explain, export, predict, sample, schedule, tune
    from op_profiler.dataset.store import Dataset
    from op_profiler.prediction.latency.predictor import Predictor
    from op_profiler.run import Run
else:
    _HOMES = {
        "Dataset": "dataset.store",
        "Predictor": "prediction.latency.predictor",
        "Run": "run",
        **dict.fromkeys(
            ("collect", "compare", "corun", "explain", "export", "predict", "sample", "schedule", "tune"), "api"
        ),
    }

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
