"""`RunComparison` and its parts: the result of a comparison."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

from op_profiler.addresses import without_password
from op_profiler.json_text import brief

if TYPE_CHECKING:
    from op_profiler.comparison.changes import Change, Estimate
    from op_profiler.comparison.matching import How
    from op_profiler.comparison.runs import KnownRun

Method = Literal["stored", "in turns"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Compared:
    """A whole model, or one of its operators, at one thread count.

    Attributes:
        name: of the operator's kernel; None: the whole model.
        title: what people call the operator; `layer`: where its first call is, empty where that is not known.
        output: shape of what it writes.
        keys: workload keys before and after; empty for the whole model.
        how: what told that they are the same operator; None for the whole model.
        calls: how often the model calls it, before and after.
        share: of the model's time, the larger one of before and after; None where it is not known.
        schedules: before and after, as text; one where they are the same.
        estimate: of the change; None where there are no two times.
        change: judged among all that are compared; None where there are no two times.
        problem: why there are no two times.
    """

    name: str | None
    threads: int
    title: str = "the whole model"
    layer: str = ""
    output: tuple[int, ...] = ()
    keys: tuple[str, str] | tuple[()] = ()
    how: How | None = None
    calls: tuple[int, int] = (1, 1)
    share: float | None = None
    schedules: tuple[str, ...] = ()
    estimate: Estimate | None = None
    change: Change | None = None
    problem: str = ""

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        plain = dataclasses.asdict(self)
        del plain["estimate"]
        return plain


@dataclasses.dataclass(frozen=True, kw_only=True)
class OnlyOne:
    """An operator that the other run has nothing like; times in microseconds by thread count."""

    name: str
    title: str
    key: str
    calls: int
    times_us: dict[int, float]


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunComparison:
    """Two runs of a model.

    Attributes:
        warnings: in what the runs differ beside their code, and what disturbed them.
        rows: the whole model and every operator that both have, at each thread count that both have.
        only_before, only_after: operators that one run has.
        foreign_load: whether others used the machine, although that was measured again.
    """

    before: KnownRun
    after: KnownRun
    warnings: tuple[str, ...]
    rows: tuple[Compared, ...]
    only_before: tuple[OnlyOne, ...]
    only_after: tuple[OnlyOne, ...]
    foreign_load: bool = False

    @property
    def title(self) -> str:
        """The model."""
        model = self.after.model
        return f"{model.name}, batch {model.batch_size}, {model.precision}, {model.target}"

    @property
    def of_two_compilers(self) -> bool:
        """Whether another compiler made the kernels after than before."""
        return self.before.compiler != self.after.compiler

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "model": self.title,
            "before": _told(self.before),
            "after": _told(self.after),
            "warnings": list(self.warnings),
            "foreign_load": self.foreign_load,
            "rows": [row.to_json() for row in self.rows],
            "only_before": [dataclasses.asdict(one) for one in self.only_before],
            "only_after": [dataclasses.asdict(one) for one in self.only_after],
        }


@dataclasses.dataclass(frozen=True, kw_only=True)
class Comparison:
    """All runs that were compared together.

    Attributes:
        method: ``stored``: times as the runs have them, of different minutes; ``in turns``: both were measured again
            beside each other.
        level: of the intervals, adjusted for the number of comparisons.
        notes: on what was left out.
    """

    runs: tuple[RunComparison, ...]
    method: Method
    level: float
    notes: tuple[str, ...] = ()

    __repr__ = brief

    @property
    def rows(self) -> Iterator[tuple[RunComparison, Compared]]:
        """Of all runs."""
        return ((run, row) for run in self.runs for row in run.rows)

    @property
    def judged(self) -> int:
        """How many changes were compared at once."""
        return sum(row.change is not None and row.change.real is not None for _, row in self.rows)

    def above(self, share: float = 0.0, us: float = 0.0) -> list[tuple[RunComparison, Compared]]:
        """What really became slower by more than a share of its time, and by more microseconds."""
        return [
            (run, row)
            for run, row in self.rows
            if (change := row.change) is not None
            and change.slower
            and change.change > share
            and change.change * change.before_us > us
        ]

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "method": self.method,
            "level": self.level,
            "comparisons": self.judged,
            "real": sum(row.change is not None and row.change.real is True for _, row in self.rows),
            "notes": list(self.notes),
            "runs": [run.to_json() for run in self.runs],
        }


def _told(run: KnownRun) -> dict[str, Any]:
    """Which run it is."""
    return {
        "dataset": without_password(run.where),
        "label": run.model.label,
        "key": run.model.key,
        "device": run.processor,
        "compiler": run.compiler,
        "measured_at": run.measured_at,
        "project_revision": run.project_revision,
        "user_revision": run.user_revision,
    }
