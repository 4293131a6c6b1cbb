"""The contract of an executor, which runs models by a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from op_profiler.compilers.tvm_types import PackedFunction

Inputs = Sequence[dict[str, np.ndarray]]
"""For each model, one array per input, by name."""


class Executor(Protocol):
    """Models loaded to be run by a plan: a context manager for one thread, whose end frees everything."""

    def __enter__(self) -> Executor: ...

    def __exit__(self, *_: object) -> None: ...

    def run(self) -> None:
        """Run all models once.

        Raises:
            MeasureError: a kernel failed; the message names it. Later kernels are not run, and no kernel is running.
        """

    def use(self, functions: Mapping[int, PackedFunction]) -> None:
        """From the next run on, call these functions for the given nodes, and their own functions for the others."""

    def outputs(self) -> list[np.ndarray]:
        """Return the outputs of the last run, model after model."""

    def timeline_us(self) -> np.ndarray:
        """Return start and end of every operator, from the first start; shape (nodes, 2). Call `run` before."""

    def bound_to(self) -> dict[int, int | None]:
        """Return, for every core of the plan, the core to which its kernels are bound, as the system reports it; None:
        not bound."""

    def not_recorded(self) -> str | None:
        """Return why the kernels of the last run were launched one by one; None without launches, or if all were
        launched as one."""

    def ran_on(self) -> np.ndarray:
        """Return the core of every operator in the last run; shape (nodes,)."""

    def threads_used(self) -> np.ndarray:
        """Return the effective thread count of every operator in the last run, which may be lower than planned; shape
        (nodes,)."""
