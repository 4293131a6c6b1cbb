"""The contract of a tuner, in AutoTVM's terms: `autotvm.tuner.Tuner` and its subclasses are of it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Protocol

from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.tuning.tuners import TUNERS


class Tuner(Protocol):
    """Walks the space of one task, each point at most once. It learns from what became of its proposals."""

    def has_next(self) -> bool:
        """Whether there is a point left to propose."""

    def next_batch(self, batch_size: int) -> Sequence[Any]:
        """At most so many `autotvm.task.space.ConfigEntity` of the task's space; fewer where it ends."""

    def update(self, inputs: Sequence[Any], results: Sequence[Any]) -> None:
        """Learn from the last proposals.

        Args:
            inputs: `autotvm.measure.MeasureInput`, one a proposal.
            results: `autotvm.measure.MeasureResult`, one a proposal; costs in seconds, 1e9 for a failure.
        """


class TunerFactory(Protocol):
    """Makes a tuner for an `autotvm.task.Task`."""

    def __call__(self, task: Any, seed: int) -> Tuner:
        """The same seed gives the same proposals for the same results. Python's and numpy's global generators have this
        seed already: AutoTVM draws from them."""


def make_tuner(name: str, task: Any, seed: int) -> Tuner:
    """The tuner of a name for a task.

    Raises:
        UnknownNameError: there is none of this name.
    """
    factory = TUNERS.get(name)
    load_tvm()
    import numpy as np

    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    return factory(task, seed)
