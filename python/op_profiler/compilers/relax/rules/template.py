"""The contract of a function that a rule can schedule: its knobs, their values, and how they are applied."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from op_profiler.compilers.vectors import Vectors
    from op_profiler.schedules.factors import Factors
    from op_profiler.schedules.nest import Knobs


class SchedulableFunction(Protocol):
    """A function of TIR that was looked at and is ready to be scheduled, once."""

    @property
    def schedule(self) -> Any:
        """``tvm.s_tir.Schedule``."""

    @property
    def knobs(self) -> Mapping[str, list[int]]:
        """By name the values of every knob; none where sizes are known at run time only."""

    @property
    def default(self) -> Knobs:
        """The values that the rule chooses."""

    def is_valid(self, knobs: Knobs) -> bool:
        """Whether these values go together, as far as that is known without scheduling."""

    def factors(self, knobs: Knobs) -> Factors:
        """What these values do, in the words of the dataset."""

    def apply(self, knobs: Knobs, vectors: Vectors) -> None:
        """Schedule the function by these values.

        Raises:
            RuntimeError, ValueError, TypeError: they do not go together (`blocks.TVM_ERRORS`).
        """
