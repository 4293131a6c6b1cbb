"""Records the schedule that the compiler chooses for each operator while it compiles."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

from op_profiler.compilers.compiled_model import Occurrence
from op_profiler.compilers.relay import remainders, vector_math
from op_profiler.compilers.relay.extract import attributes
from op_profiler.compilers.relay.knobs import factors_of, knob_values
from op_profiler.compilers.relay.lower import quiet
from op_profiler.compilers.relay.processor_defaults import BY_RULE
from op_profiler.compilers.relay_rewriting import calls_in
from op_profiler.compilers.tvm_build import load_tvm, replaced
from op_profiler.compilers.tvm_types import Call, Target
from op_profiler.operators.cost import HEAVY
from op_profiler.operators.describe import signature
from op_profiler.operators.operator import TensorSpec
from op_profiler.schedules.schedule import Origin, Schedule

LOOPS_BY_RULE = (vector_math, remainders)
"""What the rule changes in kernels that keep TVM's schedule."""


@dataclasses.dataclass
class _Choice:
    """An implementation, and its AutoTVM configuration: an object that the schedule fills in later."""

    template: str
    config: Any | None
    tasks: list[tuple[str, tuple[Any, ...]]]


class ChosenSchedules:
    """The implementations and schedules that the compiler chose in one compilation; complete when that compilation has
    finished."""

    def __init__(self, *, by_rule: bool = False) -> None:
        self._by_rule = by_rule
        self._choices: dict[str, _Choice] = {}

    def note(
        self,
        op: Any,
        attrs: Any,
        inputs: Any,
        target: Target,
        chosen: Any,
        outputs: Any,
        tasks: list[tuple[str, tuple[Any, ...]]],
    ) -> None:
        """Record one call of the compiler's `select_implementation`, with its AutoTVM tasks."""
        autotvm = load_tvm().autotvm
        workload = _workload(outputs, inputs)
        config = None
        if workload is not None:
            with replaced(autotvm.GLOBAL_SCOPE, "silent", True):
                config = autotvm.task.DispatchContext.current.query(target, workload)
        specs = [TensorSpec(tuple(_size(d) for d in t.shape), str(t.dtype)) for t in inputs]
        self._choices[signature(str(op.name), attributes(attrs), specs)] = _Choice(str(chosen.name), config, tasks)

    def schedule_of(self, occurrence: Occurrence) -> Schedule:
        """Return the schedule of an operator's anchor; TVM's injective schedule if the anchor has no other."""
        choice = self._choices.get(occurrence.anchor_signature)
        found = Schedule("injective") if choice is None else _schedule(choice)
        changed = any(changed.concerns([occurrence.operator]) for changed in LOOPS_BY_RULE)
        ruled = self._by_rule and found.origin == "default" and changed
        return dataclasses.replace(found, origin="rule") if ruled else found

    def tasks_of(self, occurrence: Occurrence) -> list[tuple[str, tuple[Any, ...]]]:
        """Return the AutoTVM tasks, name and arguments, of the implementations that the compiler considered for an
        operator."""
        choice = self._choices.get(occurrence.anchor_signature)
        return [] if choice is None else choice.tasks

    def weigh(self, occurrence: Occurrence, target: Target) -> None:
        """Make the compiler choose an implementation for an operator's anchor, without compiling it."""
        tvm = load_tvm()
        te_compiler = tvm.relay.backend.te_compiler
        call = anchor_call(occurrence)
        inputs = [
            tvm.te.placeholder(te_compiler.get_shape(t.checked_type.shape), t.checked_type.dtype) for t in call.args
        ]
        with target:
            te_compiler.select_implementation(call.op, call.attrs, inputs, call.checked_type, target)


def weigh_all(occurrences: Iterable[Occurrence], target: Target, *, by_rule: bool) -> ChosenSchedules:
    """Make the compiler choose the schedules of all operators as in a build, without compiling; return its choices.

    Args:
        by_rule: as in `chosen_schedules`.
    """
    with quiet(), chosen_schedules(by_rule=by_rule) as choices:
        for occurrence in {o.operator.key: o for o in occurrences}.values():
            if occurrence.operator.anchor in HEAVY:
                with contextlib.suppress(Exception):  # an operator that fails here does not build either
                    choices.weigh(occurrence, target)
    return choices


def anchor_call(occurrence: Occurrence) -> Call:
    """Return the call of the anchor in a fused function; the first call if the anchor's op occurs several times."""
    calls = calls_in(occurrence.function.body)
    found: Call = [call for call in calls if getattr(call.op, "name", None) == occurrence.operator.anchor][0]
    return found


def _workload(outputs: Any, inputs: Any) -> Any | None:
    """Return the AutoTVM workload of the computation that an implementation created, not of its inputs."""
    waiting = [tensor.op for tensor in outputs]
    before = [tensor.op for tensor in inputs]
    while waiting:
        op = waiting.pop()
        if any(op.same_as(other) for other in before):
            continue
        if "workload" in op.attrs:
            return load_tvm().autotvm.task.args_to_workload(op.attrs["workload"])
        waiting += [tensor.op for tensor in op.input_tensors]
    return None


def _schedule(choice: _Choice) -> Schedule:
    knobs = knob_values(choice.config)
    return Schedule(choice.template, knobs, _origin(choice.config), factors_of(choice.config, knobs))


def _origin(config: Any | None) -> Origin:
    if config is None or config.is_fallback:
        return "default"
    return "rule" if config.cost >= BY_RULE else "tuned"


def _size(dimension: Any) -> int:
    return int(dimension) if isinstance(dimension, (int, load_tvm().tir.IntImm)) else -1


@contextlib.contextmanager
def chosen_schedules(*, by_rule: bool = False) -> Iterator[ChosenSchedules]:
    """Record every choice that the compiler makes inside this block.

    Args:
        by_rule: whether the compiler uses the rule of ``--schedules rule``, also for functions of the math library.
    """
    tvm = load_tvm()
    te_compiler = tvm.relay.backend.te_compiler
    record = ChosenSchedules(by_rule=by_rule)
    original = te_compiler.select_implementation

    def noting(op: Any, attrs: Any, inputs: Any, out_type: Any, target: Target, use_autotvm: bool = True) -> Any:
        env = tvm.autotvm.task.topi_integration.TaskExtractEnv.get()
        env.reset()
        with replaced(env, "tracing", True):
            chosen, outputs = original(op, attrs, inputs, out_type, target, use_autotvm)
        record.note(op, attrs, inputs, target, chosen, outputs, list(env.get_tasks()))
        return chosen, outputs

    with replaced(te_compiler, "select_implementation", noting):
        yield record
