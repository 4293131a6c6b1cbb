"""A predicted network as a table, CSV, JSON or lines of the runtime look-up table."""

from __future__ import annotations

import csv
import dataclasses
import io
import itertools
import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from op_profiler import json_text
from op_profiler.addresses import without_password
from op_profiler.compilers import DEFAULT_COMPILER
from op_profiler.errors import UnknownNameError
from op_profiler.frontends.frontend import AUTO
from op_profiler.operators.kinds.shapes import Unfit, sizes
from op_profiler.operators.titles import title_of
from op_profiler.option_values import several, threads_text
from op_profiler.prediction.latency.calibration import of_this_machine
from op_profiler.prediction.latency.features import kind_of
from op_profiler.prediction.latency.operator_predictor import BOUND, UNSUPPORTED, OperatorPredictor
from op_profiler.report.layers import layers_text
from op_profiler.report.page.amounts import half_width, us_text
from op_profiler.report.tables import numbers, print_line, screen, show_table, texts
from op_profiler.schedules.records import NONE, RULE

if TYPE_CHECKING:
    from rich.console import Console

    from op_profiler.operators.operator import Operator
    from op_profiler.prediction.latency.answer import Chosen
    from op_profiler.prediction.latency.candidates import PredictedModel
    from op_profiler.prediction.latency.devices import DeviceName
    from op_profiler.prediction.latency.generation import GenerationPrediction
    from op_profiler.prediction.latency.network import NetworkPrediction
    from op_profiler.prediction.latency.request import PredictRequest
    from op_profiler.prediction.latency.roofline import Roofline
    from op_profiler.prediction.latency.vendor import VendorPredictor

FORMATS = ("table", "csv", "json", "runtime_lut")
_CONVOLUTION = ("kernel_size", "filter_size", "input_channel", "input_h", "input_w", "stride", "depthwise")
_OP_TYPES = {
    "conv2d": "Conv",
    "depthwise": "Conv",
    "grouped": "Conv",
    "dense": "FC",
    "batch_matmul": "BatchMatMul",
    "softmax": "Softmax",
}


def render(predictions: Sequence[NetworkPrediction], format: str, device: DeviceName) -> str:
    """Return predictions as text, one per thread count; see `show_prediction` for ``table``.

    Args:
        device: device of the times.

    Raises:
        UnknownNameError: there is no such format.
    """
    if format == "json":
        return predictions_json(predictions, device)
    if format == "csv":
        return operators_csv(predictions)
    if format == "runtime_lut":
        more = len(predictions) > 1  # readers of that format know one network
        lines = [[f"threads: {one.threads}"] * more + _runtime_lut(one) for one in predictions]
        return "\n".join(itertools.chain.from_iterable(lines))
    raise UnknownNameError("format", format, FORMATS)


def predictions_json(predictions: Sequence[NetworkPrediction | GenerationPrediction], device: DeviceName) -> str:
    """Return predictions as JSON with the device of their times; a single prediction is an object, not a list."""
    fields = _device_fields(device)
    found = [prediction.to_json() | fields for prediction in predictions]
    return json_text.dumps(found[0] if len(found) == 1 else found, indent=1)


def _device_fields(device: DeviceName) -> dict[str, Any]:
    """Return fields of JSON about the device of the times."""
    names = ("key", "processor", "target", "compiler")
    return {"device": {name: getattr(device, name) for name in names}, "of_this_machine": of_this_machine(device)}


def show_prediction(
    console: Console, prediction: NetworkPrediction, predictor: OperatorPredictor | VendorPredictor
) -> None:
    """Print a table with the latency, interval and source of each operator's estimate, then `summary`."""
    found, network = prediction.operators, prediction.network
    device = f"{predictor.device.processor} ({predictor.device.target})"
    times = np.nan_to_num(found.latency_us) * network.calls
    rows = []
    for at in np.argsort(-times, kind="stable"):
        known, operator = np.isfinite(found.latency_us[at]), network.operators[at]
        rows.append(
            [
                f"{times[at] / prediction.partial_us:.1%}" if known else "-",
                title_of(operator.op_names),
                layers_text(network.layers.get(operator.key, ())),
                _output(operator),
                us_text(found.latency_us[at], half_width(found.low_us[at], found.high_us[at])),
                _interval(found.low_us[at], found.high_us[at]),
                found.tiers()[at] + (" *" if found.outside[at] else ""),
                str(network.calls[at]),
                operator.key,
            ]
        )
    headings = [
        *numbers("share"),
        *texts("operator"),
        *texts("layers", rank=1),
        *numbers("output", "us a call", "90 % interval"),
        *numbers("source", rank=1),
        *numbers("calls", rank=2),
        *numbers("key", rank=3),
    ]
    show_table(console, f"{network.name}{_at(', ', prediction.threads)}, predicted for {device}", headings, rows)
    if prediction.bounded and isinstance(predictor, OperatorPredictor):
        print_line(console, _peaks(predictor.roofline, prediction.threads))
    print_line(console, summary(prediction))


