"""The part of a compiler's contract that a search for schedules needs: tunable operators and their tasks."""

from __future__ import annotations

import abc
from collections.abc import Collection
from typing import TYPE_CHECKING, ClassVar

from op_profiler.errors import ModelError

if TYPE_CHECKING:
    from op_profiler.compilers.compiled_model import Occurrence
    from op_profiler.compilers.imported_model import ImportedModel
    from op_profiler.compilers.tvm_types import Target
    from op_profiler.operators.operator import Operator
    from op_profiler.tuning.candidate import TaskSpec
    from op_profiler.tuning.task import Task
    from op_profiler.tuning.tunable import Tunable

TEMPLATES = "templates"
"""The space of this project's templates, which every compiler that tunes has."""


class TuningContract(abc.ABC):
    """What can be tuned in a model, and the tasks of it.

    Attributes:
        record_form: how its schedule records lie in files, `LINES` or `DATABASES` of `op_profiler.schedules.records`.
        tuner: of `op_profiler.tuning.tuners`, that searches where the user names none.
        spaces: of schedules that it can search, the usual one first.
    """

    record_form: ClassVar[str] = ".jsonl"
    tuner: ClassVar[str] = "xgb_knob"
    spaces: ClassVar[tuple[str, ...]] = (TEMPLATES,)

    def tunables(
        self, model: ImportedModel, target: Target, keys: Collection[str] | None, space: str = TEMPLATES
    ) -> tuple[list[Tunable], list[Occurrence]]:
        """What can be tuned in a model, each anchor once, without building it; and all operators.

        Args:
            keys: workload keys of the operators that are asked for; None for all that are heavy.
            space: one of `spaces`.

        Raises:
            ModelError: it does not tune.
        """
        raise ModelError("this compiler does not tune")

    @abc.abstractmethod
    def anchor(self, occurrence: Occurrence) -> Operator:
        """The heavy op of an operator, as an operator of its own."""

    def described_anchor(self, operator: Operator) -> Operator:
        """The heavy op of an operator of which nothing but its description is at hand.

        Raises:
            ModelError: this compiler does not tell it from a description.
        """
        raise ModelError(f"the heavy op of {operator.name} is not told by its description")

    def own_tasks(self, anchor: Operator) -> tuple[TaskSpec, ...]:
        """This project's templates for an anchor, with the arguments that a build gives them; empty where there are
        none."""
        return ()

    def prepare_search(self) -> None:
        """Import what building tasks needs, once, before the processes that do it are forked."""
        return

    def task(self, spec: TaskSpec, target: Target) -> Task:
        """A task with the space of its schedules, for a tuner and for the workers that build its points.

        Raises:
            ModelError: it does not tune.
        """
        raise ModelError("this compiler does not tune")

    def tasks(self, occurrence: Occurrence, target: Target) -> tuple[TaskSpec, ...]:
        """This project's templates that can take the place of an operator's kernel as it stands in a built model."""
        return ()
