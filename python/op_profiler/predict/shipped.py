"""What ships with the project, where it is a source tree."""

from __future__ import annotations

from pathlib import Path


def shipped_trials() -> Path | None:
    """The Parquet file with the trials that the shipped schedules came from; None outside a source tree."""
    path = Path(__file__).resolve().parents[3] / "results" / "schedule_trials.parquet"
    return path if path.is_file() else None
