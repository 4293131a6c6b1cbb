"""`Limits`: when rounds stop, and how long disturbed rounds are repeated."""

from __future__ import annotations

import dataclasses
import os

from op_profiler.errors import UsageError

_FEWEST_ROUNDS, _SECONDS_OF_ROUNDS = 7, 4.0


def _patience_seconds() -> float:
    """Return the time limit for repeating disturbed rounds. A shared machine is never quiet, so waiting 20 seconds for
    every model may be useless there."""
    text = os.environ.get("OP_PROFILER_PATIENCE_SECONDS", "20")
    try:
        return max(float(text), 0.0)
    except ValueError:
        raise UsageError(f"OP_PROFILER_PATIENCE_SECONDS is {text!r}; give a number of seconds") from None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits that end the rounds.

    Attributes:
        target: relative half width of the interval of the median at which a time has converged.
        minimum_rounds: least number of rounds, however narrow the interval.
        usual_rounds, usual_seconds: if both are exceeded, rounds end without convergence.
        maximum_rounds: largest number of rounds.
        maximum_seconds: largest time, once `minimum_rounds` are done.
        window_seconds: shortest time over which background load is read.
        repeat_seconds: time for repeating rounds under background load or with disturbed cores, before they are
            accepted and marked; ``OP_PROFILER_PATIENCE_SECONDS``, otherwise 20.
        readings: runs of the whole model before the first and after the last round; fewer for a long model.
    """

    target: float = 0.01
    minimum_rounds: int = 11
    usual_rounds: int = 60
    usual_seconds: float = 3.0
    maximum_rounds: int = 1000
    maximum_seconds: float = 30.0
    window_seconds: float = 0.25
    repeat_seconds: float = dataclasses.field(default_factory=_patience_seconds)
    readings: int = 5

    def reached(self, rounds: int, seconds: float) -> bool:
        """Return whether rounds end although they have not converged."""
        if rounds < self.minimum_rounds:
            return False
        usual = rounds >= self.usual_rounds and seconds >= self.usual_seconds
        return usual or rounds >= self.maximum_rounds or seconds >= self.maximum_seconds

    def progress(self, rounds: int, seconds: float) -> float:
        """Return the completed share of the rounds that may be needed, 0 to 1."""
        usual = min(rounds / self.usual_rounds, seconds / self.usual_seconds)
        return min(max(usual, rounds / self.maximum_rounds, seconds / self.maximum_seconds), 1.0)

    def of_rounds(self, rounds: int | None) -> Limits:
        """Return limits of at most this many rounds: fewer once the times converge, from 7 rounds on, or if they take
        long.

        Repetitions are limited to the same time. If `rounds` is None, the limits do not change.
        """
        if rounds is None:
            return self
        fewest = min(rounds, _FEWEST_ROUNDS)
        return dataclasses.replace(
            self,
            minimum_rounds=fewest,
            maximum_rounds=rounds,
            maximum_seconds=_SECONDS_OF_ROUNDS,
            repeat_seconds=min(self.repeat_seconds, _SECONDS_OF_ROUNDS),
        )
