"""What a predictor learns from: the usable measurements of a dataset, as arrays."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from op_profiler.errors import DatasetError
from op_profiler.measure.measurement import RESOURCE_FIELDS
from op_profiler.measure.steadiness import FIRST_MEMORY_BYTES, PROBE_NAMES
from op_profiler.operators.operator import Operator

COLUMNS = (
    "operator_key",
    "operator_name",
    "anchor",
    "op_names",
    "inputs",
    "params",
    "outputs",
    "attrs",
    "layouts",
    "structure",
    "flops",
    "bytes_read",
    "bytes_written",
    "origin",
    "threads",
    "core_set",
    *RESOURCE_FIELDS,
    "cache",
    "precision",
    "executor",
    "device_key",
    "device_kind",
    "processor",
    "cores",
    "target",
    "device_properties",
    "l2_bytes",
    "l3_bytes",
    "memory_bytes",
    "model_key",
    "model_name",
    "model_source",
    "occurrences",
    "whole_model_us",
    "timing_details",
    "call_overhead_us",
    "median_us",
    "ci_low_us",
    "ci_high_us",
    "foreign_load",
    "error",
    "complete",
)
"""Columns of the flat table that `examples_of` reads."""
_AROUND_SAMPLED = (["broadcast_to"], ["cast", "broadcast_to"], ["strided_slice"])
"""What a batch of sampled operators puts before and behind each (`op_profiler.frontends.sample`)."""


@dataclasses.dataclass(frozen=True)
class DeviceName:
    """A device in a dataset, by what a user would know it by.

    Attributes:
        peaks: as `op_profiler.targets.llvm.peaks.Peaks` has them, plain values; None where it was not probed.
        memory_bytes, cache_bytes: of the device, and of its last-level cache; None where they are not known.
    """

    key: str
    kind: str
    processor: str
    cores: int | None
    target: str
    peaks: dict[str, list[float]] | None = None
    memory_bytes: int | None = None
    cache_bytes: int | None = None


@dataclasses.dataclass(frozen=True)
class Examples:
    """Measurements of operators in models, one an entry of each array unless said otherwise.

    Attributes:
        operators: the distinct operators.
        operator: index into `operators`.
        threads: asked for.
        latency_us: median over the rounds, without what the call takes.
        half_width: half of the 95 % interval of the median, relative to it.
        device: index into `devices`.
        model: index into `models`: the model or the batch of sampled operators in which it ran.
        occurrences: how often that model calls the operator.
        models: names, one a model; `sampled`: whether it is a batch of sampled operators.
        traffic_bytes: what all calls of that model read and write, which goes through the caches between two calls.
        working_set_bytes: the same if each operator were called once.
        gauge_us: shape (entries, kernels of the probe), how long they took meanwhile; NaN where it is not known.
        gauge_bytes: size of the data that the probe's memory kernel read; times of two sizes cannot be compared.
        whole_model_us: median of the whole model at that thread count; NaN where it is not known.
        left_out: how many rows were not used, by reason.
        loops: what the loops of `operators` do (`op_profiler.predict.latency.loops.loops_of`); None: not asked for.
    """

    operators: list[Operator]
    operator: np.ndarray
    threads: np.ndarray
    latency_us: np.ndarray
    half_width: np.ndarray
    device: np.ndarray
    devices: list[DeviceName]
    model: np.ndarray
    occurrences: np.ndarray
    models: list[str]
    sampled: np.ndarray
    traffic_bytes: np.ndarray
    working_set_bytes: np.ndarray
    gauge_us: np.ndarray
    gauge_bytes: np.ndarray
    whole_model_us: np.ndarray
    left_out: dict[str, int]
    loops: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.latency_us)

    def where(self, mask: np.ndarray) -> Examples:
        """The entries of a mask; operators, devices and models stay as they are."""
        names = ["operator", "threads", "latency_us", "half_width", "device", "model", "occurrences"]
        names += ["traffic_bytes", "working_set_bytes", "gauge_us", "gauge_bytes", "whole_model_us"]
        return dataclasses.replace(self, **{name: getattr(self, name)[mask] for name in names})

    def of_device(self, key: str) -> Examples:
        """Only the entries of one device.

        Raises:
            DatasetError: there are none; names the devices that there are.
        """
        for index, device in enumerate(self.devices):
            if device.key == key:
                return self.where(self.device == index)
        there = "; ".join(f"{d.key} ({d.processor}, {d.target})" for d in self.devices) or "none"
        raise DatasetError(f"the dataset has no measurements of device {key}; there are: {there}")


def load_examples(*, db: str | None = None, file: Path | None = None, schedules: str = "default") -> Examples:
    """Examples from a dataset, from a Parquet file of ``op-profiler export``, or from both.

    Args:
        schedules: origin of the schedules, ``default`` or ``tuned``.

    Raises:
        DatasetError: one of them cannot be read.
    """
    from op_profiler.dataset import Dataset, flat_rows
    from op_profiler.dataset.formats.parquet import parquet_rows

    def rows() -> Iterator[Mapping[str, Any]]:
        if file is not None:
            yield from parquet_rows(file, COLUMNS)
        if db is not None:
            with Dataset.open(db, create=False, read_only=True) as dataset:
                yield from flat_rows(dataset, columns=COLUMNS, where=f"origin = '{schedules}'")

    return examples_of(rows(), schedules=schedules)


def examples_of(rows: Iterable[Mapping[str, Any]], *, schedules: str = "default") -> Examples:
    """Examples from rows of the flat table.

    Left out are failures, check points, rows under foreign load, other schedules, and operators outside a model: the
    caches are then in another state than in a network. Of sweeps only what the machine does by itself is used, and one
    set of cores for each model and thread count.
    """
    left_out: dict[str, int] = {}
    kept = []
    for row in rows:
        reason = _reason_against(row, schedules)
        if reason is None:
            kept.append(row)
        else:
            left_out[reason] = left_out.get(reason, 0) + 1
    used = _on_one_core_set(kept)
    if len(used) < len(kept):
        left_out["on other cores"] = len(kept) - len(used)
    return _arrays(used, left_out)


def _on_one_core_set(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Of a model that was measured on several sets of as many cores the rows of one: the one that most models have."""

    def run(row: Mapping[str, Any]) -> tuple[Any, ...]:
        return row["device_key"], row["model_key"], row["threads"]

    cores = [tuple(row["core_set"] or ()) for row in rows]
    models: dict[tuple[Any, ...], set[str]] = {}
    for row, mine in zip(rows, cores, strict=True):
        models.setdefault((row["device_key"], row["threads"], mine), set()).add(row["model_key"])
    chosen: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for row, mine in zip(rows, cores, strict=True):
        rank = (-len(models[row["device_key"], row["threads"], mine]), mine)
        chosen[run(row)] = min(chosen.get(run(row), rank), rank)
    return [row for row, mine in zip(rows, cores, strict=True) if chosen[run(row)][1] == mine]


