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
    "analyze",
    "calibrate",
    "check",
    "collect",
    "compare",
    "compare_peers",
    "corun",
    "evaluate",
    "explain",
    "export",
    "import_results",
    "predict",
    "sample",
    "schedule",
    "tune",
]
__version__ = "1.0.0"

if TYPE_CHECKING:
    from op_profiler.api.measuring import calibrate, check, collect, compare_peers, corun, explain, sample, tune
    from op_profiler.api.predicting import evaluate, predict, schedule
    from op_profiler.api.results import analyze, compare, export, import_results
    from op_profiler.dataset.store import Dataset
    from op_profiler.prediction.latency.predictor import Predictor
    from op_profiler.run import Run
else:
    _HOMES = {
        "Dataset": "dataset.store",
        "Predictor": "prediction.latency.predictor",
        "Run": "run",
        **dict.fromkeys(
            ("calibrate", "check", "collect", "compare_peers", "corun", "explain", "sample", "tune"), "api.measuring"
        ),
        **dict.fromkeys(("evaluate", "predict", "schedule"), "api.predicting"),
        **dict.fromkeys(("analyze", "compare", "export", "import_results"), "api.results"),
    }

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
