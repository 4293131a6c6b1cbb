"""The tally of checked predictions on this machine: a SQLite file in the user's data folder, and what it teaches.

One row is one prediction that was compared with a measurement. The predictor's version is part of a row: another
version starts with an empty tally.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from op_profiler.cache import data_folder
from op_profiler.errors import DatasetError
from op_profiler.prediction.latency.intervals import COVERAGE, conformal_quantile

Verdict = Literal["held", "did not hold", "disturbed"]
FEWEST = 20
"""Checked operators from which on the tally can widen intervals."""
_SIGNIFICANT = 0.05


@dataclasses.dataclass(frozen=True, kw_only=True)
class Check:
    """One prediction beside its measurement, in microseconds.

    Attributes:
        run: 16 hex digits, equal for all rows of one command.
        date: ISO 8601, UTC.
        machine: identity of the machine that measured.
        predictor: digest of the predictor that answered.
        kind: ``operator`` or ``network``.
        key: workload key of the operator; of a network, 16 hex digits of its operators.
        predicted_us, high_us: None for a lower bound.
        score: error over half-width before any widening, both logarithmic; None for a lower bound and where disturbed.
        verdict: a disturbed measurement is not counted.
    """

    run: str
    date: str
    machine: str
    processor: str
    threads: int
    predictor: str
    kind: Literal["operator", "network"]
    key: str
    name: str
    tier: str
    predicted_us: float | None
    low_us: float
    high_us: float | None
    measured_us: float
    score: float | None
    verdict: Verdict


_COLUMNS = tuple(field.name for field in dataclasses.fields(Check))


@dataclasses.dataclass(frozen=True)
class HeldChecks:
    """How many checks of one kind held, by processor, thread count and predictor."""

    processor: str
    threads: int
    predictor: str
    kind: str
    checked: int
    held: int
    disturbed: int


def tally_file() -> Path:
    """The file of the tally, beside the notes of calibrations."""
    return data_folder() / "checks.db"


def add(checks: Sequence[Check]) -> None:
    """Store all checks of a command in one transaction.

    Raises:
        DatasetError: the tally cannot be written.
    """
    places = ", ".join("?" * len(_COLUMNS))
    with _opened() as tally:
        tally.executemany(f"INSERT INTO checks VALUES ({places})", [dataclasses.astuple(one) for one in checks])


def stored(machine: str) -> list[Check]:
    """All checks of a machine, the oldest first; none where nothing was checked.

    Raises:
        DatasetError: the tally cannot be read.
    """
    if not tally_file().exists():
        return []
    with _opened() as tally:
        rows = tally.execute(f"SELECT {', '.join(_COLUMNS)} FROM checks WHERE machine = ? ORDER BY rowid", (machine,))
        return [Check(**dict(zip(_COLUMNS, row))) for row in rows]


def coverage(checks: Sequence[Check]) -> list[HeldChecks]:
    """The counts of each processor, thread count, predictor and kind."""
    groups: dict[tuple[str, int, str, str], list[Verdict]] = {}
    for one in checks:
        groups.setdefault((one.processor, one.threads, one.predictor, one.kind), []).append(one.verdict)
    return [
        HeldChecks(*group, len(found) - found.count("disturbed"), found.count("held"), found.count("disturbed"))
        for group, found in groups.items()
    ]


def widening(checks: Sequence[Check], predictor: str, threads: int) -> float:
    """Factor on half-widths of a predictor's intervals at a thread count; 1 where they hold often enough here.

    The last check of each operator counts. Fewer than 90 % have to be significant in a one-sided binomial test; the
    factor is then the conformal quantile of the scores.
    """
    mine = [one for one in checks if (one.predictor, one.threads, one.kind) == (predictor, threads, "operator")]
    scores = np.array(list({one.key: one.score for one in mine if one.score is not None}.values()))
    held = int((scores <= 1).sum())
    if len(scores) < FEWEST or _at_most(held, len(scores)) >= _SIGNIFICANT:
        return 1.0
    return max(conformal_quantile(scores), 1.0)


def _at_most(held: int, checked: int) -> float:
    """Probability that at most `held` of `checked` intervals hold where each does with `COVERAGE`."""
    return sum(math.comb(checked, k) * COVERAGE**k * (1 - COVERAGE) ** (checked - k) for k in range(held + 1))


@contextlib.contextmanager
def _opened() -> Iterator[sqlite3.Connection]:
    path = tally_file()
    columns = ", ".join(_COLUMNS)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.closing(sqlite3.connect(path, timeout=30)) as tally, tally:
            tally.execute(f"CREATE TABLE IF NOT EXISTS checks ({columns})")
            yield tally
    except (sqlite3.Error, OSError) as error:
        raise DatasetError(f"the tally of checks {path} cannot be used: {error}; remove it to start anew") from error
