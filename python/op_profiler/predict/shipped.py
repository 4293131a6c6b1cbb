"""What ships with the project, where it is a source tree."""

from __future__ import annotations

from pathlib import Path

_RESULTS = Path(__file__).resolve().parents[3] / "results"


def shipped_trials() -> Path | None:
    """The Parquet file with the trials that the shipped schedules came from; None outside a source tree."""
    return _existing("schedule_trials.parquet")


def shipped_operators() -> Path | None:
    """The Parquet file with the operators of networks and of the sampling run; None outside a source tree."""
    return _existing("operators.parquet")


def shipped_predictor() -> Path | None:
    """The predictor that was fitted to `shipped_operators`; None outside a source tree."""
    return _existing("predictor.zip")


def _existing(name: str) -> Path | None:
    path = _RESULTS / name
    return path if path.is_file() else None