def _interval(low: float, high: float) -> str:
    """Return the interval as text; a lower bound if there is no upper end."""
    if np.isfinite(high):
        return f"{us_text(low)} to {us_text(high)}"
    return f"at least {us_text(low)}" if np.isfinite(low) else "-"


def _at(before: str, threads: int) -> str:
    """Return a thread count as text after `before`; empty for the count 0, which stands for a GPU."""
    return f"{before}{threads_text(threads)}" if threads else ""


def _peaks(roofline: Roofline, threads: int) -> str:
    at = int(np.searchsorted(roofline.threads, threads))
    gflops, gigabytes = roofline.flops_per_us[at] / 1e3, roofline.bytes_per_us[at] / 1e3
    source = "a probe" if roofline.memory_probed[at] else "operators larger than the caches"
    return f"bound: {gflops:.1f} GFLOP/s, and {gigabytes:.1f} GB/s from memory, which {source} reached"


def summary(prediction: NetworkPrediction) -> str:
    """Return the total latency with its interval as text, followed by a line for each of `caveats`."""
    lines = [f"total{_at(' at ', prediction.threads)}: {_total(prediction)}"]
    if prediction.beyond_us:
        lines.append(f"of the total, {prediction.beyond_us:.1f} us is time between kernels and waits for launches")
    return "\n".join([*lines, *caveats([prediction])])


def caveats(predictions: Sequence[NetworkPrediction]) -> list[str]:
    """Return a line for each reason why operators of some networks have no estimate, or a less certain one."""
    found: dict[str, dict[str, None]] = {}
    for one in predictions:
        of_each, unsupported = one.operators, one.operators.tier == UNSUPPORTED
        reasons = {
            "no estimate but a lower bound, since too few similar operators were measured": of_each.tier == BOUND,
            "no estimate, since no similar operator was measured": unsupported & ~of_each.too_large,
            "no estimate, because it does not fit into the device's memory": of_each.too_large,
            "* few measurements like it: by size, op, attribute, data type or kind of work": of_each.outside,
        }
        for why, mask in reasons.items():
            names = (_named(operator) for operator in itertools.compress(one.network.operators, mask))
            found.setdefault(why, {}).update(dict.fromkeys(names))
    return [f"{why}: {', '.join(names)}" for why, names in found.items() if names]


def _named(operator: Operator) -> str:
    """Return the title and the shape of the first output, by which a row of the table can be found."""
    return " ".join(filter(None, (title_of(operator.op_names), _output(operator))))


def _output(operator: Operator) -> str:
    return "x".join(map(str, operator.outputs[0].shape)) if operator.outputs else ""


def _total(prediction: NetworkPrediction) -> str:
    tiers = ", ".join(f"{share:.1%} {name}" for name, share in prediction.tiers.items())
    missing = len(prediction.without_estimate)
    if not missing:
        interval = _interval(prediction.low_us, prediction.high_us)
        half_us = half_width(prediction.low_us, prediction.high_us)
        return f"{us_text(prediction.total_us, half_us)} us, 90 % interval {interval} us ({tiers})"
    least = f", at least {prediction.low_us:.1f} us" if np.isfinite(prediction.low_us) else ""
    others = f"; the others take {prediction.partial_us:.1f} us ({tiers})" if tiers else ""
    return f"unknown{least}: {missing} of {len(prediction.network.operators)} operators without an estimate{others}"


def origin(prediction: NetworkPrediction, chosen: Chosen) -> str:
    """Return one line: the source of the estimate and its interval; for times of this machine, also the command that
    checks the estimate."""
    interval = ""
    if np.isfinite(prediction.high_us):
        interval = f", 90 % interval {_interval(prediction.low_us, prediction.high_us)} us"
    text = source_of(prediction.tiers, interval, prediction.threads, chosen)
    if not chosen.for_this_machine:
        return text
    return f"{text}; check it on this machine: {_check_command(prediction.threads, chosen.request)}"


