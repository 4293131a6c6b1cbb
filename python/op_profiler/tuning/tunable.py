"""`Tunable`: the anchor of operators that a search can tune, with its tasks."""

from __future__ import annotations

import dataclasses

from op_profiler.operators.operator import Operator
from op_profiler.tuning.candidate import TaskSpec


@dataclasses.dataclass(frozen=True)
class Tunable:
    """The anchor of one or more operators, and the ways to compute it.

    Attributes:
        anchor: the operator that trials measure: the heavy op as a separate operator, or a whole fused operator.
        tasks: tasks to search: those of the project's templates, or those of TVM's templates if the project has no
            template for the op.
        default: task whose template the compiler uses without records; None if that template cannot be tuned.
        operators: workload keys of the fused operators that contain the anchor.
    """

    anchor: Operator
    tasks: tuple[TaskSpec, ...]
    default: TaskSpec | None
    operators: tuple[str, ...]

    @property
    def specs(self) -> tuple[TaskSpec, ...]:
        """All tasks that compute the anchor: `tasks` and `default`, without duplicates."""
        return tuple(dict.fromkeys((*self.tasks, *([self.default] if self.default is not None else []))))
