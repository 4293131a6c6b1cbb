"""The contract of an executor, which runs models by a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from op_profiler.compilers.tvm_types import PackedFunction

Inputs = Sequence[dict[str, np.ndarray]]
"""Of each model, one array per input, by name."""


class Executor(Protocol):
    """Models, loaded to be run by a plan. It is a context and is used from one thread; its end frees all it holds."""

    def __enter__(self) -> Executor: ...

    def __exit__(self, *_: object) -> None: ...

    def run(self) -> None:
        """All models once.

        Raises:
            MeasureError: a kernel failed; names it. What was to run after it was left out, and nothing runs on.
        """

    def use(self, functions: Mapping[int, PackedFunction]) -> None:
        """From the next run on call these functions for the nodes that are named, and for the others their own."""

    def outputs(self) -> list[np.ndarray]:
        """Of the last run, model after model."""

    def timeline_us(self) -> np.ndarray:
        """Start and end of every operator, from the first start; shape (nodes, 2). Run before."""

    def bound_to(self) -> dict[int, int | None]:
        """For every core of the plan the one that its kernels are bound to, as the system tells; None: to none."""

    def not_recorded(self) -> str | None:
        """Why the kernels of the last run were launched one by one; None where they are not launched, or all as one."""

    def ran_on(self) -> np.ndarray:
        """The core that every operator of the last run had; shape (nodes,)."""

    def threads_used(self) -> np.ndarray:
        """How many threads every operator of the last run had, which may be fewer than planned; shape (nodes,)."""
