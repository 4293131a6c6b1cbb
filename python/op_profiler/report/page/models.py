"""A measured model of the dataset on a page."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec
from sqlalchemy import select

from op_profiler.dataset import queries, schema
from op_profiler.option_values import size_text
from op_profiler.prediction.latency.devices import full_name
from op_profiler.report.page.document import (
    Alone,
    DevicePart,
    ModelPart,
    OperatorPart,
    Prediction,
    Roof,
    RooflinePart,
    RunPart,
    Tuning,
)
from op_profiler.report.page.explanations import how_to_explain
from op_profiler.report.page.operators import operators_of, time_part
from op_profiler.report.page.predictions import Estimates, open_for, predictions_of
from op_profiler.report.page.tuning import anchors_of, tunings_of
from op_profiler.report.page.verdict import verdict, warnings

if TYPE_CHECKING:
    from op_profiler.dataset import Dataset
    from op_profiler.dataset.row import Model, StoredMeasurement, StoredTiming
    from op_profiler.measure.measurement import Cache, Device
    from op_profiler.operators.operator import Operator

RowsByThreads = Mapping[int, Mapping[str, "StoredMeasurement"]]
"""Measurements of a model's operators by thread count and workload key."""

Called = Sequence[tuple["Operator", tuple[int, ...]]]
"""Operators with the positions of their calls."""


_NOT_PROBED = (
    "The peaks of this device are not known: it was measured by an older version, or its kind has no probe. A new "
    "collection on it brings them."
)


def model_part(dataset: Dataset, model: Model, predictor: str = "default") -> ModelPart:
    """Return the page's data of a measured model: all that the dataset contains about the model, and predictions.

    Args:
        predictor: predictor of the estimates: a name of `PREDICTORS`, or a file.

    Raises:
        DatasetError: the dataset cannot be read.
    """
    cache = _cache(dataset, model.key)
    timings = _timings(dataset, model.key, cache)
    operators = dataset.model_operators(model.key)
    measured = {n: dataset.measurements_of(model.key, threads=n, cache=cache) for n in timings}
    device = _device(dataset, model, timings, measured)
    parts = operators_of(dataset, model.key, operators, measured, device.key if device else None)
    found = _studies(dataset, operators, device, predictor, model, list(timings))
    parts = found.added_to(parts)
    names = {part.key: part.title for part in parts}
    runs = [_run(n, timing, names, operators, measured[n]) for n, timing in timings.items()]
    rooflines = [_attained(line, parts) for line in (_rooflines_of(device) if device is not None else [])]
    return ModelPart(
        key=model.key,
        name=model.name,
        title=f"{model.name}, batch {model.batch_size}, {model.precision}",
        source=model.source,
        batch_size=model.batch_size,
        precision=model.precision,
        executor=model.executor,
        added_at=model.added_at,
        device=_device_part(device, model.target),
        about=_about(model, timings),
        label=model.label,
        compiler=device.compiler if device is not None else "",
        content=content_of(model),
        verdict=verdict(runs, parts, rooflines),
        warnings=warnings(runs, parts),
        notes=list(model.notes),
        runs=runs,
        operators=parts,
        reads=[list(one) for one in model.reads] if model.reads is not None else None,
        rooflines=rooflines,
        tunings=found.tunings,
        predictor=found.predictor,
        predictions=found.predictions,
        unknown=_unknown(model, rooflines, found),
    )


@dataclasses.dataclass(frozen=True)
class _Studies:
    """Results of searches and of a predictor for a model."""

    tunings: list[Tuning]
    vendor: dict[str, list[Alone]]
    predictor: str
    predictions: list[Prediction]
    estimates: Estimates

    def added_to(self, parts: Sequence[OperatorPart]) -> list[OperatorPart]:
        """Return the operators with the results of searches and of the predictor about each operator."""
        number = {key: i for i, tuning in enumerate(self.tunings) for key in tuning.operators}
        return [
            msgspec.structs.replace(
                part,
                alone=[*part.alone, *self.vendor.get(part.key, [])],
                tuning=number.get(part.key),
                estimates=self.estimates.get(part.key, {}),
            )
            for part in parts
        ]