def _device_name(row: Mapping[str, Any]) -> DeviceName:
    peaks = (row["device_properties"] or {}).get("peaks")
    return DeviceName(
        key=row["device_key"],
        kind=row["device_kind"],
        processor=row["processor"],
        cores=row["cores"],
        target=row["target"],
        peaks=peaks,
        memory_bytes=row["memory_bytes"],
        cache_bytes=row["l3_bytes"] or row["l2_bytes"],
    )


def _reason_against(row: Mapping[str, Any], schedules: str) -> str | None:
    if row["origin"] != schedules:
        return f"schedule {row['origin']}"
    if row["error"] is not None or row["median_us"] is None:
        return "failed"
    if not row["complete"]:
        return "not complete"
    if row["foreign_load"]:
        return "under foreign load"
    if any(row[name] is not None for name in RESOURCE_FIELDS):
        return "of a sweep"
    if row["model_source"] == "sample" and row["op_names"] in _AROUND_SAMPLED:
        return "around sampled operators"
    if not row["model_key"] or row["cache"] != "model" or row["executor"] == "vm":
        return "not in a model"
    if row["median_us"] <= _call_us(row):
        return "shorter than its call"
    return None


def _call_us(row: Mapping[str, Any]) -> float:
    """What the median still holds of the call, microseconds.

    Rows with `call_overhead_us` have it subtracted. Those of earlier versions do not; what a call cost meanwhile stands
    in their details.
    """
    if row["call_overhead_us"] is not None:
        return 0.0
    return float((row["timing_details"] or {}).get("call_overhead_us") or 0.0)


