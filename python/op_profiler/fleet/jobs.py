"""`Job`, a task that is submitted to a cluster, and `EndedTask`, its outcome."""

from __future__ import annotations

import dataclasses

from op_profiler.errors import EXIT_ENVIRONMENT
from op_profiler.fleet.machine import FleetMachine
from op_profiler.fleet.needs import Needs
from op_profiler.fleet.tasks import Answer, Task


@dataclasses.dataclass(frozen=True)
class EndedTask:
    """A task that has ended.

    Attributes:
        index: number in the order of submission; with `each`, tasks have a number for each device.
        task: the task.
        machine: machine that carried it out; None if no machine could.
        answer: result of the task; None after a failure.
        error: reason of the failure; empty if there is an answer.
        error_code: exit code for the failure.
    """

    index: int
    task: Task
    machine: FleetMachine | None = None
    answer: Answer | None = None
    error: str = ""
    error_code: int = EXIT_ENVIRONMENT


@dataclasses.dataclass
class Job:
    """A task on one device, or on any device, until it ends; it may be submitted several times.

    Attributes:
        index: number in the order of submission.
        task: the task.
        needs: requirements on workers.
        stored: machines whose result for the task is in the dataset, by `Device.identity`; they are preferred.
        deaths: number of workers that died while they carried out the job.
        lost: number of workers that died while the job was assigned to them, whether or not they had begun it.
        ended_workers: number of workers that were ended on request while the job was assigned to them.
        drifted: machines that drifted while they carried out the job, by `FleetMachine.host_id`.
        failed_on: machines on which the job failed because of the machine, by `FleetMachine.host_id`.
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
