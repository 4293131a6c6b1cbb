"""The contract of a public set: the result of its reader, and functions that readers share."""

from __future__ import annotations

import collections
import csv
import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import numpy as np

from op_profiler.errors import DatasetError
from op_profiler.prediction.library.library_predictor import LibraryPrediction

METHODS = ("default", "trees", "factor")
"""Methods that are evaluated on each set: ``default`` is this project's method, ``trees`` is plain gradient boosting,
and ``factor`` multiplies a simple model, or the times of known devices, by one factor."""


@dataclasses.dataclass(frozen=True)
class Published:
    """An error or rank correlation that the authors of a set published, or that was computed from their results.

    Attributes:
        percent: the error in per cent, or the rank correlation, which is at most 1.
        measure: ``MAPE`` or ``median`` (of the absolute error), or ``Spearman`` (the rank correlation).
        of: description of the split on which the error was published; empty if this is the split of the result that the
            error is shown next to.
    """

    percent: float
    measure: str
    of: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Split:
    """Rows to predict, and the methods that predict them.

    Attributes:
        name: name of the split, unique in its set.
        held_out: description of the rows that the methods are not fitted to.
        development: description of the training rows by which weights and intervals were chosen.
        trained: number of training rows.
        truth_us: shape (rows,), microseconds.
        answer: function that returns the estimates of a method, given its name in `METHODS`.
        published: published error or rank correlation; None if none was published.
        ranked: shape (rows,): number of the group within which a row is ranked; None: no rank correlation is computed.
    """

    name: str
    held_out: str
    development: str
    trained: int
    truth_us: np.ndarray
    answer: Callable[[str], LibraryPrediction]
    published: Published | None = None
    ranked: np.ndarray | None = None


@dataclasses.dataclass
class Reading:
    """Splits that a reader of a set returns, and the number of rows that the reader skipped.

    Attributes:
        splits: splits in the order in which they are shown.
        skipped: number of rows that are not used, by reason.
    """

    splits: list[Split] = dataclasses.field(default_factory=list)
    skipped: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)

    def timed(self, rows: Iterable[dict[str, str]], column: str) -> list[dict[str, str]]:
        """Return the rows whose value in `column` is a positive number; count the other rows as skipped."""
        kept = []
        for row in rows:
            if _positive(row.get(column)):
                kept.append(row)
            else:
                self.skipped[f"no time in the column {column}"] += 1
        return kept


@dataclasses.dataclass(frozen=True, kw_only=True)
class PublicSet:
    """A set of measurements that others published.

    Attributes:
        about: description of the set in one line without a full stop.
        fetch: shell command that fetches the set; run in the folder of all sets, it creates the folder of this set.
        licence: licence of the set, or a note that no licence is stated.
        needs: files, relative to the folder of the set, without which the set counts as absent.
        read: function that reads the set, given the folder of the set and a seed for random choices.
    """

    about: str
    fetch: str
    licence: str
    needs: tuple[str, ...]
    read: Callable[[Path, int], Reading]

    def missing(self, folder: Path) -> list[str]:
        """Return the files of `needs` that the folder of the set lacks."""
        return [name for name in self.needs if not (folder / name).is_file()]


def repository(name: str, folder: str) -> str:
    """Return the command that fetches a public repository into a folder."""
    return f"git clone --depth 1 https://github.com/{name} {folder}"


def read_csv(path: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file with a header, each as texts by the name of the column.

    Raises:
        DatasetError: the file cannot be read, or is a pointer of Git LFS.
    """
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError) as error:
        raise DatasetError(f"{path} cannot be read: {error}") from error
    if rows and any(name and name.startswith("version https://git-lfs") for name in rows[0]):
        raise DatasetError(f"{path} is a pointer of Git LFS; run `git lfs pull` in its repository")
    return rows


def spearman(one: np.ndarray, other: np.ndarray) -> float:
    """Return Spearman's rank correlation of two arrays; equal values share their mean rank."""
    from scipy.stats import rankdata  # takes some tenths of a second

    return float(np.corrcoef(rankdata(one), rankdata(other))[0, 1])


def _positive(text: str | None) -> bool:
    try:
        value = float(text or "")
    except ValueError:
        return False
    return math.isfinite(value) and value > 0


Sets = Mapping[str, PublicSet]
