"""`ModelReport`: the results of a collected model, read from the dataset, so that new and reused numbers agree."""

from __future__ import annotations

import dataclasses
import statistics
from collections import Counter
from collections.abc import Mapping
from typing import Any

from op_profiler.collection.request import CollectRequest
from op_profiler.collection.studies.report import StudyReport
from op_profiler.compilers.imported_model import Agreement
from op_profiler.dataset.row import Failure
from op_profiler.errors import EXIT_FAILURES_RECORDED, EXIT_OK
from op_profiler.measure.disturbance import disturbance_of
from op_profiler.measure.measurement import RESOURCE_FIELDS, Measurement, ModelTiming, Settings, effective
from op_profiler.operators.layers import CallLayers, shortened
from op_profiler.operators.operator import Operator

_UNKNOWN = Agreement(outputs_reference="")
_OF_ROUNDS = ("foreign_load", "quiet_share", "discarded_rounds", "discarded_share")


@dataclasses.dataclass(frozen=True)
class ThreadReport:
    """Results of one model at one thread count.

    Attributes:
        settings, timing: settings and timing of the whole model; None if unknown.
        measurements: measurements of the operators, by workload key.
        measured: number of operators that this run measured.
        reused: number of operators whose measurements an earlier run stored.
    """

    settings: Settings | None
    timing: ModelTiming | None
    measurements: dict[str, Measurement]
    measured: int
    reused: int

    @property
    def failed(self) -> int:
        """Number of operators that have a failure instead of a time."""
        return sum(1 for m in self.measurements.values() if m.error is not None)

    @property
    def timings(self) -> int:
        """Number of operators with a time."""
        return sum(1 for m in self.measurements.values() if m.median_us is not None)

    @property
    def disturbed(self) -> Counter[str]:
        """Numbers of operators with a disturbed time, which predictors leave out, by reason of the disturbance."""
        times = (m for m in self.measurements.values() if m.median_us is not None)
        return Counter(filter(None, (disturbance_of(m.foreign_load, m.disturbed_by) for m in times)))

    @property
    def short(self) -> int:
        """Number of operators so short that the systematic error of GPU times is a large part of their time."""
        timing = self.timing
        return 0 if timing is None else sum(timing.is_short(one.median_us) for one in self.measurements.values())


