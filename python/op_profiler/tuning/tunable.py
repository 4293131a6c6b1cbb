"""`Tunable`: the anchor of operators that can be tuned, with its tasks."""

from __future__ import annotations

import dataclasses

from op_profiler.operators.operator import Operator
from op_profiler.tuning.candidate import TaskSpec


@dataclasses.dataclass(frozen=True)
class Tunable:
    """The anchor of one or more operators, and the ways to compute it.

    Attributes:
        anchor: what trials are measurements of: the heavy op alone, as an operator of its own, or a whole operator.
        tasks: templates to search; the project's own, or TVM's where it has none for this op.
        default: the task whose template the compiler takes without records; None where that is none that can be tuned.
        operators: workload keys of the fused operators that hold it.
    """

    anchor: Operator
    tasks: tuple[TaskSpec, ...]
    default: TaskSpec | None
    operators: tuple[str, ...]

    @property
    def specs(self) -> tuple[TaskSpec, ...]:
        """All tasks that compute the anchor."""
        return tuple(dict.fromkeys((*self.tasks, *([self.default] if self.default is not None else []))))
