"""Data that ships with the package: a dataset and a fitted predictor for each of several processors, trials, and
schedule records.

In a checkout the folders beside this file are links to ``results/`` and ``schedules/`` at the top, where people see and
edit what ships. In an installed package they are folders, with copies of what a build found there.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

_FOLDER = Path(__file__).parent


@dataclasses.dataclass(frozen=True)
class ShippedProcessor:
    """Shipped data of one processor or GPU: a folder of ``results/`` with its name as in files of schedule records
    (`op_profiler.schedules.records.slug`)."""

    folder: Path

    @property
    def operators(self) -> Path | None:
        """The Parquet file with the operators of networks and of sampling runs; None where it was removed."""
        return _existing(self.folder / "operators.parquet")

    @property
    def loops(self) -> Path | None:
        """The arrays of what the loops of `operators` do; None where it was removed."""
        return _existing(self.folder / "operator_loops.npz")

    @property
    def predictor(self) -> Path | None:
        """The predictor that was fitted to `operators`; None where it was removed."""
        return _existing(self.folder / "predictor.zip")


def shipped_processors() -> list[ShippedProcessor]:
    """Return processors with a shipped dataset or predictor, sorted by name."""
    return _ships_in(_FOLDER / "results")


def shipped_gpus() -> list[ShippedProcessor]:
    """Return GPUs with a shipped dataset or predictor, sorted by name; they never stand in for a processor."""
    return _ships_in(_FOLDER / "results" / "cuda")


def _ships_in(folder: Path) -> list[ShippedProcessor]:
    folders = sorted(folder.resolve().glob("[!.]*"))  # one that is being made begins with a dot
    return [one for one in map(ShippedProcessor, folders) if one.operators or one.predictor]


def nearest_processor(name: str) -> ShippedProcessor | None:
    """The processor of a name where it ships, else the one whose name shares most words with it, of several the one
    with the largest dataset; None where nothing ships.

    Args:
        name: as the folders have it.
    """
    words = set(name.split("-"))
    return max(
        shipped_processors(),
        key=lambda one: (one.folder.name == name, len(words & set(one.folder.name.split("-"))), _size(one.operators)),
        default=None,
    )


def shipped_trials() -> Path | None:
    """The Parquet file with the trials that the shipped schedules came from; None where it was removed."""
    return _existing((_FOLDER / "results" / "schedule_trials.parquet").resolve())


def shipped_schedules() -> Path:
    """The folder of the schedule records."""
    return (_FOLDER / "schedules").resolve()


def is_checkout() -> bool:
    """Whether what ships may be changed where it lies: an installed package is not for writing."""
    return (_FOLDER / "schedules").is_symlink()


def _size(path: Path | None) -> int:
    return 0 if path is None else path.stat().st_size


def _existing(path: Path) -> Path | None:
    return path if path.is_file() else None
