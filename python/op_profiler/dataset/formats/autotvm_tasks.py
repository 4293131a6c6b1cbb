"""Converts operators to records of AutoTVM tasks, and records back to operators."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from op_profiler.compilers.compiler import compiler_in_use
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.dataset.formats.autotvm_names import TEMPLATES
from op_profiler.dataset.formats.autotvm_templates import WINDOWS, TaskArguments
from op_profiler.dataset.formats.format import UnknownKindError
from op_profiler.operators.kinds.shapes import Unfit, precision_of
from op_profiler.operators.operator import Operator
from op_profiler.schedules.records import Record

_US_PER_SECOND = 1e6
_LARGEST = 2**63 - 1  # what a database keeps of a whole number
_UNKNOWN_INDEX = -1  # what AutoTVM itself gives to a configuration that is no point of a space


def record_of(
    operator: Operator, *, template: str, knobs: Mapping[str, Any], target: str, rounds_us: Sequence[float]
) -> Record:
    """Return an AutoTVM record of an operator's measurement; the record contains seconds.

    Args:
        rounds_us: time of each round, microseconds; empty for a failed trial.

    Raises:
        Unfit: AutoTVM has no task for the operator or the template.
    """
    if len(operator.op_names) != 1:
        raise Unfit("a fused operator: AutoTVM measures the heavy op without its fused ops")
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
    """Return the entry of a knob in a record: name, AutoTVM's code of its kind, and value.

    The codes are ``sp`` (split), ``re`` (reorder), ``an`` (annotate) and ``ot`` (other).
    """
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
        raise Unfit("a depthwise convolution in a blocked layout, which AutoTVM's logs do not distinguish")
    window = tuple(tuple(attrs[name]) for name in ("strides", "padding", "dilation"))
    if "NCHWc" in template:
        layout = str(attrs.get("data_layout", "NCHW"))
        return (data, weight, *window, layout, str(attrs.get("out_layout") or layout), dtype)
    return (data, weight, *window, dtype)


def rounds_of(samples_us: Sequence[Sequence[float]], median_us: float | None) -> list[float]:
    """Return the mean time of each round's calls, microseconds.

    Args:
        samples_us: times of the calls, by round.
        median_us: the only element of the result if no samples were stored; None for a failure, whose result is empty.
    """
    if median_us is None:
        return []
    return [sum(sample) / len(sample) for sample in samples_us if sample] or [median_us]


def operator_of(record: Record) -> Operator:
    """Return the operator that a record's task computes.

    Raises:
        UnknownKindError: the template is not in `TEMPLATES`.
        ValueError: the task does not fit its template, or could compute several operators.
    """
    template = TEMPLATES.get(record.template) or TEMPLATES.get(record.template.partition(".")[0])
    if template is None:
        raise UnknownKindError(record.template)
    tvm = load_tvm()
    task = TaskArguments.of(record.arguments, windows=WINDOWS.get(template.call, 0))
    precision_of(task.tensors[0].dtype)
    try:
        call = template.call(tvm.relay, template, task)
        function = tvm.relay.Function(tvm.relay.analysis.free_vars(call), call)
        function = tvm.relay.transform.InferType()(tvm.IRModule.from_expr(function))["main"]
        weights = tuple(str(v.name_hint).startswith("weight") for v in function.params)
        operator = compiler_in_use().describe(function, weights)
    except (tvm.TVMError, TypeError, LookupError, ArithmeticError, AttributeError, AssertionError) as error:
        raise ValueError("tensors and arguments that do not go together") from error
    if not all(0 <= n <= _LARGEST for n in (operator.flops, operator.bytes_read, operator.bytes_written)):
        raise ValueError("more work than a database can count")
    return dataclasses.replace(operator, name=operator.anchor.replace(".", "_"))
