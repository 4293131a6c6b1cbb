"""`OperatorsAlone`: the worker that measures each distinct operator of a model in isolation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from op_profiler.collection.one_by_one import failed_operator, measure_alone, whole_model_failed
from op_profiler.errors import BoardLostError
from op_profiler.measure.failures import TWICE

if TYPE_CHECKING:
    from op_profiler.collection.session import OperatorResult
    from op_profiler.collection.worker_base import WorkerBase
    from op_profiler.compilers.compiled_model import Occurrence


class OperatorsAlone:
    """Measures each operator of a model in isolation; if an operator cannot be built or run, its error is stored.

    Args:
        worker: worker that carries out the task.
        occurrences: calls of the model, in order.
    """

    def __init__(self, worker: WorkerBase, occurrences: Sequence[Occurrence]) -> None:
        self._worker = worker
        self._occurrences = occurrences
        self._operators = [occurrence.operator for occurrence in occurrences]

    def measure(self) -> None:
        """Measure all distinct operators and store the results; start again if another machine replaces a lost one."""
        worker, losses = self._worker, -1
        distinct = {o.operator.key: o for o in self._occurrences}
        while losses != worker.losses:  # after a loss from the start: the machine that came then may be another
            losses = worker.losses
            if not self._begin():
                return
            request, earlier = worker.results.request, worker.results.earlier
            stored = [earlier.kept(threads) for threads in request.build.threads]
            for done, (key, occurrence) in enumerate(distinct.items()):
                if key in worker.task.excluded or all(key in rows for rows in stored):
                    continue  # an earlier process of this request came that far
                worker.announce(stage="measuring operators in isolation", operator=key, share=done / len(distinct))
                results = self._one(occurrence)
                if losses != worker.losses:
                    self._begin()
                worker.results.record(results)
                if losses != worker.losses:
                    break
        for threads in request.build.threads:
            worker.results.record_whole(
                *whole_model_failed(request, threads, worker.task.reason, self._operators, earlier.complete(threads))
            )

    def _begin(self) -> bool:
        """Identify the model on the open machine, and store its operators and the failures of excluded operators.

        Returns:
            Whether thread counts remain to be measured.
        """
        worker = self._worker
        machine = worker.machine()
        worker.identify()
        locations = [occurrence.locations for occurrence in self._occurrences]
        worker.results.store_operators(self._operators, locations, worker.job.model, worker.notes)
        if not worker.results.leave_out(machine):
            return False
        by_key = {operator.key: operator for operator in self._operators}
        for key, reason in worker.task.excluded.items():
            worker.results.record(failed_operator(worker.results.request, by_key[key], reason))
        return True

    def _one(self, occurrence: Occurrence) -> list[OperatorResult]:
        """Measure one operator; if the connection to the board is lost twice meanwhile, return this as its failure."""
        worker = self._worker
        for _ in range(2):
            try:
                machine = worker.machine()
                schedule, results = measure_alone(worker.results.request, occurrence, worker.job.target, machine)
            except BoardLostError as error:
                reason = f"{TWICE}{error}"
                worker.lost(error)
            else:
                worker.results.schedules[occurrence.operator.key] = schedule
                return results
        worker.machine()
        return failed_operator(worker.results.request, occurrence.operator, reason)
