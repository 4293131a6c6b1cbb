"""Builds and times the candidates of a search, in processes that may die."""

from op_profiler.measure.trials.boards import BoardRunner
from op_profiler.measure.trials.runner import Limits, TrialRunner

__all__ = ["BoardRunner", "Limits", "TrialRunner"]
