"""The contract of a function that a rule can schedule: its knobs, their values, and how to apply them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from op_profiler.compilers.vectors import Vectors
    from op_profiler.schedules.factors import Factors
    from op_profiler.schedules.nest import Knobs


class SchedulableFunction(Protocol):
    """A TIR function to which a rule applies, and which can be scheduled once."""

    @property
    def schedule(self) -> Any:
        """Return the ``tvm.s_tir.Schedule``."""

    @property
    def knobs(self) -> Mapping[str, list[int]]:
        """Return the values of every knob by name; empty if sizes are known only at run time."""

    @property
    def default(self) -> Knobs:
        """Return the knob values that the rule chooses by default."""

    def is_valid(self, knobs: Knobs) -> bool:
        """Return whether these knob values are compatible, as far as it is known without scheduling."""

    def factors(self, knobs: Knobs) -> Factors:
        """Return the schedule factors of the dataset for these knob values."""

    def apply(self, knobs: Knobs, vectors: Vectors) -> None:
        """Schedule the function with these knob values.

        Raises:
            RuntimeError, ValueError, TypeError: the values are not compatible (`blocks.TVM_ERRORS`).
        """
