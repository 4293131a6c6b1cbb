"""Carries out a task on a worker, retries it, and reports what became of it."""

from __future__ import annotations

import asyncio
import signal
import time
from typing import TYPE_CHECKING

import msgspec

from op_profiler.collection.summary import ModelReport
from op_profiler.dataset import Dataset
from op_profiler.errors import EXIT_ENVIRONMENT, DatasetError, OpProfilerError
from op_profiler.fleet.events import FINISHED, Announcing, Done, tell
from op_profiler.fleet.machine import FleetMachine, place_of_boards, this_machine
from op_profiler.fleet.tasks import Answer, CorunTask, Task
from op_profiler.frontends import FRONTENDS
from op_profiler.parallel.corun.child import CorunAnswer

if TYPE_CHECKING:
    from distributed import Worker

_EVERY_SECONDS = 1.0
_DATASET_SECONDS = 60


class Finished(msgspec.Struct, frozen=True):
    """What became of a task on a machine.

    Attributes:
        machine: that did it.
        answer: of the type that the task's `ANSWER` names, encoded; None where it failed.
        error: why it failed; empty where there is an answer.
        error_code: of the error, or of what the answer says stood in the way; 0 for nothing.
        messages: notes and problems on the way.
        deviation: how far the steadiness probe was off what is usual on this machine, as a share: 0.2 for 20 % slower;
            None where nothing was measured, or too seldom before to tell.
    """

    machine: FleetMachine
    answer: bytes | None = None
    error: str = ""
    error_code: int = 0
    messages: tuple[str, ...] = ()
    deviation: float | None = None


def dask_setup(worker: Worker) -> None:
    """Import what a task needs before this worker says that it is there; Dask calls it."""
    FRONTENDS.get("local")

    # SLURM signals every process of a job whose time is over. One that ends in order tells the scheduler before it is
    # gone (`Workforce.was_told_to_end`).
    asyncio.get_running_loop().add_signal_handler(
        signal.SIGTERM, lambda: worker.loop.add_callback(worker.close, nanny=False, executor_wait=False)
    )


def carry_out(encoded: bytes) -> bytes:
    """Carry out a `Task` on this machine; runs in a worker.

    Both ways are MessagePack, which has the infinities that operators' attributes hold, and from which nothing but
    these types can be read.

    Returns:
        A `Finished`, whether the task could be carried out or not.
    """
    task: Task = msgspec.msgpack.decode(encoded, type=Task)
    machine, started = this_machine(), time.monotonic()
    progress = Announcing(machine.host)
    progress.tell()
    finished = Finished(machine)
    try:
        answer, deviation = _carried_out(_for_this_machine(task), progress)
    except (OpProfilerError, OSError) as error:
        code = error.exit_code if isinstance(error, OpProfilerError) else EXIT_ENVIRONMENT
        finished = msgspec.structs.replace(finished, error=str(error), error_code=code)
        problem: str | None = finished.error
    except Exception as error:  # a defect: whoever asked gets it from the scheduler, and the fleet is told
        said = f"{type(error).__name__}: {error}"
        tell(FINISHED, Done(machine.host_id, task.name, round(time.monotonic() - started, 3), said, None))
        raise
    else:
        code = getattr(answer, "error_code", 0)
        encoded = msgspec.msgpack.encode(answer)
        finished = msgspec.structs.replace(finished, answer=encoded, error_code=code, deviation=deviation)
        problem = _problem_of(answer)
    seconds = round(time.monotonic() - started, 3)
    tell(FINISHED, Done(machine.host_id, task.name, seconds, problem, finished.deviation))
    return msgspec.msgpack.encode(msgspec.structs.replace(finished, messages=tuple(progress.messages)))


def _carried_out(task: Task, progress: Announcing) -> tuple[Answer, float | None]:
    """The answer to a task, and `Finished.deviation`; tried again where the machine or the dataset stood in the way.

    Raises:
        OpProfilerError: it cannot work, or the dataset cannot be used.
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
    """On the boards that this worker reaches, and with as many threads as suit the machine, where the client left that
    open; models side by side find it out themselves."""
    if isinstance(task, CorunTask):
        return task
    build = task.request.build
    place = place_of_boards(build.kind.name) if build.place is None else build.place
    threads = build.threads or build.kind.default_thread_counts(place)
    return msgspec.structs.replace(task, request=task.request.of(threads=threads, place=place))


def _problem_of(answer: Answer) -> str | None:
    """Why an answer is not all that was asked for; None where it is."""
    if isinstance(answer, ModelReport | CorunAnswer):
        return answer.error
    return "; ".join(answer.errors) or None


def _wait_for_dataset(db: str) -> None:
    """Until a server that is started again answers: its clients have used it before.

    Raises:
        DatasetError: it stays away.
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
