"""The data of page sections about several models: co-runs, comparisons and analyses (one model:
`op_profiler.report.page.document`).
"""

from __future__ import annotations

from op_profiler.report.page.part import Part


class Bar(Part):
    """An operator in the timeline of a co-run.

    Attributes:
        model: number of the operator's model in `CorunPart.models`.
        lanes: numbers of the lanes (cores or streams) on which the operator runs.
        stage: number of its stage in the plan.
        start_us, end_us: start and end, microseconds since the start of the run.
    """

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
        bars: timeline of one run of the plan.
        sequential: timeline of sequential execution.
        lane: what a lane is: ``core`` or ``stream``.
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
    """Relation between latency and one factor; see `op_profiler.analysis.correlations.Correlation`.

    Attributes:
        p: p-value of `spearman`; for a category, that of Kruskal and Wallis' test.
        information: mutual information, nats.
    """

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
    """Operators of one anchor that have the same turnaround point in a factor, or no turnaround point for the same
    reason.

    Attributes:
        operators: number of these operators; an operator counts once for each of its curves.
        value, reason: turnaround point, or the reason why there is none, as in `op_profiler.analysis.turnaround.Knee`.
    """

    factor: str
    anchor: str
    operators: int
    value: float | None = None
    reason: str | None = None


class Analysis(Part):
    """Results of ``op-profiler analyze``: factors that determine the latency.

    Attributes:
        drawn: a sentence if only a random subset of the measurements was used; otherwise empty.
    """

    relations: list[Relation]
    turns: list[TurnsPart]
    drawn: str = ""


class ComparedRow(Part):
    """Times of a whole model (`name` is None) or of an operator in the two runs of a comparison.

    Attributes:
        model: number of the pair of runs in `ComparisonPart.runs`.
        layer: layer of the operator's first call; empty if unknown.
        change: change as a share of the time before; None if one of the two times is missing.
        low, high: interval of the change; None if unknown.
        real: whether the change is real; None if unknown.
        words: the judgement of the change, and possible reasons for it.
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
    """Times of a layer in the two runs of a comparison; see `op_profiler.comparison.result.LayerChange`."""

    model: int
    layer: str
    threads: int
    before_us: float
    after_us: float
    real: bool


class ComparedRun(Part):
    """A pair of runs of a model that are compared.

    Attributes:
        title: name of the model.
        between: names of the two runs.
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
