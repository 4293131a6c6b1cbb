"""Tasks of a run and their state between the client and the workers."""

from __future__ import annotations

import dataclasses

from op_profiler.errors import EXIT_ENVIRONMENT
from op_profiler.fleet.machine import FleetMachine
from op_profiler.fleet.needs import Needs
from op_profiler.fleet.tasks import Answer, Task


@dataclasses.dataclass(frozen=True)
class EndedTask:
    """A task that is over.

    Attributes:
        index: index of the task in the order of submission; with `each`, of the task and its device.
        machine: machine that carried it out; None if no machine could.
        answer: None after a failure.
        error, error_code: reason of the failure, and its exit code.
    """

    index: int
    task: Task
    machine: FleetMachine | None = None
    answer: Answer | None = None
    error: str = ""
    error_code: int = EXIT_ENVIRONMENT


@dataclasses.dataclass
class Job:
    """A task between submission and end.

    Attributes:
        needs: requirements on workers.
        stored: machines whose result is in the dataset, by `Device.identity`; one of them is enough.
        deaths: number of workers that died while they carried it out.
        lost: number of workers that died while they had it, though they may not have begun it.
        ended_workers: number of workers that were ended on request while they had it.
        drifted: machines that drifted while they carried it out, by `FleetMachine.host_id`.
        failed_on: machines on which it failed for reasons of the machine, likewise.
    """

    index: int
    task: Task
    needs: Needs
    stored: frozenset[str] = frozenset()
    deaths: int = 0
    lost: int = 0
    ended_workers: int = 0
    drifted: set[str] = dataclasses.field(default_factory=set)
    failed_on: set[str] = dataclasses.field(default_factory=set)
