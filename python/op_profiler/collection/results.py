"""`Results`: stores the results of a worker (a model, its operators, times and failures) in the dataset."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from op_profiler.collection.one_by_one import refused_threads, whole_model_failed
from op_profiler.collection.resume import StoredResults
from op_profiler.collection.revisions import project_revision, user_revision
from op_profiler.dataset import Row
from op_profiler.measure.failures import machine_state
from op_profiler.operators.layers import by_operator
from op_profiler.schedules.schedule import UNKNOWN, Schedule

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from op_profiler.building.recipe import Recipe
    from op_profiler.collection.session import OperatorResult, ThreadResult
    from op_profiler.collection.worker_task import WorkerTask
    from op_profiler.compilers.imported_model import ImportedModel
    from op_profiler.dataset import Dataset
    from op_profiler.measure.measurement import Device, ModelTiming, Settings
    from op_profiler.operators.operator import Operator
    from op_profiler.targets.machine import Machine


class Results:
    """Results of one model so far; the methods store them in the dataset.

    Attributes:
        device: device that the model is measured on; None until the machine is open.
        schedules: schedules of the operators in the build, by workload key.
        launches: grid and block of each launch on a GPU, by workload key.
        code: code of the kernels, by workload key.
        reads: for each call in execution order, the calls whose outputs it reads.
        details: details of the build, stored with the time of the model.
        recipe: how to build the model again; None if it is not built as a whole.
        request: request of the task; after `identify`, only with the thread counts that must still be measured.
        model_key: key of the model in the dataset, known after `identify`.
        earlier: results of the model that the dataset already contains.
    """

    def __init__(self, dataset: Dataset, task: WorkerTask) -> None:
        self.device: Device | None = None
        self.schedules: dict[str, Schedule] = {}
        self.launches: dict[str, list[dict[str, Any]]] = {}
        self.code: dict[str, str] = {}
        self.reads: tuple[tuple[int, ...], ...] = ()
        self.details: dict[str, Any] = {}
        self.recipe: Recipe | None = None
        self.request = task.request
        self.model_key = ""
        self._dataset = dataset
        self._task = task

    def identify(self, content: str, asked: Iterable[str]) -> None:
        """Compute the model's key, and find out which of its results the dataset contains.

        Call this method after the build has looked up schedule records and after the machine was opened.

        Args:
            content: content of the model (`ImportedModel.content`).
            asked: computations for which the build looked up records.
        """
        ordered, build = self._task.request, self._task.request.build
        machine = self.device.identity if self.device is not None else ordered.machine() or ""
        self._asked = tuple(sorted(asked))
        self._base_key = ordered.base_key(content, machine)
        self.model_key = build.model_key(self._base_key, self._asked)
        self.earlier = StoredResults(self._dataset, ordered, self.model_key, self._task.run_id)
        self._narrow(tuple(n for n in ordered.build.threads if not self.earlier.answers(n)))

    def leave_out(self, machine: Machine) -> bool:
        """Remove the thread counts that need no measurement, and return whether any thread count is left.

        Removed are thread counts that the machine cannot provide, which are stored as failures, and thread counts that
        another process measured while this process waited for its turn.
        """
        refused = refused_threads(machine, self.request.build.threads)
        for threads, reason in refused.items():
            self.record_whole(*whole_model_failed(self.request, threads, reason, [], {}))
        self._narrow(tuple(n for n in self.request.build.threads if n not in refused and not self.earlier.answers(n)))
        return bool(self.request.build.threads)

    def _narrow(self, threads: tuple[int, ...]) -> None:
        self.request = self._task.request.of(threads=threads)
        self.earlier = dataclasses.replace(self.earlier, request=self.request)

    def store_operators(
        self,
        operators: Sequence[Operator],
        locations: Sequence[tuple[str, ...]],
        model: ImportedModel,
        notes: Sequence[str],
    ) -> None:
        """Store the model and its operators with their positions, before anything is measured.

        Args:
            operators: operators in the order in which the model calls them.
            locations: for each call, its locations in the user's model.
            notes: notes for the user on the model and its build.
        """
        positions: dict[str, list[int]] = {}
        by_key: dict[str, Operator] = {}
        for index, operator in enumerate(operators):
            positions.setdefault(operator.key, []).append(index)
            by_key[operator.key] = operator
        request = self.request

        def store() -> None:
            self._dataset.add_model(
                key=self.model_key,
                name=request.build.model.title,
                source=request.build.model.source,
                batch_size=model.batch_size,
                precision=request.build.precision,
                executor=request.build.executor,
                target=request.build.target,
                notes=notes,
                device_key=self.device.key if self.device is not None else None,
                base_key=self._base_key,
                asked=self._asked,
                label=request.label,
                recipe=self.recipe.to_json() if self.recipe is not None else None,
                reads=self.reads if len(self.reads) == len(operators) else None,
                agreement=model.agreement,
            )
            self._dataset.add_operators(
                self.model_key,
                [(by_key[k], tuple(p)) for k, p in positions.items()],
                self.schedules,
                self.launches,
                self.code,
                locations=by_operator([operator.key for operator in operators], locations),
            )

        self._dataset.repeated(store)

    def keep(self, results: Sequence[ThreadResult]) -> None:
        """Store the results so far; called during the rounds, so that a kill loses only one or two seconds of them."""

        def store() -> None:
            for result in results:
                timing = dataclasses.replace(result.timing, details=result.timing.details | self.details)
                stored = self.record_whole(result.settings, timing, complete=result.complete)
                self.record(result.operators, complete=result.complete, replace=stored)

        self._dataset.repeated(store)

    def record_whole(self, settings: Settings, timing: ModelTiming, *, complete: bool = True) -> bool:
        """Store the time or failure of the whole model; return whether it was stored.

        Args:
            complete: False for a checkpoint of a measurement that is still running.
        """
        assert self.device is not None
        return self._dataset.record_model_timing(
            self.model_key,
            settings,
            self.device,
            timing,
            complete=complete,
            replace=complete and self.earlier.replaced(settings.threads),
            machine_state=machine_state() if timing.whole_model.error is not None else None,
            project_revision=project_revision(),
            user_revision=user_revision(),
            run_id=self._task.run_id,
        )

    def record(self, results: Sequence[OperatorResult], *, complete: bool = True, replace: bool = False) -> None:
        """Store the times and failures of operators.

        Args:
            complete: False for a checkpoint of a measurement that is still running.
            replace: replace older times in any case, because the time of the whole model from this run was stored.
        """
        assert self.device is not None
        rows = [
            Row(
                operator_key=r.operator.key,
                schedule=self.schedules.get(r.operator.key, UNKNOWN),
                settings=r.settings,
                device=self.device,
                model_key=self.model_key if r.settings.cache == "model" else "",
                measurement=r.measurement,
                complete=complete,
                machine_state=machine_state() if complete and r.measurement.error is not None else None,
                run_id=self._task.run_id,
            )
            for r in results
        ]
        self._dataset.repeated(lambda: self._dataset.record_all(rows, replace=replace))
