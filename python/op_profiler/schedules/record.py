"""Which schedule the compiler took for each operator, noted while it compiles."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

from op_profiler.compiler import load_tvm
from op_profiler.operators._base import TensorSpec
from op_profiler.operators.extract import Occurrence, attributes, plain, signature
from op_profiler.schedules._base import Schedule


@dataclasses.dataclass
class _Choice:
    """An implementation, and its AutoTVM configuration: an object that the schedule fills in later."""

    template: str
    config: Any | None


class ScheduleRecord:
    """The choices of one compilation; ask after the compiler is done."""

    def __init__(self) -> None:
        self._choices: dict[str, _Choice] = {}

    def note(self, op: Any, attrs: Any, inputs: Any, target: Any, chosen: Any, outputs: Any) -> None:
        """Note one call of the compiler's `select_implementation`."""
        autotvm = load_tvm().autotvm
        workload = autotvm.task.get_workload(outputs)
        config = None
        if workload is not None:
            silent, autotvm.GLOBAL_SCOPE.silent = autotvm.GLOBAL_SCOPE.silent, True
            config = autotvm.task.DispatchContext.current.query(target, workload)
            autotvm.GLOBAL_SCOPE.silent = silent
        specs = [TensorSpec(tuple(_size(d) for d in t.shape), str(t.dtype)) for t in inputs]
        self._choices[signature(str(op.name), attributes(attrs), specs)] = _Choice(str(chosen.name), config)

    def schedule_of(self, occurrence: Occurrence) -> Schedule:
        """The schedule of an operator's anchor; TVM's injective schedule where the anchor has none of its own."""
        choice = self._choices.get(occurrence.anchor_signature)
        if choice is None:
            return Schedule("injective")
        return Schedule(choice.template, _knobs(choice.config))


def _size(dimension: Any) -> int:
    return int(dimension) if isinstance(dimension, (int, load_tvm().tir.IntImm)) else -1


def _knobs(config: Any | None) -> dict[str, Any]:
    """Knob values of an AutoTVM configuration, as plain values; a fallback's are those that its schedule filled in."""
    if config is None:
        return {}
    return {str(name): _knob_value(entity) for name, entity in config._entity_map.items()}


def _knob_value(entity: Any) -> Any:
    """Sizes of a split, order of a reorder, annotations, or the value of any other knob."""
    for field in ("size", "perm", "anns", "val"):
        if hasattr(entity, field):
            value = getattr(entity, field)
            return [plain(v) for v in value] if isinstance(value, (list, tuple)) else plain(value)
    return str(entity)


@contextlib.contextmanager
def recorded_schedules() -> Iterator[ScheduleRecord]:
    """Note every choice that the compiler makes inside this block."""
    load_tvm()
    from tvm.relay.backend import te_compiler

    record = ScheduleRecord()
    original = te_compiler.select_implementation

    def noting(op: Any, attrs: Any, inputs: Any, out_type: Any, target: Any, use_autotvm: bool = True) -> Any:
        chosen, outputs = original(op, attrs, inputs, out_type, target, use_autotvm)
        record.note(op, attrs, inputs, target, chosen, outputs)
        return chosen, outputs

    te_compiler.select_implementation = noting
    try:
        yield record
    finally:
        te_compiler.select_implementation = original
