"""A kernel with the knobs of the rule that schedules it."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from op_profiler.compilers.relax.rules import SUFFIX, anchored
from op_profiler.compilers.relax.rules.blocks import TVM_ERRORS
from op_profiler.compilers.relax.rules.nest import Anchored, Knobs
from op_profiler.compilers.relax.tuning.workload import module_of
from op_profiler.compilers.relax.vectors import vectors_of
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.compilers.tvm_errors import last_line
from op_profiler.errors import ModelError
from op_profiler.schedules.metaschedule_database import ANNOTATION, note_of
from op_profiler.schedules.schedule import Schedule
from op_profiler.tuning.reference import Reference
from op_profiler.tuning.task import BuiltPoint, Config, InvalidPointError, Task

if TYPE_CHECKING:
    from op_profiler.compilers.tvm_types import Target
    from op_profiler.schedules.factors import Factors
    from op_profiler.tuning.candidate import TaskSpec


class KernelTask(Task):
    """The schedules of one function of TIR, what is fused to its anchor among it.

    Args:
        spec: of `op_profiler.compilers.relax.tuning.tunables.spec_of`.

    Raises:
        ModelError: the rule does not fit the function.
    """

    def __init__(self, spec: TaskSpec, target: Target) -> None:
        self.spec = spec
        self._target = target
        self._vectors = vectors_of(target)
        self._function = module_of(spec.arguments)["main"]
        self._nest = self._found().nest
        self.knobs = self._nest.knobs

    def is_valid(self, point: int) -> bool:
        return self._nest.is_valid(self._values(point))

    def factors(self, knobs: Mapping[str, Any]) -> Factors:
        return self._nest.factors(knobs)

    def default(self) -> Schedule:
        knobs = dict(self._nest.default)
        return Schedule(self.spec.template, knobs, "trial", self._nest.factors(knobs))

    def config(self, point: int | None) -> Config:
        knobs = self._values(point)
        return {
            "index": -1 if point is None else point,
            "entity": [[name, "ot", value] for name, value in knobs.items()],
            "trace": _plain(self._scheduled(knobs).trace.as_json()),
            "args_info": self._kinds,
        }

    def build(self, point: int | None) -> BuiltPoint:
        return self._built(self._scheduled(self._values(point)).mod)

    def reference(self) -> Reference:
        """Random inputs, and what the function makes of them before it is scheduled."""
        tvm = load_tvm()
        built = self._built(tvm.IRModule({"main": self._function}))
        rng = np.random.default_rng(0)
        *inputs, (shape, dtype) = built.tensors
        arrays = [rng.standard_normal(shape).astype(dtype) for shape, dtype in inputs]
        tensors = [tvm.runtime.tensor(array) for array in arrays]
        output = tvm.runtime.empty(shape, dtype)
        built.function["main"](*tensors, output)
        weights = tuple(self.spec.arguments[3])
        return Reference(arrays, lambda place, _: arrays[place], lambda array: array, output.numpy(), weights)

    @functools.cached_property
    def _kinds(self) -> list[tuple[str, str, list[int]]]:
        """Its arguments as MetaSchedule writes them: ``TENSOR``, dtype and shape each."""
        load_tvm()
        from tvm.s_tir.meta_schedule.arg_info import ArgInfo

        return [_plain(one.as_json()) for one in ArgInfo.from_prim_func(self._function)]

    def _values(self, point: int | None) -> Knobs:
        return self._nest.default if point is None else self.schedule(point).knobs

    def _found(self) -> Anchored:
        name = self.spec.template.removesuffix(SUFFIX)
        found = anchored(self._function, self._vectors, name)
        if found is None:
            raise ModelError(f"{self.spec.template} has no knobs for this function")
        return found[1]

    def _scheduled(self, knobs: Knobs) -> Any:
        """``tvm.s_tir.Schedule`` whose trace says which template and knobs it is of.

        Raises:
            InvalidPointError: the knobs do not go together.
        """
        found = self._found()
        try:
            found.apply(knobs, self._vectors)
        except TVM_ERRORS as error:
            raise InvalidPointError(last_line(error)) from error
        note = note_of(self.spec.template, knobs)
        found.schedule.annotate(found.schedule.get_sblock("root"), ANNOTATION, note)
        return found.schedule

    def _built(self, module: Any) -> BuiltPoint:
        function = load_tvm().tirx.build(module, target=self._target)
        tensors = tuple((tuple(shape), dtype) for _, dtype, shape in self._kinds)
        return BuiltPoint(function, tensors, len(tensors) - 1)


def _plain(value: Any) -> Any:
    """What TVM has for JSON, as Python has it."""
    if isinstance(value, Mapping) or hasattr(value, "items"):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, str):
        return str(value)
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    number = getattr(value, "value", None)
    if isinstance(number, (bool, int, float)):
        return number
    return [_plain(one) for one in value]