def source_of(tiers: Mapping[str, float], interval: str, threads: int, chosen: Chosen) -> str:
    """Return a text with the source of most of an estimate, the device, the interval, and, if the interval is wider
    than usual, the reason.

    Args:
        tiers: share of the time by source of the estimate.
        interval: the interval as text; empty if there is none.
        threads: thread count of the estimate.
        chosen: the predictor.
    """
    tier = max(tiers, key=lambda name: tiers[name], default="nothing")
    kernels = " (kernels of NVIDIA's libraries, not TVM's)" if chosen.request.kernels == "vendor" else ""
    kernels += " (kernels by the rule)" if chosen.request.schedules == RULE else ""
    text = f"estimate: mostly {tier}{kernels}, of {chosen.predictor.device.processor}{interval}"
    widened = chosen.widening(threads)
    if widened > 1:
        text += f" (operators' intervals {widened:.2f} times as wide, since too few held on this machine)"
    return text


def _check_command(threads: int, request: PredictRequest) -> str:
    """Return the `op-profiler check` command with the options of a prediction that differ from the default."""
    model, options = request.model, [f"--threads {threads}"]
    given = {
        "--batchsize": (model.batch_size, 1),
        "--sequence-length": (model.sequence_length, None),
        "--inputname": (",".join(model.input_names), ""),
        "--inputshape": (";".join(",".join(map(str, shape)) for shape in model.input_shapes), ""),
        "--importer": (model.importer, AUTO),
        "--compiler": (request.compiler, DEFAULT_COMPILER),
        "--precision": (request.precision, "float32"),
        "--schedules": (request.schedules, NONE),
        "--device": (request.device, None),
        "--db": (None if request.db is None else without_password(request.db), None),
        "--predictor": (request.predictor, "default"),
    }
    options += [f"{flag} {shlex.quote(str(value))}" for flag, (value, usual) in given.items() if value != usual]
    options += ["--include-noisy"] * request.include_noisy
    return " ".join(["op-profiler check", shlex.quote(f"{model.source}:{model.name}"), *options])


def show_devices(devices: Sequence[DeviceName]) -> None:
    """Print a table of devices, with a row for each: key, name, cores, target, and whether it is this machine."""
    rows = [
        [one.key, one.processor, str(one.cores or "-"), one.target, "yes" if of_this_machine(one) else "no"]
        for one in devices
    ]
    headings = [*numbers("key"), *texts("device"), *numbers("cores", rank=2), *texts("target", rank=1)]
    show_table(screen(), f"devices: {len(rows)}", [*headings, *texts("this machine")], rows)


def show_candidates(candidates: Sequence[PredictedModel]) -> None:
    """Print a row for each model and a column for each device and thread count; then why models have no prediction."""
    console = screen()
    found = [one for one in candidates if one.error is None]
    places = list(dict.fromkeys((one.processor, one.threads) for one in found))
    rows = []
    for model in dict.fromkeys(one.model for one in found):
        there = {(one.processor, one.threads): one for one in found if one.model == model}
        rows.append([model, *(_with_interval(there.get(place)) for place in places)])
    headings = [*texts("model"), *numbers(*(f"us, {device}{_at(', ', threads)}" for device, threads in places))]
    if rows:
        show_table(console, f"predicted latency of {several(len(rows), 'model')}, with 90 % intervals", headings, rows)
    for one in candidates:
        if one.error is not None:
            print_line(console, f"no prediction: {one.model}: {one.error}")


def _with_interval(candidate: PredictedModel | None) -> str:
    if candidate is None:
        return "-"
    low, high = (math.nan if us is None else us for us in (candidate.low_us, candidate.high_us))
    if candidate.total_us is None:
        return f"unknown, {_interval(low, high)}"
    return f"{us_text(candidate.total_us)} ({_interval(low, high)})"


def candidates_as(candidates: Sequence[PredictedModel], format: str) -> str:
    """Return the predictions of many models as text in the format ``json`` or ``csv``."""
    if format == "json":
        return json_text.dumps([dataclasses.asdict(one) for one in candidates], indent=1)
    columns = ("model", "device", "processor", "threads", "total_us", "low_us", "high_us", "error")
    rows = [[getattr(one, column) for column in columns] for one in candidates]
    return _lines([columns, *([("" if cell is None else cell) for cell in row] for row in rows)])


