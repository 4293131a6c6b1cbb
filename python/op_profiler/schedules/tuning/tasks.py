"""From an operator to the AutoTVM tasks that can compute its anchor."""

from __future__ import annotations

import dataclasses
from typing import Any

from op_profiler.compiler import load_tvm
from op_profiler.operators._base import Operator
from op_profiler.operators.extract import Occurrence, describe
from op_profiler.schedules.record import ScheduleRecord, anchor_call
from op_profiler.schedules.templates import SUFFIX, conv2d, winograd
from op_profiler.schedules.tuning._base import TaskSpec


@dataclasses.dataclass(frozen=True)
class Tunable:
    """The anchor of one or more operators, and the ways to compute it.

    Attributes:
        anchor: the heavy op alone, as an operator of its own: what trials are measurements of.
        tasks: templates to search; the project's own, or TVM's where it has none for this op.
        default: the task whose template the compiler takes without records; None where that is no AutoTVM template.
        operators: workload keys of the fused operators that hold it.
    """

    anchor: Operator
    tasks: tuple[TaskSpec, ...]
    default: TaskSpec | None
    operators: tuple[str, ...]


def tunables(occurrences: list[Occurrence], choices: ScheduleRecord, keys: set[str]) -> list[Tunable]:
    """What can be tuned among operators, each anchor once.

    Args:
        occurrences: of one compilation, with the schedules `choices` noted during it.
        keys: workload keys of the operators that are asked for.
    """
    found: dict[str, Tunable] = {}
    for occurrence in occurrences:
        operator = occurrence.operator
        if operator.key not in keys:
            continue
        tasks, default = _tasks(occurrence, choices)
        if not tasks:
            continue
        anchor = anchor_of(occurrence)
        known = found.get(anchor.key)
        operators = (*(known.operators if known else ()), operator.key)
        found[anchor.key] = Tunable(anchor, tasks, default, tuple(dict.fromkeys(operators)))
    return list(found.values())


def _tasks(occurrence: Occurrence, choices: ScheduleRecord) -> tuple[tuple[TaskSpec, ...], TaskSpec | None]:
    specs = [TaskSpec(name, arguments) for name, arguments in choices.tasks_of(occurrence)]
    own = [spec for spec in specs if spec.template.endswith(SUFFIX)]
    others = [spec for spec in specs if not spec.template.endswith(SUFFIX)]
    for spec in own:
        if spec.template == conv2d.CONV2D:
            own += _winograd(spec)
    return tuple(own or others), others[-1] if others else None


def _winograd(direct: TaskSpec) -> list[TaskSpec]:
    """The same convolution by Winograd's method, where it can be computed so."""
    data, weight, strides, padding, dilation, data_layout, out_layout, dtype = direct.arguments
    _, weight_shape, weight_dtype = weight
    chunks, in_chunks, kh, kw, block, lanes = weight_shape
    groups = data[1][1] * data[1][4] // (in_chunks * block)
    if not winograd.applies((kh, kw), strides, dilation, groups, str(dtype)):
        return []
    te = load_tvm().te
    placeholders = te.placeholder(data[1], data[2]), te.placeholder(weight_shape, weight_dtype)
    arguments = winograd.workload(*placeholders, padding, data_layout, out_layout, dtype)
    serialized = load_tvm().autotvm.task.task.serialize_args(arguments)
    return [TaskSpec(winograd.WINOGRAD, serialized)]


def anchor_of(occurrence: Occurrence) -> Operator:
    """The heavy op of a fused operator, alone."""
    relay = load_tvm().relay
    call = anchor_call(occurrence)
    variables = [relay.Var(f"x{i}", argument.checked_type) for i, argument in enumerate(call.args)]
    function = relay.Function(variables, relay.Call(call.op, variables, call.attrs))
    module = relay.transform.InferType()(load_tvm().IRModule.from_expr(function))
    constant = tuple(_is_weight(occurrence, argument) for argument in call.args)
    return dataclasses.replace(describe(module["main"], constant), name=occurrence.operator.anchor.replace(".", "_"))


def _is_weight(occurrence: Occurrence, argument: Any) -> bool:
    """Whether an argument is a parameter of the fused function for which the model passes a constant."""
    parameters = list(occurrence.function.params)
    constants = [p for p, constant in zip(parameters, occurrence.constant) if constant]
    return any(argument.same_as(p) for p in constants)
