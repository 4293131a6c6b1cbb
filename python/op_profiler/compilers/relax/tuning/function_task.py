"""A task for one TIR function: the common part of all ways to schedule it."""

from __future__ import annotations

import abc
import functools
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from op_profiler.compilers.imported_model import InputSpec
from op_profiler.compilers.relax.tuning.workload import module_of
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.schedules.metaschedule_database import ANNOTATION, note_of
from op_profiler.tuning.reference import Reference
from op_profiler.tuning.task import BuiltPoint, Config, Task

if TYPE_CHECKING:
    from op_profiler.compilers.tvm_types import Target
    from op_profiler.tuning.candidate import TaskSpec

Knobs = Mapping[str, Any]


class FunctionTask(Task):
    """Search task for the schedules of one TIR function, which computes an anchor and the ops fused to it.

    Args:
        spec: spec whose arguments begin with the result of
            `op_profiler.compilers.relax.tuning.workload.arguments_of`, followed by the positions of the weights among
            the function's arguments.
    """

    def __init__(self, spec: TaskSpec, target: Target) -> None:
        self.spec = spec
        self._target = target
        self._module = module_of(spec.arguments)

    @abc.abstractmethod
    def _scheduled(self, knobs: Knobs) -> Any:
        """Return the ``tvm.s_tir.Schedule`` with these knobs, with its complete trace.

        Raises:
            InvalidPointError: the knobs are not compatible.
        """

    def config(self, point: int | None) -> Config:
        """Return the knobs as AutoTVM's entities, with the trace and the argument types that MetaSchedule stores."""
        knobs = self._values(point)
        return {
            "index": -1 if point is None else point,
            "entity": [[name, "ot", value] for name, value in knobs.items()],
            "trace": plain(self._noted(knobs).trace.as_json()),
            "args_info": self._kinds,
        }

    def build(self, point: int | None) -> BuiltPoint:
        """Compile the function under the schedule of a point; the function's last tensor is its output."""
        return self._built(self._noted(self._values(point)).mod)

    def reference(self) -> Reference:
        """Return random inputs, and the outputs of the unscheduled function for them."""
        tvm = load_tvm()
        built = self._built(self._module)
        rng = np.random.default_rng(0)
        *inputs, (shape, dtype) = built.tensors
        arrays = [InputSpec("", shape, dtype).random(rng) for shape, dtype in inputs]  # indices are within any axis
        tensors = [tvm.runtime.tensor(array) for array in arrays]
        output = tvm.runtime.empty(shape, dtype)
        built.function["main"](*tensors, output)
        weights = tuple(self.spec.arguments[3])
        return Reference(arrays, lambda place, _: arrays[place], lambda array: array, output.numpy(), weights)

    def _values(self, point: int | None) -> Knobs:
        return self.default().knobs if point is None else self.schedule(point).knobs

    def _noted(self, knobs: Knobs) -> Any:
        """Return a schedule whose trace has an annotation with its template and knobs."""
        schedule = self._scheduled(knobs)
        schedule.annotate(schedule.get_sblock("root"), ANNOTATION, note_of(self.spec.template, knobs))
        return schedule

    @functools.cached_property
    def _kinds(self) -> list[tuple[str, str, list[int]]]:
        """Return the arguments as MetaSchedule writes them: ``TENSOR``, dtype and shape of each."""
        ArgInfo = load_tvm().s_tir.meta_schedule.arg_info.ArgInfo
        return [plain(one.as_json()) for one in ArgInfo.from_prim_func(self._module["main"])]

    def _built(self, module: Any) -> BuiltPoint:
        function = load_tvm().tirx.build(module, target=self._target)
        tensors = tuple((tuple(shape), dtype) for _, dtype, shape in self._kinds)
        return BuiltPoint(function, tensors, len(tensors) - 1)


def plain(value: Any) -> Any:
    """Convert a JSON value of TVM to Python's types."""
    if isinstance(value, Mapping) or hasattr(value, "items"):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, str):
        return str(value)
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    number = getattr(value, "value", None)
    if isinstance(number, (bool, int, float)):
        return number
    return [plain(one) for one in value]
