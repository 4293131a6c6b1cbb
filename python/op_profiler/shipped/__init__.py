"""What ships with the package: datasets, the predictor that was fitted to one of them, and schedule records.

In a checkout the folders beside this file are links to ``results/`` and ``schedules/`` at the top, where people see and
edit what ships. In an installed package they are folders, with copies of what a build found there.
"""

from __future__ import annotations

from pathlib import Path

_FOLDER = Path(__file__).parent


def shipped_trials() -> Path | None:
    """The Parquet file with the trials that the shipped schedules came from; None where it was removed."""
    return _existing("schedule_trials.parquet")


def shipped_operators() -> Path | None:
    """The Parquet file with the operators of networks and of the sampling run; None where it was removed."""
    return _existing("operators.parquet")


def shipped_loops() -> Path | None:
    """The arrays of what the loops of `shipped_operators` do; None where it was removed."""
    return _existing("operator_loops.npz")


def shipped_predictor() -> Path | None:
    """The predictor that was fitted to `shipped_operators`; None where it was removed."""
    return _existing("predictor.zip")


def shipped_schedules() -> Path:
    """The folder of the schedule records."""
    return (_FOLDER / "schedules").resolve()


def is_checkout() -> bool:
    """Whether what ships may be changed where it lies: an installed package is not for writing."""
    return (_FOLDER / "schedules").is_symlink()


def _existing(name: str) -> Path | None:
    path = (_FOLDER / "results" / name).resolve()
    return path if path.is_file() else None
