"""Included data: a dataset and a fitted predictor for each of several devices, schedule trials, and schedule records.

In a checkout, the folders next to this file are links to the top-level folders ``results/`` and ``schedules/``, where
people find and edit the data. In an installed package they are folders with copies.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

_FOLDER = Path(__file__).parent


@dataclasses.dataclass(frozen=True)
class ShippedProcessor:
    """Included data of one processor or GPU: a folder of ``results/``, named as in files of schedule records.

    See `op_profiler.schedules.records.slug` for the names.
    """

    folder: Path

    @property
    def operators(self) -> Path | None:
        """Parquet file with the operators of networks and of sampling runs; None if it was removed."""
        return _existing(self.folder / "operators.parquet")

    @property
    def loops(self) -> Path | None:
        """File with the loops of `operators`; None if it was removed."""
        return _existing(self.folder / "operator_loops.npz")

    @property
    def predictor(self) -> Path | None:
        """Predictor that was fitted to `operators`; None if it was removed."""
        return _existing(self.folder / "predictor.zip")

    @property
    def networks(self) -> Path | None:
        """Lowered models of `operators`, for machines without the TVM that lowers for the device; None without them."""
        return _existing(self.folder / "networks.zip")


def shipped_processors() -> list[ShippedProcessor]:
    """Return the processors with an included dataset or predictor, sorted by name."""
    return _ships_in(_FOLDER / "results")


def shipped_gpus() -> list[ShippedProcessor]:
    """Return the GPUs with an included dataset or predictor, sorted by name; they are never used instead of a
    processor."""
    return _ships_in(_FOLDER / "results" / "cuda")


def shipped_vendor_kernels() -> Path:
    """Return the path of the predictor of vendor kernels, which may be missing."""
    return (_FOLDER / "results" / "cuda" / "vendor" / "kernels.zip").resolve()


def _ships_in(folder: Path) -> list[ShippedProcessor]:
    folders = sorted(folder.resolve().glob("[!.]*"))  # one that is being made begins with a dot
    return [one for one in map(ShippedProcessor, folders) if one.operators or one.predictor]


def nearest_processor(name: str) -> ShippedProcessor | None:
    """Return the processor with included data whose name is the given one or the most similar to it; None without any.

    Similar names have many words in common; of several, the one with the largest dataset is returned.

    Args:
        name: a name in the form of the folders.
    """
    words = set(name.split("-"))
    return max(
        shipped_processors(),
        key=lambda one: (one.folder.name == name, len(words & set(one.folder.name.split("-"))), _size(one.operators)),
        default=None,
    )


def shipped_trials() -> Path | None:
    """Return the Parquet file with the trials behind the included schedule records; None if it was removed."""
    return _existing((_FOLDER / "results" / "schedule_trials.parquet").resolve())


def shipped_schedules() -> Path:
    """Return the folder of the included schedule records."""
    return (_FOLDER / "schedules").resolve()


def is_checkout() -> bool:
    """Return whether the included data may be changed in place; an installed package must not be written to."""
    return (_FOLDER / "schedules").is_symlink()


def _size(path: Path | None) -> int:
    return 0 if path is None else path.stat().st_size


def _existing(path: Path) -> Path | None:
    return path if path.is_file() else None
