"""`Comparison` and its parts: the result of a comparison."""

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
class RowComparison:
    """Comparison of a whole model, or of one of its operators, at one thread count.

    Attributes:
        name: name of the operator's kernel; None for the whole model.
        title: readable name of the operator.
        layer: layer of the operator's first call; empty if unknown.
        layers: layer of each call in the second run, without calls whose layer is unknown.
        output: shape of the operator's output.
        keys: workload keys before and after; empty for the whole model.
        how: how the operators were matched; None for the whole model.
        calls: number of calls in the model, before and after.
        share: the operator's share of the time of all operators, the larger of before and after; None if unknown.
        schedules: schedules before and after as text; one entry if they are the same.
        estimate: estimated change; None if one of the two times is missing.
        change: the change, judged together with all changes that are tested; None if one of the two times is missing.
        problem: reason why a time is missing; empty if both times are known.
    """

    name: str | None
    threads: int
    title: str = "the whole model"
    layer: str = ""
    layers: tuple[str, ...] = ()
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
        """Return the fields except `estimate` and `layers` as a JSON-serializable dictionary."""
        plain = dataclasses.asdict(self)
        del plain["estimate"], plain["layers"]
        return plain


@dataclasses.dataclass(kw_only=True)
class LayerChange:
    """Time of a layer in one execution of the model, before and after, at one thread count, in microseconds.

    Attributes:
        real: whether the change of at least one operator of the layer is real (`Change.real`).
    """

    layer: str
    threads: int
    before_us: float = 0.0
    after_us: float = 0.0
    real: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class OnlyOne:
    """An operator without a match in the other run, with its times in microseconds by thread count."""

    name: str
    title: str
    key: str
    calls: int
    times_us: dict[int, float]


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunComparison:
    """Comparison of two runs of a model.

    Attributes:
        warnings: differences between the runs other than their code, and disturbances.
        rows: the whole model and every matched operator, at each thread count that both runs have.
        only_before, only_after: operators of one run without a match.
        foreign_load: whether there was background load, although the pairs under load were measured again.
    """

    before: KnownRun
    after: KnownRun
    warnings: tuple[str, ...]
    rows: tuple[RowComparison, ...]
    only_before: tuple[OnlyOne, ...]
    only_after: tuple[OnlyOne, ...]
    foreign_load: bool = False

    @property
    def title(self) -> str:
        """Name, batch size, precision and target of the model."""
        model = self.after.model
        return f"{model.name}, batch {model.batch_size}, {model.precision}, {model.target}"

    @property
    def layers(self) -> list[LayerChange]:
        """Changes by layer, the largest difference first.

        Each call of an operator adds the operator's mean time to the layer of the operator's heavy op.
        """
        found: dict[tuple[str, int], LayerChange] = {}
        for row, change in ((row, row.change) for row in self.rows if row.change is not None):
            for layer in row.layers:
                one = found.setdefault((layer, row.threads), LayerChange(layer=layer, threads=row.threads))
                one.before_us += change.before_us
                one.after_us += change.after_us
                one.real |= change.real is True
        return sorted(found.values(), key=lambda one: -abs(one.after_us - one.before_us))

    @property
    def of_two_compilers(self) -> bool:
        """Whether different compilers generated the kernels of the two runs."""
        return self.before.compiler != self.after.compiler

    def to_json(self) -> dict[str, Any]:
        """Return the comparison as a JSON-serializable dictionary."""
        return {
            "model": self.title,
            "before": _run_fields(self.before),
            "after": _run_fields(self.after),
            "warnings": list(self.warnings),
            "foreign_load": self.foreign_load,
            "rows": [row.to_json() for row in self.rows],
            "layers": [dataclasses.asdict(one) for one in self.layers],
            "only_before": [dataclasses.asdict(one) for one in self.only_before],
            "only_after": [dataclasses.asdict(one) for one in self.only_after],
        }


@dataclasses.dataclass(frozen=True, kw_only=True)
class Comparison:
    """All runs that were compared together.

    Attributes:
        method: ``stored``: by the stored times, measured at different moments; ``in turns``: both runs were measured
            again alternately.
        level: confidence level of the intervals, adjusted for the number of comparisons.
        notes: notes on runs that were not compared.
    """

    runs: tuple[RunComparison, ...]
    method: Method
    level: float
    notes: tuple[str, ...] = ()

    __repr__ = brief

    @property
    def rows(self) -> Iterator[tuple[RunComparison, RowComparison]]:
        """Yield the rows of all compared runs, each with its run."""
        return ((run, row) for run in self.runs for row in run.rows)

    @property
    def judged(self) -> int:
        """Number of changes that were judged together."""
        return sum(row.change is not None and row.change.real is not None for _, row in self.rows)

    def above(self, share: float = 0.0, us: float = 0.0) -> list[tuple[RunComparison, RowComparison]]:
        """Return the rows with a real slow-down above both limits.

        Args:
            share: limit as a share of the time before.
            us: limit in microseconds per call.
        """
        return [
            (run, row)
            for run, row in self.rows
            if (change := row.change) is not None
            and change.slower
            and change.change > share
            and change.change * change.before_us > us
        ]

    def to_json(self) -> dict[str, Any]:
        """Return the comparisons as a JSON-serializable dictionary."""
        return {
            "method": self.method,
            "level": self.level,
            "comparisons": self.judged,
            "real": sum(row.change is not None and row.change.real is True for _, row in self.rows),
            "notes": list(self.notes),
            "runs": [run.to_json() for run in self.runs],
        }


def _run_fields(run: KnownRun) -> dict[str, Any]:
    """Return the JSON-serializable fields that identify a run."""
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
