"""Checked predictions on this machine: an SQLite file in the user's data folder, and the intervals that follow from it.

One row is one prediction that was compared with a measurement. Each row contains the version of the predictor, so a new
version starts without checks.
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
"""With fewer checked operators, intervals are not widened."""
_SIGNIFICANT = 0.05


@dataclasses.dataclass(frozen=True, kw_only=True)
class Check:
    """One prediction and its measurement, in microseconds.

    Attributes:
        run: identifier (16 hex digits) that is equal for all rows of one command.
        date: time of the check, ISO 8601, UTC.
        machine: identity of the machine that measured.
        predictor: digest of the predictor.
        kind: ``operator`` or ``network``.
        key: workload key of the operator; for a network, a digest (16 hex digits) of its operators.
        tier: source of the estimate.
        predicted_us, high_us: estimate, and upper end of its interval; None if only a lower bound was predicted.
        score: error divided by the half-width before any widening, both logarithmic; None for a lower bound, and if the
            measurement was disturbed.
        verdict: whether the measured time is in the interval; disturbed measurements are not counted.
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
    """Counts of the checked predictions of one processor, thread count, predictor and kind.

    Attributes:
        checked: number of checks that were not disturbed.
        held: number of checks whose measured time was in the interval.
        disturbed: number of checks whose measurement was disturbed.
    """

    processor: str
    threads: int
    predictor: str
    kind: str
    checked: int
    held: int
    disturbed: int


def tally_file() -> Path:
    """Return the path of the file with all checks, next to the calibrations."""
    return data_folder() / "checks.db"


def add(checks: Sequence[Check]) -> None:
    """Store all checks of a command in one transaction.

    Raises:
        DatasetError: the file cannot be written.
    """
    places = ", ".join("?" * len(_COLUMNS))
    with _opened() as tally:
        tally.executemany(f"INSERT INTO checks VALUES ({places})", [dataclasses.astuple(one) for one in checks])


def stored(machine: str) -> list[Check]:
    """Return all checks of a machine, the oldest first; empty if nothing was checked.

    Raises:
        DatasetError: the file cannot be read.
    """
    if not tally_file().exists():
        return []
    with _opened() as tally:
        rows = tally.execute(f"SELECT {', '.join(_COLUMNS)} FROM checks WHERE machine = ? ORDER BY rowid", (machine,))
        return [Check(**dict(zip(_COLUMNS, row))) for row in rows]


def coverage(checks: Sequence[Check]) -> list[HeldChecks]:
    """Count the checks, and those whose measured time was in the interval, by processor, thread count, predictor and
    kind."""
    groups: dict[tuple[str, int, str, str], list[Verdict]] = {}
    for one in checks:
        groups.setdefault((one.processor, one.threads, one.predictor, one.kind), []).append(one.verdict)
    return [
        HeldChecks(*group, len(found) - found.count("disturbed"), found.count("held"), found.count("disturbed"))
        for group, found in groups.items()
    ]


def widening(checks: Sequence[Check], predictor: str, threads: int) -> float:
    """Return the factor that widens a predictor's intervals at a thread count; 1 if enough intervals contain the
    measured time, or if fewer than `FEWEST` operators were checked.

    Only the last check of each operator is used. If significantly fewer than 90 % of the intervals contain the measured
    time (one-sided binomial test), the factor is the conformal quantile of the scores.
    """
    mine = [one for one in checks if (one.predictor, one.threads, one.kind) == (predictor, threads, "operator")]
    scores = np.array(list({one.key: one.score for one in mine if one.score is not None}.values()))
    held = int((scores <= 1).sum())
    if len(scores) < FEWEST or _at_most(held, len(scores)) >= _SIGNIFICANT:
        return 1.0
    return max(conformal_quantile(scores), 1.0)


def _at_most(held: int, checked: int) -> float:
    """Return the probability that at most `held` of `checked` intervals hold if each holds with probability
    `COVERAGE`."""
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
