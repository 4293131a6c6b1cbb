"""Logs of AutoTVM, written by anybody: each line becomes a measurement."""

from __future__ import annotations

import collections
import dataclasses
import datetime
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from op_profiler.compilers.relay.extract import describe
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.dataset.formats import autotvm_export
from op_profiler.dataset.formats.format import Imported, Progress
from op_profiler.dataset.formats.importing import report
from op_profiler.dataset.formats.line_format import LineFormat
from op_profiler.dataset.row import Row
from op_profiler.dataset.store import Dataset
from op_profiler.measure.measurement import Device, Measurement, Precision, Settings
from op_profiler.measure.statistics import summarize
from op_profiler.operators.operator import Operator
from op_profiler.schedules.factors import factors_of_knobs
from op_profiler.schedules.records import Record, read_records
from op_profiler.schedules.schedule import Schedule

_SETTINGS = Settings(threads=0, cache="hot", cache_mechanism="repeat, by AutoTVM", executor="kernel")
"""AutoTVM asks for no number of threads and writes down none: 0 is the runtime's choice."""
_LARGEST = 2**63 - 1  # what a database keeps of a whole number
_LARGEST_SIZE = 2**31


def import_autotvm(dataset: Dataset, path: Path, *, processor: str | None = None) -> Imported:
    """Store every record of a log; costs in seconds become microseconds.

    Records that repeat a configuration become one measurement with all their costs as samples; where it failed at times
    and had a time at others, the failure stands beside it.

    Args:
        processor: the device that the log was measured on, which AutoTVM does not write down.

    Raises:
        OpProfilerError: the file cannot be read.
    """
    records, unreadable = read_records(path)
    unknown: collections.Counter[str] = collections.Counter()
    operators: dict[str, Operator | None] = {}
    groups: dict[tuple[str, str, str, bool], list[tuple[int, Record]]] = {}
    for number, record in enumerate(records, 1):
        if record.task not in operators:
            operators[record.task] = _operator(record)
        operator = operators[record.task]
        if operator is None:
            unknown[record.template] += 1
            continue
        alike = operator.key, _schedule(record).key, record.target, bool(record.seconds)
        groups.setdefault(alike, []).append((number, record))
    found = {operator.key: operator for operator in operators.values() if operator is not None}
    measured = [found[key] for key, *_ in groups]
    name = processor or f"unnamed, of {path.name}"
    rows = [_row([r for _, r in group], operator, name) for operator, group in zip(measured, groups.values())]
    with dataset.transaction():
        for key in dict.fromkeys(operator.key for operator in measured):
            dataset.add_anchor(found[key])
        for failed in (False, True):  # one after the other, as a configuration may have a time and a failure
            dataset.record_all(row for row in rows if (row.measurement.error is not None) == failed)
    failures = sum(1 for row in rows if row.measurement.error is not None)
    merged = sum(map(len, groups.values())) - len(rows)
    first = [group[0][0] for group in groups.values()]
    return report(Imported(len(rows), failures, unreadable, dict(unknown), merged=merged), measured, rows, first)


def _schedule(record: Record) -> Schedule:
    return Schedule(record.template, record.knobs, "trial", factors_of_knobs(record.knobs))


def _row(alike: Sequence[Record], operator: Operator, processor: str) -> Row:
    """Records of one configuration, all timed or all failed; every cost is a sample."""
    import numpy as np

    first = alike[0]
    when = datetime.datetime.fromtimestamp(first.timestamp, datetime.timezone.utc).isoformat(timespec="seconds")
    device = Device(
        kind=first.target.split(" ")[0],
        target=first.target,
        processor=processor,
        cores=None,
        properties={"imported_from": "an AutoTVM log", "measured": when},
    )
    if first.seconds:
        seconds = [cost for record in alike for cost in record.seconds]
        measurement = summarize(np.asarray(seconds)[:, None] * 1e6)
    else:
        measurement = Measurement(error=f"AutoTVM's error number {first.error_no}")
    return Row(
        operator_key=operator.key,
        schedule=_schedule(first),
        settings=_SETTINGS,
        device=device,
        measurement=measurement,
    )


def _operator(record: Record) -> Operator | None:
    """The operator that a record's task computes; None where its kind is not known here."""
    for prefix, make in _KINDS.items():
        if record.template.startswith(prefix):
            tvm = load_tvm()
            try:
                call = make(tvm.relay, record.arguments)
                function = tvm.relay.Function(tvm.relay.analysis.free_vars(call), call)
                module = tvm.relay.transform.InferType()(tvm.IRModule.from_expr(function))
                function = module["main"]
                constants = tuple(str(v.name_hint) == "weight" for v in function.params)
                operator = describe(function, constants)
            except (tvm.TVMError, ValueError, TypeError, LookupError, ArithmeticError, AttributeError, AssertionError):
                return None
            if not all(0 <= n <= _LARGEST for n in (operator.flops, operator.bytes_read, operator.bytes_written)):
                return None
            return dataclasses.replace(operator, name=operator.anchor.replace(".", "_"))
    return None


