"""The data of page sections about several models: co-runs, comparisons and analyses (one model:
`op_profiler.report.page.document`).
"""

from __future__ import annotations

from op_profiler.report.page.part import Part


class Bar(Part):
    """An operator on a lane of a plan."""

    name: str
    model: int
    anchor: str
    lanes: list[int]
    threads: int
    stage: int
    start_us: float
    end_us: float


class CorunPart(Part):
    """Models whose operators ran side by side.

    Attributes:
        bars: bars of one run of the plan; `sequential`: bars of sequential execution.
        lane: meaning of a lane: a core or a stream.
    """

    title: str
    models: list[str]
    policy: str
    lane: str
    verdict: list[str]
    warnings: list[str]
    bars: list[Bar]
    sequential: list[Bar]
    sequential_us: float
    plan_us: float


class Relation(Part):
    """Relation between latency and one factor; see `op_profiler.analysis.correlations.Correlation`."""

    anchor: str
    factor: str
    compared: str
    samples: int
    operators: int
    spearman: float | None = None
    p: float | None = None
    information: float | None = None
    eta: float | None = None
    not_enough: str | None = None


class TurnsPart(Part):
    """Number of operators of a kind whose turnaround point is a certain value of a factor; without a value, the reason
    why they have none."""

    factor: str
    anchor: str
    operators: int
    value: float | None = None
    reason: str | None = None


class Analysis(Part):
    """Factors that decide the latency, over a dataset.

    Attributes:
        drawn: a sentence if only a random subset of the measurements was used.
    """

    relations: list[Relation]
    turns: list[TurnsPart]
    drawn: str = ""


class ComparedRow(Part):
    """A whole model (without a name) or an operator, before and after.

    Attributes:
        model: number of the run in `ComparisonPart.runs`.
        layer: layer of its first call; empty if unknown.
        change: change as a share of the time before, with its interval; None without two times.
        real: whether the change is real; None if unknown.
        words: the judgement, and possible reasons.
    """

    model: int
    name: str | None
    output: str
    threads: int
    words: str
    layer: str = ""
    share: float | None = None
    before_us: float | None = None
    after_us: float | None = None
    change: float | None = None
    low: float | None = None
    high: float | None = None
    real: bool | None = None


class ComparedLayer(Part):
    """A layer of a model; see `op_profiler.comparison.result.LayerChange`."""

    model: int
    layer: str
    threads: int
    before_us: float
    after_us: float
    real: bool


class ComparedRun(Part):
    """Two runs of a model.

    Attributes:
        only: sentences about operators that only one run has.
    """

    title: str
    between: str
    warnings: list[str] = []
    only: list[str] = []


class ComparisonPart(Part):
    """Result of ``op-profiler compare``."""

    title: str
    verdict: str
    method: str
    notes: list[str]
    runs: list[ComparedRun]
    rows: list[ComparedRow]
    layers: list[ComparedLayer]
