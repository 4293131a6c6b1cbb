"""From what was measured to what was not.

from op_profiler.predict import Predictor

predictor = Predictor.from_dataset()               # what ships; or from_dataset("sqlite:///results/op_profiler.db")
predictor.predict(operators, threads=2)            # thousands at once: latency, interval and tier of each
predictor.predict_model(model, threads=2).total_us
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from op_profiler.predict.latency.predictor import Predictor

__all__ = ["Predictor"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from op_profiler.predict.latency import predictor

        return getattr(predictor, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
