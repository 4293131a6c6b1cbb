"""`WorkerBase`: base class of a worker, with its task, machine, dataset and announcements."""

from __future__ import annotations

from typing import TYPE_CHECKING

from op_profiler.errors import BoardLostError

if TYPE_CHECKING:
    from collections.abc import Callable

    from op_profiler.building.prepared_model import PreparedModel
    from op_profiler.collection.results import Results
    from op_profiler.collection.worker_task import WorkerTask
    from op_profiler.dataset import Dataset
    from op_profiler.measure.measurement import Device
    from op_profiler.targets.machine import Machine

_MOST_LOSSES = 10


class WorkerBase:
    """A worker with one task.

    Args:
        announce: sends an event (keyword arguments) to the supervisor; called before each step begins.
    """

    def __init__(self, task: WorkerTask, announce: Callable[..., None]) -> None:
        self.task = task
        self.request = task.request
        self.build = task.request.build
        self.announce = announce
        self.losses = 0
        self._known: Machine | None = None
        self.notes: tuple[str, ...] = ()
        self.asked: frozenset[str] = frozenset()
        self.job: PreparedModel
        self.dataset: Dataset
        self.results: Results

    def machine(self) -> Machine:
        """Return the machine to measure on, which is opened if needed, and store a new machine in the dataset."""
        machine = self.job.machine
        if machine is not self._known:
            self._known = machine
            self.results.device = machine.device
            self.dataset.add_device(self.device)
        return machine

    @property
    def device(self) -> Device:
        """Device of the machine that was opened last."""
        assert self.results.device is not None
        return self.results.device

    def identify(self) -> None:
        """Compute the model's key, find its stored results, and announce the key."""
        self.results.identify(self.job.model.content, self.asked)
        self.announce(model_key=self.results.model_key)

    def lost(self, error: BoardLostError) -> None:
        """Close a lost board, so that the next use requests a board with the same key again.

        Raises:
            BoardLostError: boards were lost `_MOST_LOSSES` times.
        """
        self.job.close()
        self.losses += 1
        if self.losses >= _MOST_LOSSES:
            raise error
        self.announce(problem=f"{error}; asking for it again")