@dataclasses.dataclass(frozen=True)
class ModelReport:
    """Results of one model of a collection.

    Attributes:
        request: request of the collection.
        model_key: key of the lowered model in the dataset; empty if it could not be lowered.
        operators: each distinct operator with its number of calls in the model.
        threads: results by thread count; empty in a dry run, and if the model could not be lowered.
        error: why times of the model are missing; None if no time is missing.
        error_code: exit code for `error`.
        notes: notes for the user on the model.
        agreement: agreement of the outputs with those of the model's own framework; None if unknown.
        base: report of the same model with default schedules; None if no studies were requested.
        studies: results of the studies; None if no studies were requested.
        batch_size: batch size of the lowered model; None if it could not be lowered.
        launches: grid and block of each launch on a GPU, by workload key.
        templates: in a dry run, the templates of the schedules of the kernels that were built, by workload key.
        layers: layers of the user's model in each call, by workload key, for operators with known layers.
        kept_failures: failures of operators that have a time from an earlier run.
        run_id: identifier of the run; its results are stored with this identifier.
        stage_seconds: duration of each stage of the worker processes, including studies; empty if everything was read
            from the dataset.
    """

    request: CollectRequest
    model_key: str = ""
    operators: tuple[tuple[Operator, int], ...] = ()
    threads: dict[int, ThreadReport] = dataclasses.field(default_factory=dict)
    error: str | None = None
    error_code: int = EXIT_OK
    notes: tuple[str, ...] = ()
    agreement: Agreement | None = None
    base: ModelReport | None = None
    studies: StudyReport | None = None
    batch_size: int | None = None
    launches: dict[str, list[dict[str, list[int]]]] = dataclasses.field(default_factory=dict)
    templates: dict[str, str] = dataclasses.field(default_factory=dict)
    layers: dict[str, CallLayers] = dataclasses.field(default_factory=dict)
    kept_failures: tuple[Failure, ...] = ()
    run_id: str = ""
    stage_seconds: dict[str, float] = dataclasses.field(default_factory=dict)

    @property
    def label(self) -> str:
        """Name and batch size of the model, for a title."""
        return self.request.build.model.title + (f", batch {self.batch_size}" if self.batch_size is not None else "")

    @property
    def exit_code(self) -> int:
        """Exit code for this model: `error_code` after an error, `EXIT_FAILURES_RECORDED` if an operator or study
        failed."""
        if self.error is None and self.studies is not None and self.studies.failed:
            return EXIT_FAILURES_RECORDED
        if self.error is not None:
            return self.error_code or EXIT_FAILURES_RECORDED
        failed = any(t.failed for t in self.threads.values())
        failed = failed or any(f.run_id == self.run_id for f in self.kept_failures)
        return EXIT_FAILURES_RECORDED if failed else EXIT_OK

    def share(self, key: str) -> float | None:
        """Return the share of an operator in the sum of operators, at the largest thread count with measurements.

        The result is None if the operator has no time.
        """
        if not self.threads:
            return None
        report = self.threads[max((n for n, t in self.threads.items() if t.measurements), default=max(self.threads))]
        times = {k: m.median_us for k, m in report.measurements.items()}
        counts = {operator.key: count for operator, count in self.operators}
        total = sum(float(t) * counts.get(k, 0) for k, t in times.items() if t is not None)
        mine = times.get(key)
        return None if mine is None or not total else mine * counts[key] / total

    def by_layer(self, threads: int, depth: int | None = None) -> list[LayerTime]:
        """Return the time of the model's layers at a thread count, the slowest first; see `time_by_layer`."""
        calls = {operator.key: count for operator, count in self.operators}
        return time_by_layer(self.threads[threads].measurements, calls, self.layers, depth)

    def ranked(self) -> list[tuple[Operator, int]]:
        """Return the operators ordered by decreasing share of the time.

        Operators without a time come last, ordered by decreasing FLOPs.
        """

        def rank(item: tuple[Operator, int]) -> tuple[float, float]:
            share = self.share(item[0].key)
            return (share if share is not None else -1.0, float(item[0].flops * item[1]))

        return sorted(self.operators, key=rank, reverse=True)

    def heavy(self) -> list[tuple[Operator, int]]:
        """Return the heaviest operators that together make up the requested coverage; without times, all operators."""
        chosen: list[tuple[Operator, int]] = []
        reached = 0.0
        for operator, count in self.ranked():
            share = self.share(operator.key)
            if share is None or reached >= self.request.measuring.coverage:
                break
            chosen.append((operator, count))
            reached += share
        return chosen or self.ranked()

    def to_json(self) -> list[dict[str, Any]]:
        """Return a JSON-serializable dictionary for each thread count; its times are None without a measurement."""
        request = self.request
        base: dict[str, Any] = {
            "model": request.build.model.title,
            "source": request.build.model.source,
            "batch_size": self.batch_size,
            "target": request.build.target,
            "precision": request.build.precision,
            "executor": request.build.executor,
            "cache": request.build.cache,
            "resources": request.measuring.resources,
            "operators": len(self.operators),
            "occurrences": sum(count for _, count in self.operators),
            "flops": sum(operator.flops * count for operator, count in self.operators),
            "error": self.error,
            "notes": list(self.notes),
            **dataclasses.asdict(self.agreement or _UNKNOWN),
            "kept_failures": [dataclasses.asdict(failure) for failure in self.kept_failures],
            "schedules": self.request.build.schedules,
            "stage_seconds": {stage: round(seconds, 3) for stage, seconds in self.stage_seconds.items()},
        }
        if self.studies is not None:
            base |= self.studies.to_json()
        if not self.threads:
            base |= {"layers": [], "attributed_to_layers": None}
            return [base | _times(n, None) for n in request.build.threads]
        return [base | _times(n, report) | self._layers(n) for n, report in sorted(self.threads.items())]

    def _layers(self, threads: int) -> dict[str, Any]:
        times = self.by_layer(threads)
        return {"layers": [dataclasses.asdict(one) for one in times], "attributed_to_layers": attributed(times)}


