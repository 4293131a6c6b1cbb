"""Between single operators and tasks of AutoTVM: the operator that a record is of, and the record of an operator."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

from op_profiler.compilers.relay.extract import describe
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.dataset.formats.unblock import Unfit
from op_profiler.operators.operator import Operator
from op_profiler.schedules.records import Record

_US_PER_SECOND = 1e6
_LARGEST = 2**63 - 1  # what a database keeps of a whole number
_LARGEST_SIZE = 2**31
_UNKNOWN_INDEX = -1  # what AutoTVM itself gives to a configuration that is no point of a space


def record_of(
    operator: Operator, *, template: str, knobs: Mapping[str, Any], target: str, rounds_us: Sequence[float]
) -> Record:
    """A record; costs in seconds, 1e9 for a failure.

    Args:
        rounds_us: microseconds of each round; empty for a trial that failed.

    Raises:
        Unfit: AutoTVM has no task for the operator or the template.
    """
    if len(operator.op_names) != 1:
        raise Unfit("a fused operator: AutoTVM measures the heavy op alone")
    if "." not in template:
        raise Unfit(f"the schedule {template}, which is no template of AutoTVM")
    return Record(
        target=target,
        template=template,
        arguments=_arguments(operator, template),
        config={"index": _UNKNOWN_INDEX, "code_hash": None, "entity": [_knob(*item) for item in knobs.items()]},
        seconds=tuple(time / _US_PER_SECOND for time in rounds_us),
        error_no=0 if rounds_us else 4,  # AutoTVM's RUNTIME_DEVICE: the reason itself has no place in a record
    )


def _knob(name: str, value: Any) -> list[Any]:
    """A knob with the kind that AutoTVM would write: split, reorder, annotate, or other."""
    if isinstance(value, list):
        kind = "an" if any(isinstance(item, str) for item in value) else "re" if name.startswith("reorder") else "sp"
        return [name, kind, value]
    return [name, "ot", value]


def _arguments(operator: Operator, template: str) -> tuple[Any, ...]:
    tensors = (*operator.inputs, *operator.params)
    if len(tensors) != 2:
        raise Unfit(f"{operator.anchor} with {len(tensors)} tensors")
    data, weight = (("TENSOR", tensor.shape, tensor.dtype) for tensor in tensors)
    attrs = operator.attrs[0]
    dtype = str(attrs.get("out_dtype") or operator.outputs[0].dtype)
    if template.startswith("batch_matmul"):
        flags = (int(attrs.get("transpose_a", False)), int(attrs.get("transpose_b", False)))
        return (data, weight, operator.outputs[0].shape, dtype, *flags)
    if template.startswith("dense"):
        return (data, weight, None, dtype)
    blocked = len(tensors[0].shape) != 4
    if not template.startswith(("conv2d", "depthwise_conv2d")) or (blocked and "winograd" in template):
        raise Unfit(f"the template {template}")
    if blocked and template.startswith("depthwise"):
        raise Unfit("a depthwise convolution in a blocked layout, which AutoTVM's logs do not tell apart")
    window = tuple(tuple(attrs[name]) for name in ("strides", "padding", "dilation"))
    if "NCHWc" in template:
        layout = str(attrs.get("data_layout", "NCHW"))
        return (data, weight, *window, layout, str(attrs.get("out_layout") or layout), dtype)
    return (data, weight, *window, dtype)


def rounds_of(samples_us: Sequence[Sequence[float]], median_us: float | None) -> list[float]:
    """The mean of each round's occurrences, microseconds; the median where the samples were not kept."""
    if median_us is None:
        return []
    return [sum(sample) / len(sample) for sample in samples_us if sample] or [median_us]


def operator_of(record: Record) -> Operator | None:
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


def _variable(relay: ModuleType, name: str, argument: Any) -> Any:
    kind, shape, dtype = argument
    if kind != "TENSOR" or not shape or min(_whole(shape)) < 1:
        raise ValueError(f"{argument} is no tensor")
    return relay.var(name, shape=shape, dtype=dtype)


def _conv2d(relay: ModuleType, arguments: tuple[Any, ...]) -> Any:
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


def _depthwise(relay: ModuleType, arguments: tuple[Any, ...]) -> Any:
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


def _dense(relay: ModuleType, arguments: tuple[Any, ...]) -> Any:
    data, weight = _variable(relay, "data", arguments[0]), _variable(relay, "weight", arguments[1])
    if len(arguments[1][1]) == 3:
        return relay.nn.contrib_dense_pack(data, weight, f"NC{arguments[1][1][2]}n")
    return relay.nn.dense(data, weight)


def _batch_matmul(relay: ModuleType, arguments: tuple[Any, ...]) -> Any:
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
