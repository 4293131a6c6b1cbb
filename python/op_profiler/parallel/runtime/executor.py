"""`Executor`, the interface of executors, which run models by a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from op_profiler.compilers.tvm_types import PackedFunction

Inputs = Sequence[dict[str, np.ndarray]]
"""For each model, the arrays of its inputs, by name."""


class Executor(Protocol):
    """Models that are loaded to be run by a plan.

    An executor is a context manager for use by one thread; at its end, it frees all resources.
    """

    def __enter__(self) -> Executor: ...

    def __exit__(self, *_: object) -> None: ...

    def run(self) -> None:
        """Run all models once.

        Raises:
            MeasureError: a kernel failed; the message names it. Later kernels are not run, and no kernel is running.
        """

    def use(self, functions: Mapping[int, PackedFunction]) -> None:
        """From the next run on, call these functions for the given nodes, and the model's functions for all others."""

    def outputs(self) -> list[np.ndarray]:
        """Return the outputs of the last run, model after model."""

    def timeline_us(self) -> np.ndarray:
        """Return start and end of every operator, microseconds from the first start, shape (nodes, 2).

        Call `run` before.
        """

    def bound_to(self) -> dict[int, int | None]:
        """Return for every core of the plan the core to which its lane is bound, as the system reports it.

        The value is None for a lane that is not bound to one core.
        """

    def not_recorded(self) -> str | None:
        """Return why the kernels on a GPU are launched one by one and not as a recorded CUDA graph.

        The result is None if they are launched as a graph, and on a processor.
        """

    def ran_on(self) -> np.ndarray:
        """Return the core (on a GPU: the stream) of every operator in the last run, shape (nodes,)."""

    def threads_used(self) -> np.ndarray:
        """Return the effective thread count of every operator in the last run, shape (nodes,).

        It may be lower than planned.
        """