def _times(threads: int, report: ThreadReport | None) -> dict[str, Any]:
    timing = report.timing if report else None
    whole = timing.whole_model if timing else None
    settings = report.settings if report else None
    details = timing.details if timing else {}
    return {
        "threads": threads,
        "threads_effective": settings.threads_effective if settings else None,
        "core_set_effective": list(settings.core_set_effective) if settings else None,
        "physical_cores": details.get("physical_cores"),
        "core_kinds": details.get("core_kinds"),
        **{effective(name): getattr(settings, effective(name)) if settings else None for name in RESOURCE_FIELDS},
        "whole_model_us": whole.median_us if whole else None,
        "whole_model_ci_us": [whole.ci_low_us, whole.ci_high_us] if whole else None,
        "whole_model_again_us": [whole.again_low_us, whole.again_high_us] if whole else None,
        "whole_model_steady_us": whole.steady_us if whole else None,
        "whole_model_steady_again_us": [whole.steady_low_us, whole.steady_high_us] if whole else None,
        "whole_model_before_us": timing.before_us if timing else None,
        "whole_model_after_us": timing.after_us if timing else None,
        "sum_of_operators_us": timing.sum_of_operators_us if timing else None,
        "launch_gap_us": timing.launch_gap_us if timing else None,
        "kernel_uncertainty_us": timing.kernel_uncertainty_us if timing else None,
        "short_operators": report.short if report else None,
        "ratio": timing.ratio if timing else None,
        "not_a_pair": timing.not_a_pair if timing else None,
        "energy_mj": whole.energy_mj if whole else None,
        "accuracy": details.get("accuracy"),
        "not_in_sum": list(timing.unmeasured) if timing else None,
        **{name: getattr(report, name, 0) for name in ("measured", "reused", "failed")},
        **{name: getattr(whole, name, None) for name in _OF_ROUNDS},
        "disturbed_by": timing.disturbed_by if timing else None,
        "disturbed": report.disturbed if report else {},
        "held_back_by": list(timing.held_back_by) if timing else None,
        "settled": whole.settled if whole else None,
        **{name: details.get(name) for name in ("rounds", "running_seconds", "build_seconds")},
    }


@dataclasses.dataclass(frozen=True)
class LayerTime:
    """Total time of the kernels of a layer.

    Attributes:
        layer: name of the layer; empty for kernels whose layer is unknown.
        us: time in one run of the model, microseconds.
        calls: number of kernel calls.
        share: share of the sum of all operators.
    """

    layer: str
    us: float
    calls: int
    share: float


def time_by_layer(
    measurements: Mapping[str, Measurement],
    calls: Mapping[str, int],
    layers: Mapping[str, CallLayers],
    depth: int | None = None,
) -> list[LayerTime]:
    """Return the times of a model's layers, the slowest first; the time of a kernel belongs to its anchor's layer.

    Args:
        measurements: measurements of the model's operators, by workload key; operators without a time are omitted.
        calls: number of calls of each operator in the model.
        layers: layers of each call, by workload key.
        depth: number of parts of a layer's path that are kept; times of layers with equal kept parts are added up. None
            keeps all parts.
    """
    times: dict[str, list[float]] = {}
    for key, measurement in measurements.items():
        for call, us in enumerate(_call_times_us(measurement, calls.get(key, 0))):
            names = layers[key][call] if call < len(layers.get(key, ())) else ()
            layer = names[0] if names else ""
            times.setdefault(shortened(layer, depth) if depth is not None else layer, []).append(us)
    total = sum(map(sum, times.values()))
    found = [LayerTime(layer, sum(us), len(us), sum(us) / total if total else 0.0) for layer, us in times.items()]
    return sorted(found, key=lambda one: one.us, reverse=True)


def attributed(times: list[LayerTime]) -> float | None:
    """Return the share of the total time that belongs to known layers; None for an empty list."""
    return sum(one.share for one in times if one.layer) if times else None


def _call_times_us(measurement: Measurement, calls: int) -> list[float]:
    """Return the times of an operator's calls, microseconds, scaled so that their mean is the operator's median."""
    if measurement.median_us is None:
        return []
    columns = list(zip(*measurement.samples_us)) if measurement.samples_us else []
    if len(columns) != calls:
        return [measurement.median_us] * calls
    medians = [statistics.median(column) for column in columns]
    whole = sum(medians)
    if not whole:
        return [measurement.median_us] * calls
    return [us * measurement.median_us * calls / whole for us in medians]
