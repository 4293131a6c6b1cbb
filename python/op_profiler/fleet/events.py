"""Events that workers and clients log at the scheduler, and the topics of these events."""

from __future__ import annotations

import time

import msgspec

from op_profiler.measure.turns import WAITING

PROGRESS = "op_profiler-progress"
"""Dask's topic of current activities; each event is an `Activity`."""
FINISHED = "op_profiler-finished"
"""Dask's topic of finished tasks; each event is a `TaskEnd`. The scheduler stores the last events."""
RUNS = "op_profiler-runs"
"""Dask's topic of the progress of clients; each event is a `ClientRun`."""
_EVERY_SECONDS = 1.0


class Activity(msgspec.Struct, frozen=True):
    """Current activity of a worker.

    Attributes:
        key: Dask's key of the task.
        host: name of the worker's machine.
        text: description for users; empty at the start of the task.
    """

    key: str
    host: str
    text: str = ""


class TaskEnd(msgspec.Struct, frozen=True):
    """A task that ended.

    Attributes:
        host_id: `FleetMachine.host_id` of the machine that carried it out; empty if no machine could.
        name: name of the task.
        seconds: duration of the task.
        error: why the result is missing or incomplete; None if it is complete.
        deviation: see `work.TaskOutcome`.
    """

    host_id: str
    name: str
    seconds: float
    error: str | None
    deviation: float | None


class ClientRun(msgspec.Struct, frozen=True):
    """Progress of the run of a client.

    Attributes:
        client: Dask's name of the client.
        done: number of finished tasks.
        of: number of all tasks; None if it is not known before the end of the run.
    """

    client: str
    done: int
    of: int | None


def log_event(topic: str, event: Activity | TaskEnd) -> None:
    """Log an event at the scheduler, which sends it to all listening clients; must be called in a worker."""
    from distributed import get_worker

    get_worker().log_event(topic, msgspec.to_builtins(event))


class Announcing:
    """A `Progress` of a task in a worker, which sends the steps to all clients of the scheduler.

    Args:
        host: name of this machine.

    Attributes:
        messages: notes and problems, which the task returns.
    """

    def __init__(self, host: str) -> None:
        from distributed import get_worker

        self.messages: list[str] = []
        self._host, self._key = host, str(get_worker().get_current_task())
        self._next = 0.0

    def start(self, models: int) -> None:
        """Do nothing, because a worker reports the progress of its task, not of models."""
        return

    def stop(self) -> None:
        """Do nothing, because the scheduler reports the end of a task."""
        return

    def note(self, text: str) -> None:
        """Add a note to `messages`, which the task returns."""
        self.messages.append(f"note: {text}")

    def problem(self, text: str) -> None:
        """Add a problem to `messages`, which the task returns."""
        self.messages.append(text)

    def step(self, description: str, done_models: float) -> None:
        """Report the current step at most once a second, so that reporting does not disturb measurements.

        A step that waits for another process is always reported, because it is reported once and may last long.
        """
        if time.monotonic() < self._next and WAITING not in description:
            return
        self._next = time.monotonic() + _EVERY_SECONDS
        self.report(description)

    def report(self, text: str = "") -> None:
        """Report what this worker is doing; an empty text means that the task has begun."""
        log_event(PROGRESS, Activity(self._key, self._host, text))