def _arrays(rows: Sequence[Mapping[str, Any]], left_out: dict[str, int]) -> Examples:
    from op_profiler.dataset.formats.flat_table import operator_of_row

    operators: dict[str, int] = {}
    found: list[Operator] = []
    devices: dict[str, int] = {}
    names: list[DeviceName] = []
    models: dict[str, int] = {}
    labels: list[str] = []
    sampled: list[bool] = []
    for row in rows:
        if row["operator_key"] not in operators:
            operators[row["operator_key"]] = len(found)
            found.append(operator_of_row(dict(row)))
        if row["device_key"] not in devices:
            devices[row["device_key"]] = len(names)
            names.append(_device_name(row))
        if row["model_key"] not in models:
            models[row["model_key"]] = len(labels)
            labels.append(row["model_name"])
            sampled.append(row["model_source"] == "sample")
    operator = np.array([operators[row["operator_key"]] for row in rows], dtype=np.intp)
    model = np.array([models[row["model_key"]] for row in rows], dtype=np.intp)
    occurrences = np.array([row["occurrences"] or 1 for row in rows], dtype=np.int64)
    latency = np.array([row["median_us"] - _call_us(row) for row in rows], dtype=np.float64)
    low, high = (_numbers(rows, name) for name in ("ci_low_us", "ci_high_us"))
    moved = np.array([o.bytes_read + o.bytes_written for o in found], dtype=np.float64)
    traffic, working_set = _traffic(operator, model, occurrences, moved, len(labels))
    return Examples(
        operators=found,
        operator=operator,
        threads=np.array([row["threads"] for row in rows], dtype=np.int64),
        latency_us=latency,
        half_width=(high - low) / 2 / np.maximum(latency, 1e-9),
        device=np.array([devices[row["device_key"]] for row in rows], dtype=np.intp),
        devices=names,
        model=model,
        occurrences=occurrences,
        models=labels,
        sampled=np.array(sampled, dtype=bool),
        traffic_bytes=traffic[model],
        working_set_bytes=working_set[model],
        gauge_us=np.array([_gauge(row) for row in rows], dtype=np.float64).reshape(len(rows), len(PROBE_NAMES)),
        gauge_bytes=np.array([_gauge_bytes(row) for row in rows], dtype=np.int64),
        whole_model_us=_numbers(rows, "whole_model_us"),
        left_out=left_out,
    )


def _numbers(rows: Sequence[Mapping[str, Any]], name: str) -> np.ndarray:
    return np.array([np.nan if row[name] is None else row[name] for row in rows], dtype=np.float64)


def _gauge(row: Mapping[str, Any]) -> list[float]:
    found = (row["timing_details"] or {}).get("gauge_us") or {}
    return [float(found.get(name, np.nan)) for name in PROBE_NAMES]


def _gauge_bytes(row: Mapping[str, Any]) -> int:
    found = (row["timing_details"] or {}).get("gauge_bytes") or {}
    return int(found.get("memory", FIRST_MEMORY_BYTES))


def _traffic(
    operator: np.ndarray, model: np.ndarray, occurrences: np.ndarray, moved: np.ndarray, models: int
) -> tuple[np.ndarray, np.ndarray]:
    """Bytes that all calls of each model move, shape (models,), and one call of each of its operators; whatever the
    thread counts."""
    pairs, first = np.unique(np.stack([model, operator]), axis=1, return_index=True)
    total, once = np.zeros(models), np.zeros(models)
    np.add.at(total, pairs[0], moved[pairs[1]] * occurrences[first])
    np.add.at(once, pairs[0], moved[pairs[1]])
    return total, once
