"""Tasks of a run and their state between the client and the workers."""

from __future__ import annotations

import dataclasses

from op_profiler.errors import EXIT_ENVIRONMENT
from op_profiler.fleet.machine import FleetMachine
from op_profiler.fleet.needs import Needs
from op_profiler.fleet.tasks import Answer, Task


@dataclasses.dataclass(frozen=True)
class Ended:
    """A task that is over.

    Attributes:
        index: of the task among those that were handed out; with `each`, of the task and its device.
        machine: that did it; None where none could.
        answer: None for a failure.
        error, error_code: why there is no answer.
    """

    index: int
    task: Task
    machine: FleetMachine | None = None
    answer: Answer | None = None
    error: str = ""
    error_code: int = EXIT_ENVIRONMENT


@dataclasses.dataclass
class Job:
    """A task on its way.

    Attributes:
        needs: what a worker has to have.
        stored: machines of which the dataset has it, by `Device.identity`; one of them is enough.
        deaths: workers that died while they carried it out.
        lost: workers that died while they had it, though they may not have begun it.
        told_to_end: workers that ended in order while they had it.
        drifted: machines that drifted while they did, by `FleetMachine.host_id`.
        failed_on: machines that it failed on for reasons of their own, likewise.
    """

    index: int
    task: Task
    needs: Needs
    stored: frozenset[str] = frozenset()
    deaths: int = 0
    lost: int = 0
    told_to_end: int = 0
    drifted: set[str] = dataclasses.field(default_factory=set)
    failed_on: set[str] = dataclasses.field(default_factory=set)