def _studies(
    dataset: Dataset, operators: Called, device: Device | None, predictor: str, model: Model, threads: list[int]
) -> _Studies:
    if device is None:
        return _Studies([], {}, "There is no prediction: nothing of the model was measured.", [], {})
    anchors = anchors_of(dataset, [operator for operator, _ in operators], device.key)
    tunings, vendor = tunings_of(dataset, anchors, device.key)
    opened, whose = open_for(predictor, model.target, full_name(device.processor, device.properties))
    predictions: list[Prediction] = []
    estimates: Estimates = {}
    if opened is not None:
        predictions, estimates = predictions_of(opened, model.name, operators, threads)
        if not predictions:
            whose = f"{whose} It was fitted to times at the thread counts {opened.thread_counts} only."
    return _Studies(tunings, vendor, whose, predictions, estimates)


def _unknown(model: Model, rooflines: Sequence[RooflinePart], found: _Studies) -> dict[str, str]:
    """Return the notes that replace sections without data."""
    unknown = {} if rooflines else {"roofline": _NOT_PROBED}
    if not found.predictions:
        unknown["prediction"] = found.predictor
    unknown["explain"] = how_to_explain(model)
    if model.reads is None:
        unknown["graph"] = (
            "The edges of the graph are not known: the model was collected by an older version, or runs in the vm. The "
            "calls are shown in their order."
        )
    return unknown


def _cache(dataset: Dataset, model_key: str) -> Cache:
    """Return the cache state whose measurements the page shows: the first of ``model``, ``hot`` and ``cold`` in which
    the model was measured."""
    table = schema.model_timings
    query = select(schema.settings.c.cache).join(table, table.c.settings_key == schema.settings.c.key)
    found = {row["cache"] for row in dataset.rows(query.where(table.c.model_key == model_key))}
    states: tuple[Cache, ...] = ("model", "hot", "cold")
    return next((state for state in states if state in found), "model")


def _timings(dataset: Dataset, model_key: str, cache: Cache) -> dict[int, StoredTiming]:
    """Return the timings of the whole model by ascending thread count."""
    counts = [row["threads"] for row in dataset.rows(queries.thread_counts(model_key, cache))]
    found = {n: dataset.find_model_timing(model_key, threads=n, cache=cache) for n in counts}
    return {n: timing for n, timing in found.items() if timing is not None}


def content_of(model: Model) -> str:
    """Return the fingerprint of a model and of the shapes of its inputs, the same on every device; empty if unknown."""
    return str(model.recipe["content"]) if model.recipe is not None else ""


def _about(model: Model, timings: Mapping[int, StoredTiming]) -> list[tuple[str, str]]:
    """Return facts about the run and its model."""
    newest = max(timings.values(), key=lambda timing: timing.measured_at, default=None)
    facts = {
        "run": model.label,
        "measured": newest and f"{newest.measured_at[:16].replace('T', ' ')} UTC",
        "op_profiler's revision": newest and newest.project_revision,
        "your folder's revision": newest and newest.user_revision,
    }
    return [(name, value) for name, value in facts.items() if value]


def _device(
    dataset: Dataset, model: Model, timings: Mapping[int, StoredTiming], measured: RowsByThreads
) -> Device | None:
    keys = [t.device_key for t in timings.values()]
    keys += [m.device_key for rows in measured.values() for m in rows.values()]
    key = next(iter(keys), model.device_key)
    return dataset.find_device(key) if key is not None else None


