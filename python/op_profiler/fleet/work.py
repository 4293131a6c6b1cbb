"""What a worker does with a task that the scheduler gives it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec

from op_profiler.collection.summary import ModelReport
from op_profiler.errors import EXIT_ENVIRONMENT, DatasetError
from op_profiler.fleet.builds import send, take_in
from op_profiler.fleet.events import FINISHED, Announcing, Done, tell
from op_profiler.fleet.machine import FleetMachine, place_of_boards, this_machine
from op_profiler.fleet.tasks import Answer, CorunTask, Task
from op_profiler.parallel.corun.child import CorunAnswer

if TYPE_CHECKING:
    from distributed import Worker

_EVERY_SECONDS = 1.0
_DATASET_SECONDS = 60


class Finished(msgspec.Struct, frozen=True):
    """A task that was carried out.

    Attributes:
        machine: that did it.
        answer: of the type that the task's `ANSWER` names, encoded.
        messages: notes and problems on the way.
        deviation: how far the steadiness probe was off what is usual on this machine, as a share: 0.2 for 20 % slower;
            None where nothing was measured, or too seldom before to tell.
    """

    machine: FleetMachine
    answer: msgspec.Raw
    messages: tuple[str, ...]
    deviation: float | None = None


def dask_setup(worker: Worker) -> None:
    """Import what a task needs before this worker says that it is there, and let it send builds; Dask calls it."""
    from op_profiler.collection import lookup, supervisor  # noqa: F401
    from op_profiler.frontends import FRONTENDS

    FRONTENDS.get("local")
    worker.handlers["op_profiler_build"] = send


def carry_out(encoded: bytes, built: bytes | None = None) -> bytes:
    """Carry out a `Task` on this machine; runs in a worker.

    Both ways are MessagePack, which has the infinities that operators' attributes hold, and from which nothing but
    these types can be read.

    Args:
        built: `builds.carry_out` of another worker; None where this one builds.

    Returns:
        A `Finished`.

    Raises:
        OpProfilerError: the task cannot work, or the dataset cannot be used. A model that cannot be read or measured
            is a report with an error.
    """
    task: Task = msgspec.msgpack.decode(encoded, type=Task)
    task = _for_this_machine(task)
    machine, started = this_machine(), time.monotonic()
    progress = Announcing(machine.host)
    progress.tell()
    if built is not None:
        take_in(built, task.name, progress)
    for attempt in range(task.TRIES):
        if attempt and task.request.db is not None:
            _wait_for_dataset(task.request.db)
        answer, deviation = _attempt(task, progress)
        if answer is not None and getattr(answer, "error_code", 0) != EXIT_ENVIRONMENT:
            break
    if answer is None:
        raise DatasetError("the dataset went away again and again; run the same command once its server is back")
    done = Done(machine.host_id, task.name, round(time.monotonic() - started, 3), problem_of(answer), deviation)
    tell(FINISHED, done)
    raw = msgspec.Raw(msgspec.msgpack.encode(answer))
    return msgspec.msgpack.encode(Finished(machine, raw, tuple(progress.messages), deviation))


def _for_this_machine(task: Task) -> Task:
    """On the boards that this worker reaches, and with as many threads as suit the machine, where the client left that
    open; models side by side find it out themselves."""
    if isinstance(task, CorunTask):
        return task
    build = task.request.build
    place = place_of_boards(build.kind.name) if build.place is None else build.place
    threads = build.threads or build.kind.default_thread_counts(place)
    return msgspec.structs.replace(task, request=task.request.of(threads=threads, place=place))


def problem_of(answer: Answer) -> str | None:
    """Why an answer is not all that was asked for; None where it is."""
    if isinstance(answer, ModelReport | CorunAnswer):
        return answer.error
    return "; ".join(answer.errors) or None


def _wait_for_dataset(db: str) -> None:
    """Until a server that is started again answers: its clients have used it before.

    Raises:
        DatasetError: it stays away.
    """
    from op_profiler.dataset import Dataset

    until = time.monotonic() + _DATASET_SECONDS
    while True:
        try:
            Dataset.open(db).close()
            return
        except DatasetError:
            if time.monotonic() > until:
                raise
        time.sleep(_EVERY_SECONDS)


def _attempt(task: Task, progress: Announcing) -> tuple[Answer | None, float | None]:
    """The answer to a task, and `Finished.deviation`; None where the dataset went away meanwhile."""
    try:
        return task.carry_out(progress)
    except DatasetError as error:
        progress.note(str(error))
        return None, None
