"""`Limits`: when rounds stop, and how long disturbed rounds are repeated."""

from __future__ import annotations

import dataclasses
import os

from op_profiler.errors import UsageError

_FEWEST_ROUNDS, _SECONDS_OF_ROUNDS = 7, 4.0


def _patience_seconds() -> float:
    """Return the time limit for repeating disturbed rounds, in seconds: ``OP_PROFILER_PATIENCE_SECONDS`` or 20.

    On a shared machine, which is never quiet, waiting 20 seconds for every model may be useless.
    """
    text = os.environ.get("OP_PROFILER_PATIENCE_SECONDS", "20")
    try:
        return max(float(text), 0.0)
    except ValueError:
        raise UsageError(f"OP_PROFILER_PATIENCE_SECONDS is {text!r}; give a number of seconds") from None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits that end the rounds.

    Attributes:
        target: largest relative half width (half width of the median's interval, divided by the median) at which a time
            counts as converged.
        minimum_rounds: smallest number of rounds, however narrow the interval.
        usual_rounds, usual_seconds: if both are reached, rounds end even if the times have not converged.
        maximum_rounds: largest number of rounds.
        maximum_seconds: after this time, rounds end if there are at least `minimum_rounds`.
        window_seconds: shortest time over which background load is read.
        repeat_seconds: time for repeating rounds under background load or on disturbed cores; after it, such rounds are
            accepted and marked. The default is ``OP_PROFILER_PATIENCE_SECONDS``, or else 20.
        readings: number of runs of the whole model before the first and after the last round; fewer for a long model.
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
        """Return whether the rounds must end even if the times have not converged."""
        if rounds < self.minimum_rounds:
            return False
        usual = rounds >= self.usual_rounds and seconds >= self.usual_seconds
        return usual or rounds >= self.maximum_rounds or seconds >= self.maximum_seconds

    def progress(self, rounds: int, seconds: float) -> float:
        """Return the progress, 0 to 1, towards the limit that ends the rounds if the times do not converge."""
        usual = min(rounds / self.usual_rounds, seconds / self.usual_seconds)
        return min(max(usual, rounds / self.maximum_rounds, seconds / self.maximum_seconds), 1.0)

    def of_rounds(self, rounds: int | None) -> Limits:
        """Return a copy of the limits with at most this number of rounds; None: return the limits unchanged.

        Rounds also end when the times have converged (after 7 rounds at the earliest), or after 4 seconds. Disturbed
        rounds are repeated for at most 4 seconds, too.
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
