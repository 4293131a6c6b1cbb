"""Builds kernels of operators under schedules other than those of the model's build."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from op_profiler.building.build import build_operator
from op_profiler.compilers.compiler import compiler_in_use
from op_profiler.compilers.tvm_build import runtime_device
from op_profiler.errors import ModelError
from op_profiler.parallel.planning.plan import PlanError
from op_profiler.parallel.runtime.lane_executor import on_lanes
from op_profiler.schedules.records import Record
from op_profiler.schedules.usable_records import UsableRecords
from op_profiler.tuning.reference import unwritten_array
from op_profiler.tuning.task import InvalidPointError

if TYPE_CHECKING:
    from op_profiler.compilers.compiled_model import CompiledModel, Occurrence
    from op_profiler.compilers.tvm_types import PackedFunction
    from op_profiler.schedules.schedule import Schedule
    from op_profiler.tuning.task import Task

_ANY_SECONDS = 1e-9  # time of a record without a rival, so any value works
_TOLERANCE = 1e-4  # other schedules add in another order


class Variants:
    """Kernels of operators under other schedules, for lanes. Each kernel is built at its first request and cached.

    A kernel can replace another kernel if it reads and writes the same layouts. An operator is therefore built in the
    form of the compiled model, and only with op_profiler's own templates, whose knobs do not change layouts. Operators
    are identified by the compiler's hash (`Kernel.label`).

    Args:
        compiled: the models, compiled by `on_lanes`.
        target: TVM's target string.

    Attributes:
        tasks: function that takes the hash of an operator and returns a task for each of op_profiler's own templates
            that the compiler considers for the operator; empty if there are none.
    """

    tasks: Callable[[str], tuple[Task, ...]]

    def __init__(self, compiled: Sequence[CompiledModel], target: str) -> None:
        self._target = compiler_in_use().target(target)
        self._occurrences: dict[str, Occurrence] = {}
        self._own: dict[str, PackedFunction] = {}
        for one in compiled:
            for call in one.calls:
                self._occurrences[call.label] = one.by_label[call.label]
                self._own[call.label] = compiler_in_use().kernel(one, call.name)
        self._built: dict[tuple[str, str], PackedFunction] = {}
        self.tasks = functools.cache(self._tasks)

    def occurrence(self, label: str) -> Occurrence:
        """Return an operator in the form of the compiled model."""
        return self._occurrences[label]

    def function(self, label: str, schedule: Schedule) -> PackedFunction:
        """Return TVM's function for an operator under a schedule; it takes the same arrays as the model's own function.

        Raises:
            PlanError: the operator cannot be built with the schedule, or then computes wrong values; the message names
                the operator.
        """
        key = label, schedule.key
        if key not in self._built:
            self._built[key] = self._build(label, schedule)
        return self._built[key]

    def _tasks(self, label: str) -> tuple[Task, ...]:
        """Return the tasks of an operator; see the attribute `tasks`."""
        specs = compiler_in_use().tasks(self._occurrences[label], self._target)
        return tuple(compiler_in_use().task(spec, self._target) for spec in specs)

    def _build(self, label: str, schedule: Schedule) -> PackedFunction:
        occurrence = self._occurrences[label]
        what = f"{occurrence.operator.name} with the schedule {schedule.template} {schedule.knobs}"
        task = next((one for one in self.tasks(label) if one.spec.template == schedule.template), None)
        point = task.point(schedule.knobs) if task is not None else None
        if task is None or point is None:
            raise PlanError(f"there is no {what}: the template has no such knobs for it")
        spec = task.spec
        try:
            record = Record(str(self._target), spec.template, spec.arguments, task.config(point), (_ANY_SECONDS,))
            _, built = build_operator(occurrence, self._target, UsableRecords.only(record))
        except (ModelError, InvalidPointError) as error:
            raise PlanError(f"cannot build {what}: {error}") from error
        with tempfile.TemporaryDirectory(prefix="op_profiler-") as folder:
            compiled = on_lanes(built.compiled, Path(folder))
        (call,) = compiled.calls
        function = compiler_in_use().kernel(compiled, call.name)
        difference = self._difference(label, function)
        if not difference <= _TOLERANCE:
            raise PlanError(f"{what} computes something else: its error is {difference:.1e} of the largest value")
        return function

    def _difference(self, label: str, function: PackedFunction) -> float:
        """Return the largest difference between the outputs of a function and of the kernel in the model's build.

        Both get the same random inputs; the difference is relative to the largest output of the build's kernel.
        """
        compiler, device = compiler_in_use(), runtime_device(self._target)
        occurrence = self._occurrences[label]
        rng = np.random.default_rng(0)
        specs = compiler.single_operator(occurrence).inputs
        inputs = [compiler.array_on(spec.random(rng), device) for spec in specs]
        found = []
        for one in (self._own[label], function):
            unwritten = [unwritten_array(spec.shape, spec.dtype) for spec in occurrence.operator.outputs]
            outputs = [compiler.array_on(array, device) for array in unwritten]
            one(*inputs, *outputs)
            found.append(np.concatenate([output.numpy().ravel().astype(np.float64) for output in outputs]))
        own, new = found
        return float(np.abs(own - new).max(initial=0.0)) / (float(np.abs(own).max(initial=0.0)) or 1.0)
