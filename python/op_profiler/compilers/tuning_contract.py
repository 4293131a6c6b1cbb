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
"""The space of op_profiler's templates, which every compiler that tunes has."""


class TuningContract(abc.ABC):
    """The methods of a compiler that find the tunable operators of a model and create their tasks.

    Attributes:
        record_form: file format of its schedule records, `LINES` or `DATABASES` of `op_profiler.schedules.records`.
        tuner: default tuner, of `op_profiler.tuning.tuners`.
        spaces: spaces of schedules that it can search, the default first.
    """

    record_form: ClassVar[str] = ".jsonl"
    tuner: ClassVar[str] = "xgb_knob"
    spaces: ClassVar[tuple[str, ...]] = (TEMPLATES,)

    def tunables(
        self, model: ImportedModel, target: Target, keys: Collection[str] | None, space: str = TEMPLATES
    ) -> tuple[list[Tunable], list[Occurrence]]:
        """Return the tunable operators of a model, each anchor once, and all its operators. The model is not built.

        Args:
            keys: workload keys of the requested operators; None for all heavy ones.
            space: one of `spaces`.

        Raises:
            ModelError: this compiler does not tune.
        """
        raise ModelError("this compiler does not tune")

    @abc.abstractmethod
    def anchor(self, occurrence: Occurrence) -> Operator:
        """Return the part of an operator that a search tunes: its heavy op as a separate operator; for Relax, the whole
        operator."""

    def described_anchor(self, operator: Operator) -> Operator:
        """Return the heavy op of an operator of which only the description is known.

        Raises:
            ModelError: this compiler cannot derive the heavy op from a description.
        """
        raise ModelError(f"the heavy op of {operator.name} does not follow from its description")

    def own_tasks(self, anchor: Operator) -> tuple[TaskSpec, ...]:
        """Return the tasks of op_profiler's templates for an anchor, with the arguments that a build gives the
        templates; empty if no template fits."""
        return ()

    def prepare_search(self) -> None:
        """Import everything that is needed to build tasks; called once, before the processes that build are forked."""
        return

    def task(self, spec: TaskSpec, target: Target) -> Task:
        """Return a task with the space of its schedules, for a tuner and for the workers that build its points.

        Raises:
            ModelError: this compiler does not tune.
        """
        raise ModelError("this compiler does not tune")

    def tasks(self, occurrence: Occurrence, target: Target) -> tuple[TaskSpec, ...]:
        """Return the tasks of op_profiler's templates that can replace an operator's kernel in a built model."""
        return ()
