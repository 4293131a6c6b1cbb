"""The data of a report page as plain, typed values, which become the JSON inside the page.

Times are in microseconds, rates in FLOP and bytes per microsecond. None is an unknown value; the page shows a note for
it. Thread counts are keys as text, because JSON has no other keys.
"""

from __future__ import annotations

from typing import Any

from op_profiler.analysis.explain.explanation import OperatorExplanation
from op_profiler.report.page.part import Part
from op_profiler.report.page.several_models import Analysis, ComparisonPart, CorunPart


class Time(Part):
    """Times of an operator or a model at one thread count; see `op_profiler.measure.measurement.Measurement`.

    Attributes:
        disturbed_by: disturbances of the rounds other than background load.
        quiet_share: share of the rounds that are quiet, 0 to 1; the median uses only these.
        discarded_share: share of the rounds that were disturbed, discarded and repeated, 0 to 1.
        rounds_us: for each round, the mean time of its calls; of many rounds, only some are listed.
        counted: hardware events of one call by name, or shares of a GPU's peaks.
        not_counted: by name of an event, why it is missing from `counted`. Both are empty if no counters were
            requested.
    """

    median_us: float | None = None
    low_us: float | None = None
    high_us: float | None = None
    again_low_us: float | None = None
    again_high_us: float | None = None
    rounds_us: list[float] = []
    settled: bool | None = None
    foreign_load: bool = False
    disturbed_by: str | None = None
    quiet_share: float | None = None
    discarded_share: float | None = None
    counted: dict[str, float] = {}
    not_counted: dict[str, str] = {}
    energy_mj: float | None = None
    error: str | None = None
    measured_at: str = ""


class RunPart(Part):
    """Times of the whole model at one thread count.

    Attributes:
        before_us, after_us: median of the whole model before the first and after the last round.
        sum_us: sum of the times of all calls of the model's operators; None if an operator has no time.
        ratio: see `op_profiler.measure.measurement.ModelTiming.ratio`.
        remark: why the whole model and the sum cannot be compared.
        missing: operators that are missing from the sum.
        one_run_us: time of each call in one round, by position; None for calls without a time.
    """

    threads: int
    whole: Time
    before_us: float | None = None
    after_us: float | None = None
    sum_us: float | None = None
    ratio: float | None = None
    remark: str | None = None
    missing: list[str] = []
    one_run_us: list[float | None] = []


class LoopPart(Part):
    """One loop of a kernel.

    Attributes:
        depth: number of loops around this loop.
        kind: serial, parallel, vectorized, unrolled, or the axis of a GPU to which the loop is bound.
        body: text of what an innermost loop computes; empty for other loops.
    """

    depth: int
    name: str
    extent: str
    kind: str
    body: str = ""


class SchedulePart(Part):
    """The schedule of an operator: its template, its knobs, and the factors of the loops that result from them."""

    template: str
    origin: str
    knobs: dict[str, Any] = {}
    factors: dict[str, Any] = {}


class Alone(Part):
    """Time of an operator, or of its heavy op under one schedule or in the vendor's kernel, called in isolation.

    Attributes:
        what: for an operator, the cache state; for a heavy op, the template, or the name of the vendor's kernel.
        of_anchor: whether only the heavy op was called, without the ops that are fused to it.
        disturbed: whether it was measured under background load, or its rounds were unsteady.
    """

    what: str
    origin: str
    cache: str
    threads: int
    of_anchor: bool
    median_us: float
    low_us: float | None = None
    high_us: float | None = None
    disturbed: bool = False


class EstimatePart(Part):
    """A predictor's estimate with a 90 % interval, or only a lower bound (`low_us`).

    Attributes:
        tier: source of the estimate; see `op_profiler.prediction.latency.operator_predictor.TIERS`.
    """

    tier: str
    us: float | None = None
    low_us: float | None = None
    high_us: float | None = None


class TurnaroundPart(Part):
    """The thread count beyond which more threads do not help an operator.

    Attributes:
        threads: this thread count; None if more threads still helped at the largest measured count.
        reason: as in `op_profiler.analysis.turnaround.Knee`.
    """

    threads: int | None = None
    reason: str | None = None


class ExplanationPart(Part):
    """The latest result of ``op-profiler explain`` for an operator.

    Attributes:
        at: time at which the explanation was stored.
        found: the explanation.
    """

    at: str
    found: OperatorExplanation


