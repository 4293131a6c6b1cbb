"""The study ``--ifcompare``: measures a model with default and with recorded schedules, alternately in one process."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from op_profiler.building.build import build_model
from op_profiler.building.requested_inputs import random_inputs
from op_profiler.collection.studies.report import ModelSpeedup, OperatorPair
from op_profiler.collection.studies.study import Study
from op_profiler.errors import ModelError
from op_profiler.measure.statistics import median_interval
from op_profiler.schedules.records import NONE
from op_profiler.tuning.reference import tolerance

if TYPE_CHECKING:
    from op_profiler.compilers.imported_model import ImportedModel
    from op_profiler.operators.operator import Operator
    from op_profiler.targets.machine import LoadedModel

_ROUNDS = 40
_SECONDS = 20.0
_LEAST_ROUNDS = 11
_INT8_TOLERANCE = 2e-2
"""Relative tolerance for int8: a sum in another order may be rounded to the next of 127 steps (8e-3 of the range), and
later kernels use the rounded value."""


class ModelComparison(Study):
    """The study that measures the model with default and with recorded schedules."""

    def run(self, model: ImportedModel) -> list[dict[str, Any]]:
        """Return the fields of a `ModelSpeedup` for each thread count.

        Raises:
            ModelError: the model has no schedule records, or cannot be built.
            MeasureError: the model cannot be run.
        """
        if not self.build.usable_records().chosen:
            raise ModelError("there are no schedule records to compare with; tune first, with --iftune true")
        self.announce(stage="compiling")
        default = load_build(self, model, NONE)
        self.announce(stage="compiling", share=0.5)
        tuned = load_build(self, model, self.build.schedules)
        self.announce(stage="measuring", share=0.0)
        pool = self.machine.threads
        difference, allowed = self._difference(default.loaded, tuned.loaded)
        results = []
        for done, threads in enumerate(self.build.threads):
            self.announce(stage="measuring", share=done / len(self.build.threads))
            pool.use(threads)
            whole, kernels = in_turns([default.loaded, tuned.loaded])
            pairs = _pairs(default.operators, tuned.operators, tuned.templates, kernels)
            results.append(dataclasses.asdict(_compared(threads, whole, difference, allowed, pairs)))
        return results

    def _difference(self, default: LoadedModel, tuned: LoadedModel) -> tuple[float, float]:
        """Return the largest relative difference between the outputs of the builds, and the allowed difference.

        If the builds have the same kernels, the outputs of all kernels are compared. The output of the model alone
        shows little: a softmax over the logits of random weights is often the same whatever the network computes before
        it.
        """
        self.machine.threads.use(max(self.build.threads))
        for build in (default, tuned):
            build.run_model()
        pairs = list(zip(default.output_arrays(), tuned.output_arrays(), strict=True))
        largest = max(difference(one, other) for one, other in pairs)
        dtypes = {str(one.dtype) for one, _ in pairs}
        steps = zip(default.kernel_outputs(), tuned.kernel_outputs())
        if len(default.labels) == len(tuned.labels):
            for one, other in steps:
                if one.shape != other.shape:
                    break
                largest = max(largest, difference(one, other))
                dtypes.add(str(one.dtype))
        return largest, allowed_difference(dtypes)


@dataclasses.dataclass(frozen=True)
class Build:
    """A built model that is loaded on the device.

    Attributes:
        operators: operator of each kernel, in order.
        templates: template of each operator's schedule, by workload key.
    """

    loaded: LoadedModel
    operators: list[Operator]
    templates: dict[str, str]


def load_build(study: Study, model: ImportedModel, schedules: str) -> Build:
    """Build the model of a study, and load it on the study's machine.

    Args:
        schedules: schedule records to build with, as in `BuildRequest`.

    Raises:
        ModelError, MeasureError: the model cannot be built or run.
    """
    built = build_model(dataclasses.replace(study.build, schedules=schedules), model, study.target)
    compiled = built.compiled
    loaded = study.machine.load(compiled, study.inputs or random_inputs(list(model.inputs)))
    occurrences = [compiled.by_label[label] for label in loaded.labels]
    templates = {o.operator.key: built.schedules[o.operator.key].template for o in occurrences}
    return Build(loaded, [o.operator for o in occurrences], templates)


def in_turns(builds: Sequence[LoadedModel]) -> tuple[np.ndarray, list[np.ndarray]]:
    """Time several builds of a model alternately, in rounds whose order rotates.

    Returns:
        Times of the whole model, shape (rounds, builds), and for each build the times of its kernels, shape (rounds,
        kernels); microseconds.
    """
    count = len(builds)
    whole: list[list[float]] = []
    kernels: list[list[list[float]]] = [[] for _ in builds]
    started = time.perf_counter()
    while len(whole) < _LEAST_ROUNDS or (len(whole) < _ROUNDS and time.perf_counter() - started < _SECONDS):
        turn = len(whole)
        order = [(turn + i) % count for i in range(count)]
        row = [0.0] * count
        for which in order:
            build = builds[which]
            build.run_model()
            row[which] = build.time_model()
            kernels[which].append(build.walk("model", [True] * len(build.labels)))
        whole.append(row)
    return np.asarray(whole), [np.asarray(k) for k in kernels]


def same_calls(default: Sequence[Operator], other: Sequence[Operator]) -> bool:
    """Return whether two builds have the same calls (as many, with equal outputs), so that only schedules differ."""
    return len(default) == len(other) and all(a.outputs == b.outputs for a, b in zip(default, other))


def difference(one: np.ndarray, other: np.ndarray) -> float:
    """Return the largest difference of two tensors, relative to the largest finite absolute value of the first tensor.

    The result is inf if the tensors are finite at different positions.
    """
    one, other = one.astype("float64"), other.astype("float64")
    finite = np.isfinite(one)
    if not np.array_equal(finite, np.isfinite(other)):
        return float("inf")
    if not finite.any():
        return 0.0
    scale = float(np.abs(one[finite]).max()) or 1.0
    return float(np.abs(one[finite] - other[finite]).max()) / scale


def allowed_difference(dtypes: Collection[str]) -> float:
    """Return the relative difference that is allowed for tensors of these dtypes: that of the coarsest dtype."""
    return max(_INT8_TOLERANCE if dtype in ("int8", "uint8") else tolerance(dtype) for dtype in dtypes)


def _pairs(
    default: list[Operator], tuned: list[Operator], templates: dict[str, str], kernels: list[np.ndarray]
) -> tuple[OperatorPair, ...]:
    """Return the calls of both builds in pairs; empty if the builds differ in more than schedules.

    Args:
        templates: templates of the tuned build, by workload key.
        kernels: kernel times of both builds, each of shape (rounds, kernels), microseconds.
    """
    if not same_calls(default, tuned):
        return ()
    medians = [np.median(times, axis=0) for times in kernels]
    return tuple(
        OperatorPair(i, a.name, a.key, b.key, templates[b.key], float(medians[0][i]), float(medians[1][i]))
        for i, (a, b) in enumerate(zip(default, tuned))
    )


def _compared(
    threads: int, whole: np.ndarray, difference: float, allowed: float, pairs: tuple[OperatorPair, ...]
) -> ModelSpeedup:
    ratios = whole[:, 0] / whole[:, 1]
    low, high = median_interval(ratios)
    return ModelSpeedup(
        threads=threads,
        default_us=float(np.median(whole[:, 0])),
        tuned_us=float(np.median(whole[:, 1])),
        speedup=float(np.median(ratios)),
        speedup_low=low if math.isfinite(low) else None,
        speedup_high=high if math.isfinite(high) else None,
        rounds=len(whole),
        difference=difference,
        agree=difference <= allowed,
        operators=pairs,
    )
