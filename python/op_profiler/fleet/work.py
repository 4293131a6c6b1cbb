"""Carries out a task on a worker, retries it, and reports its outcome."""

from __future__ import annotations

import asyncio
import signal
import time
from typing import TYPE_CHECKING

import msgspec

from op_profiler.collection.summary import ModelReport
from op_profiler.dataset import Dataset
from op_profiler.errors import EXIT_ENVIRONMENT, DatasetError, OpProfilerError
from op_profiler.fleet.events import FINISHED, Announcing, TaskEnd, log_event
from op_profiler.fleet.machine import FleetMachine, place_of_boards, this_machine
from op_profiler.fleet.tasks import Answer, CorunTask, Task
from op_profiler.frontends import FRONTENDS
from op_profiler.parallel.corun.child import CorunAnswer

if TYPE_CHECKING:
    from distributed import Worker

_EVERY_SECONDS = 1.0
_DATASET_SECONDS = 60


class TaskOutcome(msgspec.Struct, frozen=True):
    """The outcome of a task on a machine.

    Attributes:
        machine: machine that carried out the task.
        answer: answer of the type `ANSWER` of the task, encoded as MessagePack; None after a failure.
        error: reason of the failure; empty if there is an answer.
        error_code: exit code for the failure, or for an error in the answer; 0 without an error.
        messages: notes and problems that were reported during the task.
        deviation: relative deviation of the reference kernels from their usual time on this machine: 0.2 for 20 %
            slower; None if nothing was measured, or if there are too few earlier measurements.
    """

    machine: FleetMachine
    answer: bytes | None = None
    error: str = ""
    error_code: int = 0
    messages: tuple[str, ...] = ()
    deviation: float | None = None


def dask_setup(worker: Worker) -> None:
    """Prepare a worker before it joins the scheduler: import frontends, and handle SIGTERM; called by Dask."""
    FRONTENDS.get("local")

    # SLURM signals every process of a job whose time is over. One that ends in order tells the scheduler before it is
    # gone (`Workforce.ended_on_request`).
    asyncio.get_running_loop().add_signal_handler(
        signal.SIGTERM, lambda: worker.loop.add_callback(worker.close, nanny=False, executor_wait=False)
    )


def carry_out(encoded: bytes) -> bytes:
    """Carry out a task on this machine; runs in a worker.

    Task and outcome are encoded as MessagePack, which supports the infinities in attributes of operators, and which can
    only be decoded to the expected types.

    Args:
        encoded: an encoded `Task`.

    Returns:
        An encoded `TaskOutcome`, whether or not the task could be carried out.
    """
    task: Task = msgspec.msgpack.decode(encoded, type=Task)
    machine, started = this_machine(), time.monotonic()
    progress = Announcing(machine.host)
    progress.report()
    finished = TaskOutcome(machine)
    try:
        answer, deviation = _carried_out(_for_this_machine(task), progress)
    except (OpProfilerError, OSError) as error:
        code = error.exit_code if isinstance(error, OpProfilerError) else EXIT_ENVIRONMENT
        finished = msgspec.structs.replace(finished, error=str(error), error_code=code)
        problem: str | None = finished.error
    except Exception as error:  # a defect: whoever asked gets it from the scheduler, and the fleet gets it too
        failure = f"{type(error).__name__}: {error}"
        log_event(FINISHED, TaskEnd(machine.host_id, task.name, round(time.monotonic() - started, 3), failure, None))
        raise
    else:
        code = getattr(answer, "error_code", 0)
        encoded = msgspec.msgpack.encode(answer)
        finished = msgspec.structs.replace(finished, answer=encoded, error_code=code, deviation=deviation)
        problem = _problem_of(answer)
    seconds = round(time.monotonic() - started, 3)
    log_event(FINISHED, TaskEnd(machine.host_id, task.name, seconds, problem, finished.deviation))
    return msgspec.msgpack.encode(msgspec.structs.replace(finished, messages=tuple(progress.messages)))


def _carried_out(task: Task, progress: Announcing) -> tuple[Answer, float | None]:
    """Carry out a task, and return its answer and `TaskOutcome.deviation`; retry if the machine or dataset fails.

    Raises:
        OpProfilerError: the task cannot be carried out, or the dataset cannot be used.
    """
    for left in reversed(range(task.TRIES)):
        try:
            answer, deviation = task.carry_out(progress)
            if not left or getattr(answer, "error_code", 0) != EXIT_ENVIRONMENT:
                break
        except DatasetError as error:
            if not left:
                raise
            progress.note(str(error))
        if task.request.db is not None:
            _wait_for_dataset(task.request.db)
    return answer, deviation


def _for_this_machine(task: Task) -> Task:
    """Return a copy of a task with this worker's boards and this machine's default thread counts.

    Values that the client gave are kept. Co-run tasks are not changed, because they choose their thread counts.
    """
    if isinstance(task, CorunTask):
        return task
    build = task.request.build
    place = place_of_boards(build.kind.name) if build.place is None else build.place
    threads = build.threads or build.kind.default_thread_counts(place)
    return msgspec.structs.replace(task, request=task.request.of(threads=threads, place=place))


def _problem_of(answer: Answer) -> str | None:
    """Return why an answer is not complete; None if it is complete."""
    if isinstance(answer, ModelReport | CorunAnswer):
        return answer.error
    return "; ".join(answer.errors) or None


def _wait_for_dataset(db: str) -> None:
    """Wait until a dataset can be opened, for example after its database server was restarted.

    Raises:
        DatasetError: the dataset cannot be opened within `_DATASET_SECONDS`.
    """
    until = time.monotonic() + _DATASET_SECONDS
    while True:
        try:
            Dataset.open(db).close()
            return
        except DatasetError:
            if time.monotonic() > until:
                raise
        time.sleep(_EVERY_SECONDS)