def _whole(sizes: Any) -> tuple[int, ...]:
    """Whole numbers; of anything else, a null above all, TVM dies.

    Raises:
        ValueError: there is something else.
    """
    if not isinstance(sizes, tuple) or not all(type(size) is int and abs(size) < _LARGEST_SIZE for size in sizes):
        raise ValueError(f"{sizes} are no whole numbers")
    return sizes


def _variable(relay: Any, name: str, argument: Any) -> Any:
    kind, shape, dtype = argument
    if kind != "TENSOR" or not shape or min(_whole(shape)) < 1:
        raise ValueError(f"{argument} is no tensor")
    return relay.var(name, shape=shape, dtype=dtype)


def _conv2d(relay: Any, arguments: tuple[Any, ...]) -> Any:
    data, weight = _variable(relay, "data", arguments[0]), _variable(relay, "weight", arguments[1])
    strides, padding, dilation = map(_whole, arguments[2:5])
    shape, kernel = arguments[0][1], arguments[1][1]
    common = {"strides": strides, "padding": padding, "dilation": dilation}
    if len(shape) == 4 and len(kernel) == 4:
        groups = shape[1] // kernel[1]
        return relay.nn.conv2d(data, weight, groups=groups, channels=kernel[0], kernel_size=kernel[2:], **common)
    chunks, in_chunks, kh, kw, block, lanes = kernel
    return relay.nn.contrib_conv2d_nchwc(
        data,
        weight,
        groups=shape[1] * shape[4] // (in_chunks * block),
        channels=chunks * lanes,
        kernel_size=(kh, kw),
        data_layout=f"NCHW{shape[4]}c",
        kernel_layout=f"OIHW{block}i{lanes}o",
        out_layout=f"NCHW{lanes}c",
        **common,
    )


def _depthwise(relay: Any, arguments: tuple[Any, ...]) -> Any:
    data, weight = _variable(relay, "data", arguments[0]), _variable(relay, "weight", arguments[1])
    strides, padding, dilation = map(_whole, arguments[2:5])
    shape, kernel = arguments[0][1], arguments[1][1]
    if len(shape) != 4 or len(kernel) != 4:
        raise ValueError("blocked layouts of depthwise convolutions are not told apart by AutoTVM's logs")
    return relay.nn.conv2d(
        data,
        weight,
        strides=strides,
        padding=padding,
        dilation=dilation,
        groups=shape[1],
        channels=kernel[0] * kernel[1],
        kernel_size=kernel[2:],
    )


def _dense(relay: Any, arguments: tuple[Any, ...]) -> Any:
    data, weight = _variable(relay, "data", arguments[0]), _variable(relay, "weight", arguments[1])
    if len(arguments[1][1]) == 3:
        return relay.nn.contrib_dense_pack(data, weight, f"NC{arguments[1][1][2]}n")
    return relay.nn.dense(data, weight)


def _batch_matmul(relay: Any, arguments: tuple[Any, ...]) -> Any:
    a, b = _variable(relay, "a", arguments[0]), _variable(relay, "b", arguments[1])
    flags = [bool(flag) for flag in arguments[4:6]]
    transpose_a, transpose_b = flags if len(flags) == 2 else (False, True)
    return relay.nn.batch_matmul(a, b, transpose_a=transpose_a, transpose_b=transpose_b)


_KINDS: dict[str, Callable[[Any, tuple[Any, ...]], Any]] = {
    "conv2d_nchw": _conv2d,
    "conv2d_NCHWc": _conv2d,
    "depthwise_conv2d": _depthwise,
    "dense": _dense,
    "batch_matmul": _batch_matmul,
}


class AutoTvm(LineFormat):
    """See the module. A log holds every trial, so nothing is left out for being slower."""

    every_row = True

    def read_into(
        self,
        dataset: Dataset,
        path: Path,
        *,
        device: str | None = None,
        precision: Precision = "float32",
        progress: Progress | None = None,
    ) -> Imported:
        return import_autotvm(dataset, path, processor=device)

    def line(self, operator: Operator, row: dict[str, Any]) -> str:
        record = autotvm_export.record_of(
            operator,
            template=row["template"],
            knobs=row["knobs"],
            target=row["target"],
            rounds_us=autotvm_export.rounds_of(row["samples_us"], row["median_us"]),
        )
        return record.to_json(row["tvm_version"])


FORMAT = AutoTvm()
