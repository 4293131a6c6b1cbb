"""The data of a report page, plain and typed, which is the JSON inside the page.

Times are in microseconds, rates in FLOP and bytes a microsecond. None is what is not known; the page says so. Thread
counts are keys as text, since JSON has no others.
"""

from __future__ import annotations

from typing import Any

from op_profiler.analysis.explain.explanation import OperatorExplanation
from op_profiler.report.page.part import Part
from op_profiler.report.page.several_models import Analysis, ComparisonPart, CorunPart


class Time(Part):
    """Of an operator or a model at one thread count; see `op_profiler.measure.measurement.Measurement`.

    Attributes:
        disturbed_by: what else disturbed the rounds.
        quiet_share: share of the rounds that are quiet, 0 to 1; the median is of them.
        discarded_share: share of the rounds that were disturbed, discarded and repeated, 0 to 1.
        rounds_us: of each round, the mean over its calls.
        counted: events of one call by name, or shares of a GPU's peaks; `not_counted`: why others were not. Both empty
            where nobody asked.
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
    """The whole model at one thread count.

    Attributes:
        sum_us: of its operators, each as often as it is called; None where one has no time.
        remark: why the whole model and the sum cannot be compared.
        missing: operators that are not in the sum.
        one_run_us: of one round, the time of each call by its position; None for those without.
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
        depth: loops around it.
        kind: serial, parallel, vectorized, unrolled, or the axis of a GPU that it is bound to.
        body: what it computes, where no further loop is inside.
    """

    depth: int
    name: str
    extent: str
    kind: str
    body: str = ""


class SchedulePart(Part):
    """Template, knobs, and what they do to the loops."""

    template: str
    origin: str
    knobs: dict[str, Any] = {}
    factors: dict[str, Any] = {}


class Alone(Part):
    """An operator called outside its model, with hot or cold caches; or the vendor's kernel for its heavy op.

    Attributes:
        what: the state of the caches, or the vendor's kernel.
        of_anchor: of the heavy op alone, without what is fused to it.
        disturbed: by background load, or its rounds lay apart.
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
    """Of a predictor, with a 90 % interval, or `low_us` alone, which it takes at least; see
    `op_profiler.prediction.latency.predictor.TIERS`."""

    tier: str
    us: float | None = None
    low_us: float | None = None
    high_us: float | None = None


class TurnaroundPart(Part):
    """From which thread count on more do not pay; or why there is no such count."""

    threads: int | None = None
    reason: str | None = None


class Explained(Part):
    """Why an operator takes what it takes, as ``op-profiler explain`` found last."""

    at: str
    found: OperatorExplanation


class OperatorPart(Part):
    """A fused operator of a model.

    Attributes:
        title: what people call it; see `op_profiler.operators.titles.title_of`.
        calls: positions in the model's call order.
        layers: of the user's model, of each call, that of the heavy op first; empty where they are not known.
        times, estimates: by thread count.
        tuning: index in `ModelPart.tunings`; None where its heavy op was not searched for.
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
    schedule: SchedulePart | None = None
    loops: list[LoopPart] = []
    code: str | None = None
    times: dict[str, Time] = {}
    alone: list[Alone] = []
    turnaround: TurnaroundPart | None = None
    estimates: dict[str, EstimatePart] = {}
    explained: Explained | None = None
    tuning: int | None = None


class Roof(Part):
    """How much a level of the memory gives to so many threads."""

    level: str
    bytes_per_us: float


class RooflinePart(Part):
    """Peaks at one thread count, as the probe of the device attained them.

    Attributes:
        attained_by: the operator whose FLOPs a microsecond `flops_per_us` are, where it attained more than the probe.
    """

    threads: int
    flops_per_us: float
    roofs: list[Roof]
    attained_by: str = ""


class TrialPart(Part):
    """One schedule that a search tried; without a time where it failed."""

    template: str
    us: float | None
    knobs: dict[str, Any] = {}
    factors: dict[str, Any] = {}
    error: str | None = None


class SearchPart(Part):
    """Trials of one heavy op under the same conditions.

    Attributes:
        progress: by template, pairs of the number of the trial and the best time so far.
        best: the fastest trials.
        default_us, best_us: of the compiler's own template and of the best finalist, measured in turns at the end.
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
    """How the time of trials goes with what a schedule does; ranks within the operator."""

    name: str
    spearman: float
    p: float
    trials: int


class Tuning(Part):
    """What is known of the schedules of one heavy op.

    Attributes:
        operators: keys of the fused operators that hold it.
    """

    key: str
    anchor: str
    shape: str
    operators: list[str]
    searches: list[SearchPart]
    factors: list[FactorPart] = []


class Prediction(Part):
    """Of the whole model at one thread count.

    Attributes:
        us, low_us, high_us, partial_us, tiers: as of `op_profiler.prediction.latency.network.NetworkPrediction`.
    """

    threads: int
    us: float | None
    low_us: float | None
    high_us: float | None
    partial_us: float | None
    tiers: dict[str, float]
    without_estimate: list[str] = []


class DevicePart(Part):
    """Where it ran; `facts` are for people to read, name and value."""

    key: str
    processor: str
    target: str
    facts: list[tuple[str, str]]


class ModelPart(Part):
    """One model of the dataset.

    Attributes:
        predicted: whether all times are a predictor's, and nothing was measured.
        about: which run it is, for people to read, name and value.
        label, compiler, content: of the run, of the code, and of the model with the shapes of its inputs: what is the
            same on all devices of one model; empty where it is not known.
        verdict: what came out, in sentences; the first is the most important.
        warnings: what to know before trusting it: not converged, under load, failed.
        reads: for each call the calls whose outputs it reads; None where that is not known.
        unknown: why something is not there, by name of the section; or how to get to know more of it.
        predictor: whose estimates these are.
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
    """All of a page."""

    title: str
    made_at: str
    version: str
    models: list[ModelPart] = []
    coruns: list[CorunPart] = []
    analysis: Analysis | None = None
    comparison: ComparisonPart | None = None
