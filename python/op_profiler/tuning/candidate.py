"""`Candidate` and `TrialResult`: one schedule to try, and its samples or failure."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    pass

Failure = Literal["invalid", "build", "timeout", "crash", "memory", "wrong", "run", "lost"]


@dataclasses.dataclass(frozen=True)
class TaskSpec:
    """One way to compute an operator: a template of the compiler and its arguments, as tuples and plain values."""

    template: str
    arguments: tuple[Any, ...]

    @functools.cached_property
    def key(self) -> str:
        """Template and arguments as text; equal for equal tasks."""
        return repr((self.template, self.arguments))


VENDOR = -1


@dataclasses.dataclass(frozen=True)
class Candidate:
    """One schedule to try.

    Attributes:
        task: template and arguments.
        index: point of the space of the `Task`; None: the schedule that the template uses without a record; `VENDOR`:
            the vendor's kernel for the same computation, which has no schedule.
    """

    task: TaskSpec
    index: int | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrialResult:
    """Result of one candidate: samples or an error.

    Attributes:
        samples_us: microseconds per call, each the mean of several calls; a single sample if `stopped_early`. Rounded
            to nanoseconds, as in the dataset, so that a resumed search passes the same values to its tuner.
        stopped_early: whether the first call was so much slower than the best candidate that no more calls were made.
        checked: whether the output was compared with a reference output by numpy.
        failure: kind of `error`; None if the trial succeeded.
        error: reason of the failure; None if the trial succeeded.
        build_seconds: duration of lowering and compiling, seconds.
        kernel: name of the fastest of the vendor's kernels; None if no vendor's kernels were timed.
        machine: address of the machine that timed the candidate; None if there is only one machine.
        foreign_load: whether there was background load; also False if the load was not read.
    """

    samples_us: tuple[float, ...] = ()
    stopped_early: bool = False
    checked: bool = False
    failure: Failure | None = None
    error: str | None = None
    build_seconds: float = 0.0
    kernel: str | None = None
    machine: str | None = None
    foreign_load: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "samples_us", tuple(round(float(sample), 3) for sample in self.samples_us))

    @property
    def median_us(self) -> float:
        """Median of the samples in microseconds; inf without samples."""
        ordered = sorted(self.samples_us)
        if not ordered:
            return float("inf")
        middle = len(ordered) // 2
        return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


class Runner(Protocol):
    """A service that builds and times candidates; a failure is returned as a `TrialResult`, not raised."""

    def run(self, candidates: Sequence[Candidate], best_us: float) -> list[TrialResult]:
        """Return one result for each candidate, in the same order.

        Args:
            best_us: time of the best candidate so far in microseconds, for stopping early; inf if there is none.
        """

    def compare(self, candidates: Sequence[Candidate], rounds: int) -> list[TrialResult]:
        """Return one result for each candidate; the candidates are timed alternately, once in each round.

        The state of the machine is therefore the same for all candidates.
        """