class OperatorPart(Part):
    """A fused operator of a model.

    Attributes:
        title: readable name; see `op_profiler.operators.titles.title_of`.
        calls: positions in the model's call order.
        layers: layers of the user's model for each call, that of the heavy op first; empty if unknown.
        source_lines: lines of the user's torch code that make its calls; empty if unknown.
        times, estimates: by thread count.
        tuning: index in `ModelPart.tunings`; None if its heavy op was not searched.
    """

    key: str
    name: str
    title: str
    anchor: str
    ops: list[str]
    attrs: list[dict[str, Any]]
    layouts: dict[str, str]
    inputs: list[str]
    params: list[str]
    outputs: list[str]
    flops: int
    bytes: int
    calls: list[int]
    layers: list[list[str]] = []
    source_lines: list[str] = []
    schedule: SchedulePart | None = None
    loops: list[LoopPart] = []
    code: str | None = None
    times: dict[str, Time] = {}
    alone: list[Alone] = []
    turnaround: TurnaroundPart | None = None
    estimates: dict[str, EstimatePart] = {}
    explained: ExplanationPart | None = None
    tuning: int | None = None


class Roof(Part):
    """Bandwidth of one level of the memory hierarchy at one thread count."""

    level: str
    bytes_per_us: float


class RooflinePart(Part):
    """Peaks at one thread count, as the probe of the device measured them.

    Attributes:
        attained_by: name of an operator with a higher rate than the probe measured; `flops_per_us` is then the rate of
            this operator. Empty if no operator has a higher rate.
    """

    threads: int
    flops_per_us: float
    roofs: list[Roof]
    attained_by: str = ""


class TrialPart(Part):
    """One trial of a search: a schedule with its time, or with an error if the trial failed."""

    template: str
    us: float | None
    knobs: dict[str, Any] = {}
    factors: dict[str, Any] = {}
    error: str | None = None


class SearchPart(Part):
    """Trials of one heavy op under the same conditions.

    Attributes:
        progress: for each template, pairs of the number of a trial and the best time up to this trial.
        best: the fastest trials.
        default_us, best_us: times of the compiler's own template and of the best finalist, measured alternately at the
            end of the search; None if unknown.
    """

    cache: str
    threads: int
    trials: int
    failed: int
    progress: dict[str, list[tuple[int, float]]]
    best: list[TrialPart]
    default_us: float | None = None
    best_us: float | None = None


class FactorPart(Part):
    """Spearman's rank correlation between the time of an operator's trials and a property of their schedules."""

    name: str
    spearman: float
    p: float
    trials: int


class Tuning(Part):
    """Results of searches for one heavy op.

    Attributes:
        operators: keys of the fused operators that contain the heavy op.
    """

    key: str
    anchor: str
    shape: str
    operators: list[str]
    searches: list[SearchPart]
    factors: list[FactorPart] = []


class Prediction(Part):
    """Prediction of the whole model at one thread count.

    Attributes:
        us, low_us, high_us, partial_us, tiers: as in `op_profiler.prediction.latency.network.NetworkPrediction`.
    """

    threads: int
    us: float | None
    low_us: float | None
    high_us: float | None
    partial_us: float | None
    tiers: dict[str, float]
    without_estimate: list[str] = []


class DevicePart(Part):
    """Device of a model; `facts` are properties that the page shows, as pairs of name and value."""

    key: str
    processor: str
    target: str
    facts: list[tuple[str, str]]


class ModelPart(Part):
    """One model of the dataset.

    Attributes:
        predicted: whether all times are predictions and nothing was measured.
        about: facts about the run that the page shows, as pairs of name and value.
        label, compiler: label of the run, and compiler of the code.
        content: fingerprint of the model with the shapes of its inputs, the same on every device; empty if unknown.
        verdict: results in sentences, the most important first.
        warnings: limits of the results: no convergence, background load, failures.
        reads: for each call, the calls whose outputs it reads; None if unknown.
        unknown: for each section without data, by the section's name: why the data is missing, or how to get it.
        predictor: name of the predictor of the estimates.
    """

    key: str
    name: str
    title: str
    source: str
    batch_size: int
    precision: str
    executor: str
    added_at: str
    device: DevicePart
    verdict: list[str]
    warnings: list[str]
    notes: list[str]
    runs: list[RunPart]
    operators: list[OperatorPart]
    about: list[tuple[str, str]] = []
    label: str = ""
    compiler: str = ""
    content: str = ""
    predicted: bool = False
    reads: list[list[int]] | None = None
    rooflines: list[RooflinePart] = []
    tunings: list[Tuning] = []
    predictor: str = ""
    predictions: list[Prediction] = []
    unknown: dict[str, str] = {}


class Report(Part):
    """The data of a page."""

    title: str
    made_at: str
    version: str
    models: list[ModelPart] = []
    coruns: list[CorunPart] = []
    analysis: Analysis | None = None
    comparison: ComparisonPart | None = None
