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
    """One way to compute something: a template of the compiler's and its arguments, as tuples and plain values."""

    template: str
    arguments: tuple[Any, ...]

    @functools.cached_property
    def key(self) -> str:
        """The workload as text; equal for equal tasks."""
        return repr((self.template, self.arguments))


VENDOR = -1


@dataclasses.dataclass(frozen=True)
class Candidate:
    """One schedule to try.

    Attributes:
        index: point of the space of the `Task`; None is the schedule that the template takes without a record,
            `VENDOR` is no schedule but the vendor's kernel for the same computation.
    """

    task: TaskSpec
    index: int | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrialResult:
    """Result of one candidate: samples or an error.

    Attributes:
        samples_us: microseconds per call, each the mean of several calls; a single one where `stopped_early`. In whole
            nanoseconds, as the dataset keeps them: a search that is resumed tells its tuner what the first one told it.
        stopped_early: the first call took so much longer than the best candidate that no more were made.
        checked: whether the output was compared with numpy's.
        failure: kind of `error`.
        error: what went wrong, with numbers where there are any.
        build_seconds: time that lowering and compiling took.
        kernel: of the vendor's kernels the one that was timed.
        machine: of several machines the address of the one that timed it.
        foreign_load: whether others used the machine meanwhile; False also where that was not read.
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
        """Median of the samples; inf where there are none."""
        ordered = sorted(self.samples_us)
        if not ordered:
            return float("inf")
        middle = len(ordered) // 2
        return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


class Runner(Protocol):
    """Builds and times candidates; failures are results."""

    def run(self, candidates: Sequence[Candidate], best_us: float) -> list[TrialResult]:
        """One result a candidate, in the same order.

        Args:
            best_us: the best so far, for stopping early; inf where there is none.
        """

    def compare(self, candidates: Sequence[Candidate], rounds: int) -> list[TrialResult]:
        """Time candidates in turns, one call of each a round, so that all meet the same machine."""
