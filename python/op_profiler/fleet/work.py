"""What a worker does with a request that the scheduler gives it."""

from __future__ import annotations

import dataclasses
import time

import msgspec

from op_profiler.collection.request import CollectRequest
from op_profiler.collection.summary import ModelReport
from op_profiler.errors import EXIT_ENVIRONMENT, DatasetError
from op_profiler.fleet.machine import FleetMachine, this_machine

PROGRESS = "op_profiler-progress"
"""Dask's topic of events that say what workers are doing: a line of text each."""
_EVERY_SECONDS = 1.0
_TRIES = 3  # of what the machine or the dataset stood in the way of
_DATASET_SECONDS = 60


@dataclasses.dataclass(frozen=True)
class Finished:
    """A request that was carried out.

    Attributes:
        machine: that did it.
        report: what the dataset says of it afterwards.
        messages: notes and problems on the way.
    """

    machine: FleetMachine
    report: ModelReport
    messages: tuple[str, ...]


def collect_model(request: bytes) -> bytes:
    """Carry out a `CollectRequest` on this machine; runs in a worker.

    Both ways are MessagePack, which has the infinities that operators' attributes hold, and from which nothing but
    these types can be read.

    Returns:
        A `Finished`.

    Raises:
        OpProfilerError: the request cannot work, or the dataset cannot be used. A model that cannot be read or measured
            is a report with an error.
    """
    asked = msgspec.msgpack.decode(request, type=CollectRequest)
    if not asked.build.threads:  # as many as this machine has, which the client could not know
        asked = asked.of(threads=asked.build.kind.default_thread_counts(asked.build.place))
    progress = _Announcing()
    for _ in range(_TRIES):
        _wait_for_dataset(asked.db)
        report = _collect(asked, progress)
        if report is not None and report.error_code != EXIT_ENVIRONMENT:
            break
    if report is None:
        raise DatasetError("the dataset went away again and again; run the same command once its server is back")
    return msgspec.msgpack.encode(Finished(this_machine(), report, tuple(progress.messages)))


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


def _collect(asked: CollectRequest, progress: _Announcing) -> ModelReport | None:
    """The report of a request; None where the dataset went away meanwhile."""
    from op_profiler.collection.supervisor import Collection
    from op_profiler.frontends import FRONTENDS

    try:
        with Collection(asked.db) as collection:
            (report,) = collection.run(FRONTENDS.get(asked.build.model.source), [asked], progress)
    except DatasetError as error:
        progress.note(str(error))
        return None
    return report


class _Announcing:
    """Progress of a collection, told to whoever listens to the scheduler."""

    def __init__(self) -> None:
        self.messages: list[str] = []
        self._next = 0.0

    def start(self, models: int) -> None:
        return

    def stop(self) -> None:
        return

    def note(self, text: str) -> None:
        self.messages.append(f"note: {text}")

    def problem(self, text: str) -> None:
        self.messages.append(text)

    def step(self, description: str, done_models: float) -> None:
        """At most once a second, so that telling it takes no time from what is measured."""
        from distributed import get_worker

        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _EVERY_SECONDS
        get_worker().log_event(PROGRESS, description)
