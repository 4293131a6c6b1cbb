"""Finds the AutoTVM tasks that can compute the anchor of an operator."""

from __future__ import annotations

import dataclasses

from op_profiler.compilers.compiled_model import Occurrence
from op_profiler.compilers.relay.chosen import ChosenSchedules, anchor_call
from op_profiler.compilers.relay.extract import describe
from op_profiler.compilers.relay.templates import TEMPLATES
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.compilers.tvm_types import Node
from op_profiler.operators.operator import Operator
from op_profiler.schedules.schedule import OWN_TEMPLATE
from op_profiler.tuning.candidate import TaskSpec
from op_profiler.tuning.tunable import Tunable


def tunables(occurrences: list[Occurrence], choices: ChosenSchedules) -> list[Tunable]:
    """Return the tunable anchors of operators, each once.

    Args:
        occurrences: the requested operators.
        choices: for these operators, the implementations that the compiler considered and the one that it chose.
    """
    found: dict[str, Tunable] = {}
    for occurrence in occurrences:
        operator = occurrence.operator
        anchor = anchor_of(occurrence)
        others = [TaskSpec(name, arguments) for name, arguments in choices.tasks_of(occurrence)]
        others = [spec for spec in others if not spec.template.endswith(OWN_TEMPLATE)]
        tasks = own_tasks(anchor) or tuple(others)
        if not tasks:
            continue
        known = found.get(anchor.key)
        operators = (*(known.operators if known else ()), operator.key)
        taken = choices.schedule_of(occurrence).template  # of all that were weighed
        default = next((spec for spec in others if spec.template == taken), others[-1] if others else None)
        found[anchor.key] = Tunable(anchor, tasks, default, tuple(dict.fromkeys(operators)))
    return list(found.values())


def own_tasks(anchor: Operator) -> tuple[TaskSpec, ...]:
    """See `Compiler.own_tasks`."""
    found = [task for _, template in TEMPLATES.available() for task in template.tasks(anchor)]
    return tuple(TaskSpec(name, arguments) for name, arguments in found)


def anchor_of(occurrence: Occurrence) -> Operator:
    """Return the heavy op of a fused operator as a separate operator."""
    relay = load_tvm().relay
    call = anchor_call(occurrence)
    variables = [relay.Var(f"x{i}", argument.checked_type) for i, argument in enumerate(call.args)]
    function = relay.Function(variables, relay.Call(call.op, variables, call.attrs))
    module = relay.transform.InferType()(load_tvm().IRModule.from_expr(function))
    constant = tuple(_is_weight(occurrence, argument) for argument in call.args)
    return dataclasses.replace(describe(module["main"], constant), name=occurrence.operator.anchor.replace(".", "_"))


def _is_weight(occurrence: Occurrence, argument: Node) -> bool:
    """Return whether an argument is a parameter of the fused function for which the model passes a constant."""
    parameters = list(occurrence.function.params)
    constants = [p for p, constant in zip(parameters, occurrence.constant) if constant]
    return any(argument.same_as(p) for p in constants)