def _device_part(device: Device | None, target: str) -> DevicePart:
    """Return the facts about a device for readers."""
    if device is None:
        return DevicePart(key="", processor="unknown device", target=target, facts=[])
    caches = {level: getattr(device, f"l{level}_bytes") for level in (1, 2, 3)}
    facts = {
        "processor": device.processor,
        "usable cores": device.cores,
        "clock": f"{device.clock_mhz:,.0f} MHz" if device.clock_mhz else None,
        "caches": ", ".join(f"L{level} {size_text(size)}" for level, size in caches.items() if size),
        "memory": size_text(device.memory_bytes) if device.memory_bytes else None,
        "target": device.target,
        "TVM": device.tvm_version,
        "LLVM": device.llvm_version,
        "driver": device.driver,
        "system": device.properties.get("system"),
        "virtual machine": "yes" if device.properties.get("hypervisor") else None,
        "device key": device.key,
    }
    pairs = [(name, str(value)) for name, value in facts.items() if value]
    return DevicePart(key=device.key, processor=device.processor, target=device.target, facts=pairs)


def _run(
    threads: int,
    stored: StoredTiming,
    names: Mapping[str, str],
    operators: Called,
    measured: Mapping[str, StoredMeasurement],
) -> RunPart:
    timing = stored.timing
    return RunPart(
        threads=threads,
        whole=time_part(timing.whole_model, stored.measured_at),
        before_us=timing.before_us,
        after_us=timing.after_us,
        sum_us=timing.sum_of_operators_us,
        ratio=timing.ratio,
        remark=timing.not_a_pair,
        missing=[names.get(key, key) for key in timing.unmeasured],
        one_run_us=_one_run(operators, measured),
    )


def _one_run(operators: Called, measured: Mapping[str, StoredMeasurement]) -> list[float | None]:
    """Return the microseconds of every call, by its position; None for calls without a time.

    The times are those of one round, the round with the median total, if every round timed all operators; otherwise the
    medians of each call.
    """
    samples = {key: m.measurement.samples_us for key, m in measured.items() if m.measurement.samples_us}
    calls = sum(len(positions) for _, positions in operators)
    rounds = {len(rows) for rows in samples.values()}
    together = len(rounds) == 1 and all(operator.key in samples for operator, _ in operators)
    chosen = None
    if together:
        (count,) = rounds
        totals = [sum(sum(rows[i]) for rows in samples.values()) for i in range(count)]
        chosen = sorted(range(count), key=lambda i: totals[i])[count // 2]
    found: list[float | None] = [None] * calls
    for operator, positions in operators:
        rows = samples.get(operator.key)
        for column, position in enumerate(positions if rows else ()):
            assert rows is not None
            if position < calls and column < len(rows[0]):
                times = [rows[chosen][column]] if chosen is not None else sorted(row[column] for row in rows)
                found[position] = round(times[len(times) // 2], 3)
    return found


def _rooflines_of(device: Device) -> list[RooflinePart]:
    """Return one roofline per thread count of the probe; empty without a probe."""
    peaks = device.properties.get("peaks") or {}
    caches: dict[str, list[float]] = peaks.get("cache_bytes_per_us") or {}
    return [
        RooflinePart(
            threads=int(threads),
            flops_per_us=float(peaks["flops_per_us"][i]),
            roofs=[
                Roof(level="memory", bytes_per_us=float(peaks["bytes_per_us"][i])),
                *(Roof(level=level.upper(), bytes_per_us=float(rates[i])) for level, rates in caches.items()),
            ],
        )
        for i, threads in enumerate(peaks.get("threads", ()))
    ]


def _attained(line: RooflinePart, operators: Sequence[OperatorPart]) -> RooflinePart:
    """Return the roofline with the rate of an operator as the peak if that is higher; Winograd is left out, because it
    computes fewer FLOPs than are counted."""
    rates = [
        (one.flops / time.median_us, one.title)
        for one in operators
        if (time := one.times.get(str(line.threads))) is not None and time.median_us
        if one.schedule is not None and "winograd" not in one.schedule.template
    ]
    rate, title = max(rates, default=(0.0, ""))
    return msgspec.structs.replace(line, flops_per_us=rate, attained_by=title) if rate > line.flops_per_us else line
