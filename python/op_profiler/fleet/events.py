"""Events that workers and clients log at the scheduler, and their topics."""

from __future__ import annotations

import time

import msgspec

from op_profiler.measure.turns import WAITING

PROGRESS = "op_profiler-progress"
"""Dask's topic of events of a moment, a `Doing` each."""
FINISHED = "op_profiler-finished"
"""Dask's topic of what workers have done, a `Done` each; the scheduler keeps the last ones."""
RUNS = "op_profiler-runs"
"""Dask's topic of what clients say of their runs, a `ClientRun` each."""
_EVERY_SECONDS = 1.0


class Doing(msgspec.Struct, frozen=True):
    """What a worker is doing.

    Attributes:
        key: of the task, as Dask names it.
        text: for people; empty when it begins.
    """

    key: str
    host: str
    text: str = ""


class Done(msgspec.Struct, frozen=True):
    """A task that ended.

    Attributes:
        host_id: of the machine that did it; empty where none could.
        error: why it did not do all that was asked for; None where it did.
        deviation: see `work.Finished`.
    """

    host_id: str
    name: str
    seconds: float
    error: str | None
    deviation: float | None


class ClientRun(msgspec.Struct, frozen=True):
    """How far a client is.

    Attributes:
        client: Dask's name of it.
        done: tasks.
        of: tasks in all; None where that is not known before the end.
    """

    client: str
    done: int
    of: int | None


def tell(topic: str, event: Doing | Done) -> None:
    """Let the scheduler, and whoever listens to it, know; runs in a worker."""
    from distributed import get_worker

    get_worker().log_event(topic, msgspec.to_builtins(event))


class Announcing:
    """Progress of a collection, sent to all clients of the scheduler.

    Args:
        host: this machine's name.
    """

    def __init__(self, host: str) -> None:
        from distributed import get_worker

        self.messages: list[str] = []
        self._host, self._key = host, str(get_worker().get_current_task())
        self._next = 0.0

    def start(self, models: int) -> None:
        """Do nothing: progress is reported per task."""
        return

    def stop(self) -> None:
        """Do nothing: the scheduler reports the end of a task."""
        return

    def note(self, text: str) -> None:
        """Keep a note in `messages`, which the task returns."""
        self.messages.append(f"note: {text}")

    def problem(self, text: str) -> None:
        """Keep a problem in `messages`, which the task returns."""
        self.messages.append(text)

    def step(self, description: str, done_models: float) -> None:
        """At most once a second, so that telling it takes no time from what is measured. That it waits for somebody is
        said once, and may be the last word for long: it is always told."""
        if time.monotonic() < self._next and WAITING not in description:
            return
        self._next = time.monotonic() + _EVERY_SECONDS
        self.tell(description)

    def tell(self, text: str = "") -> None:
        """What this worker is doing; empty: it has begun."""
        tell(PROGRESS, Doing(self._key, self._host, text))
