"""A kernel with the knobs of the rule that schedules it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from op_profiler.compilers.relax.rules import SUFFIX, template_of
from op_profiler.compilers.relax.rules.blocks import TVM_ERRORS
from op_profiler.compilers.relax.rules.template import SchedulableFunction
from op_profiler.compilers.relax.tuning.function_task import FunctionTask, Knobs
from op_profiler.compilers.relax.vectors import vectors_of
from op_profiler.compilers.tvm_errors import last_line
from op_profiler.errors import ModelError
from op_profiler.schedules.schedule import Schedule
from op_profiler.tuning.task import InvalidPointError

if TYPE_CHECKING:
    from op_profiler.compilers.tvm_types import Target
    from op_profiler.schedules.factors import Factors
    from op_profiler.tuning.candidate import TaskSpec


class KernelTask(FunctionTask):
    """Search task of a function: its space is the knobs of the rule that schedules the function by default.

    Args:
        spec: result of `op_profiler.compilers.relax.tuning.tunables.spec_of`.

    Raises:
        ModelError: the rule does not fit the function.
    """

    def __init__(self, spec: TaskSpec, target: Target) -> None:
        super().__init__(spec, target)
        self._vectors = vectors_of(target)
        self._template = self._find_template()
        self.knobs = self._template.knobs

    def is_valid(self, point: int) -> bool:
        """Return whether the rule accepts the knob values of a point, for example because the register tile fits;
        nothing is scheduled."""
        return self._template.is_valid(self._values(point))

    def factors(self, knobs: Mapping[str, Any]) -> Factors:
        """Return the schedule factors of knob values, as the rule defines them."""
        return self._template.factors(knobs)

    def default(self) -> Schedule:
        """Return the schedule that the rule chooses without a record."""
        knobs = dict(self._template.default)
        return Schedule(self.spec.template, knobs, "trial", self._template.factors(knobs))

    def _find_template(self) -> SchedulableFunction:
        name = self.spec.template.removesuffix(SUFFIX)
        found = template_of(self._module["main"], self._vectors, name)
        if found is None:
            raise ModelError(f"{self.spec.template} has no knobs for this function")
        return found

    def _scheduled(self, knobs: Knobs) -> Any:
        found = self._find_template()
        try:
            found.apply(knobs, self._vectors)
        except TVM_ERRORS as error:
            raise InvalidPointError(last_line(error)) from error
        return found.schedule