def operators_csv(predictions: Sequence[NetworkPrediction]) -> str:
    """Return one CSV row per operator of each network, with its latency in microseconds."""
    columns = ("model", "threads", "operator", "operator_key", "anchor", "calls", *_CONVOLUTION)
    rows: list[Sequence[Any]] = [(*columns, "latency_us", "low_us", "high_us", "tier")]
    for prediction in predictions:
        found = prediction.operators
        for at, operator in enumerate(prediction.network.operators):
            shape = _convolution_fields(operator)
            named = (prediction.network.name, prediction.threads, operator.name, operator.key, operator.anchor)
            fields = (prediction.network.calls[at], *(shape.get(name, "") for name in _CONVOLUTION))
            times = _cells((found.latency_us[at], found.low_us[at], found.high_us[at]))
            rows.append((*named, *fields, *times, found.tiers()[at]))
    return _lines(rows)


def regressor_csv(predictions: Mapping[str, NetworkPrediction]) -> str:
    """Return one CSV row per convolution in the order of the calls, with the estimates of several predictors in
    microseconds, and the source of the first predictor's estimate.

    The cell of an estimate is empty if the predictor has no estimate of the convolution.

    Args:
        predictions: predictions of the same network, by the name of the predictor.
    """
    rows: list[Sequence[Any]] = [("name", *_CONVOLUTION, "calls", *(f"{name}_us" for name in predictions), "tier")]
    first = next(iter(predictions.values()))
    for at, operator in enumerate(first.network.operators):
        shape = _convolution_fields(operator)
        if not shape:
            continue
        fields = (*(shape[name] for name in _CONVOLUTION), first.network.calls[at])
        times = _cells(prediction.operators.latency_us[at] for prediction in predictions.values())
        rows.append((first.network.name, *fields, *times, first.operators.tiers()[at]))
    return _lines(rows)


def _cells(times_us: Iterable[float]) -> list[str]:
    return [f"{time:.6g}" if np.isfinite(time) else "" for time in times_us]


def _lines(rows: Sequence[Sequence[Any]]) -> str:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows(rows)
    return buffer.getvalue().rstrip("\n")


def _convolution_fields(operator: Operator) -> dict[str, Any]:
    """Return the parameters of a two-dimensional convolution in plain sizes, whatever layout the compiler chose; empty
    for other operators.

    A depthwise convolution has as many filters as channels, and is marked as depthwise.
    """
    kind = kind_of(operator)
    if kind not in ("conv2d", "depthwise", "grouped") or not operator.inputs:
        return {}
    attrs = operator.attrs[operator.op_names.index(operator.anchor)]
    layout = str(attrs.get("data_layout") or "NCHW")
    try:
        data = sizes(operator.inputs[0], layout)
        out = sizes(operator.outputs[0], str(attrs.get("out_layout") or layout))
    except Unfit:
        return {}
    window = attrs.get("kernel_size") or ("", "")
    return {
        "kernel_size": window[0] if len(set(window)) == 1 else "x".join(map(str, window)),
        "filter_size": attrs.get("channels") or out["C"],
        "input_channel": data["C"],
        "input_h": data["H"],
        "input_w": data["W"],
        "stride": attrs.get("strides", [1])[0],
        "depthwise": int(kind == "depthwise"),
    }


def _runtime_lut(prediction: NetworkPrediction) -> list[str]:
    """Return the text that the query of a runtime look-up table prints, with operators that are missing from the total
    next to it."""
    lines = []
    found = prediction.operators
    for at, operator in enumerate(prediction.network.operators):
        known = np.isfinite(found.latency_us[at])
        op_type = _OP_TYPES.get(kind_of(operator), operator.anchor)
        shapes = [list(t.shape) for t in (*operator.inputs, *operator.params)]
        for _ in range(int(prediction.network.calls[at])):
            lines.append(f"op type {op_type} with input {shapes}")
            lines.append(f"run_time: [{found.latency_us[at]:.1f}]" if known else "run_time: not found")
    missing = prediction.without_estimate
    lines.append(f"All operators found in the table? {not missing}")
    if missing:
        lines.append(f"not found: {', '.join(missing)}")
    if missing and prediction.tiers:
        lines.append(f"The run-time latency of the others is {prediction.partial_us:.1f}")
    total = "not found" if missing else f"{prediction.total_us:.1f}"
    lines.append(f"The network run-time latency is {total}")
    return lines
