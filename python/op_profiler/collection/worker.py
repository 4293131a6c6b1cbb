"""The worker process, which lowers, compiles and measures one model, and stores the results in the dataset.

The worker is a separate process for three reasons: if a compiler or a kernel crashes, only one operator is lost and not
the run; TVM reads its environment only once; and everything that TVM prints from C++ goes to the log of this process,
not to the screen. The process announces each step as a JSON object on a line before the step begins, so that the last
announcement before a crash shows what crashed.
"""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING, Any

from op_profiler.building.build import fuse_model
from op_profiler.building.prepared_model import PreparedModel
from op_profiler.building.recipe import Recipe
from op_profiler.building.requested_inputs import static_inputs
from op_profiler.building.requested_model import notes_of_control
from op_profiler.building.requested_target import load_target
from op_profiler.child_processes import carry_out
from op_profiler.collection import lookup
from op_profiler.collection.accuracy import accuracy_against_float32
from op_profiler.collection.counting import counting
from op_profiler.collection.denormals import denormal_shares
from op_profiler.collection.operators_alone import OperatorsAlone
from op_profiler.collection.results import Results
from op_profiler.collection.session import Session
from op_profiler.collection.studies.compare import ModelComparison
from op_profiler.collection.studies.study import Study
from op_profiler.collection.studies.tune import ModelTuner
from op_profiler.collection.studies.vendor import VendorComparison
from op_profiler.collection.worker_base import WorkerBase
from op_profiler.collection.worker_task import WorkerTask
from op_profiler.compilers.compiler import compiler_in_use
from op_profiler.dataset import Dataset
from op_profiler.dataset.counts import add_counts
from op_profiler.errors import BoardLostError, MeasureError, ModelError, OpProfilerError
from op_profiler.measure.failures import TWICE
from op_profiler.prediction.latency.devices import target_line
from op_profiler.prediction.latency.loops import keep_loops
from op_profiler.targets.open_machine import open_machine

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from op_profiler.collection.counting import Count
    from op_profiler.collection.session import ThreadResult
    from op_profiler.compilers.compiled_model import CompiledModel, Occurrence
    from op_profiler.operators.operator import Operator
    from op_profiler.targets.machine import LoadedModel, TimedModel

_CHECKPOINT_SECONDS = 1.0
"""Seconds between checkpoints. Storing takes a tenth of a window of rounds; a kill loses this time and one window."""


class CollectionWorker(WorkerBase):
    """Worker that carries out one `WorkerTask`."""

    checking: str | None = None
    _next_checkpoint = 0.0

    def run(self) -> None:
        """Carry out the task: describe the machine, or lower, compile, measure or study the model.

        Raises:
            OpProfilerError: a problem of the model, the machine or the dataset.
        """
        if self.task.work == "describe":
            self.announce(result=[self._description()], done=True)
            return
        with PreparedModel(self.build, self.announce, self.request.measuring.core_set) as self.job:
            if not self.request.dry_run:  # which does not wait for what may be hours of another's tuning
                self.job.begin_compiling()
            if self.build.on_host and not self.request.dry_run:
                self.build.kind.expect_machine()
            self.job.load()
            self._note(*self.job.model.notes)
            self._measure_or_study()
        self.announce(done=True)

    def _measure_or_study(self) -> None:
        """Measure or study the parts of the request that are not in the dataset."""
        with Dataset.open(self.request.db, was_open=True) as self.dataset:
            self.results = Results(self.dataset, self.task)
            if self.task.work != "measure" or self.task.one_by_one or not self._is_stored():
                self._carry_out()

    def _description(self) -> dict[str, Any]:
        """Open the machine of the request, and return the fields of its `Device`."""
        build = self.build
        target = load_target(build)
        machine = open_machine(build.target, target, build.place, self.request.measuring.core_set)
        try:
            return dataclasses.asdict(machine.device)
        finally:
            machine.close()

    def _carry_out(self) -> None:
        if self.request.dry_run:
            self._dry_run()
        elif self.task.work != "measure":
            self._study()
        elif self.task.one_by_one:
            OperatorsAlone(self, self._fuse()).measure()
        else:
            self._measure_model()

    def _is_stored(self) -> bool:
        """Return whether the dataset has all requested results.

        The supervisor can check this before it starts a worker only for some models.
        """
        machine = self.request.machine()
        if machine is None:  # asked for once more after compiling, which may take long
            machine = self.machine().device.identity
            self.job.begin_compiling()
        base_key = self.request.base_key(self.job.model.content, machine)
        found = lookup.find(self.dataset, self.request, base_key, self.task.run_id)
        if found is None or not (self.request.dry_run or found.answered >= set(self.build.threads)):
            return False
        self.announce(model_key=found.key)
        return True

    def _note(self, *notes: str) -> None:
        """Add notes for the user on the model, the build and its schedule records, and announce all notes."""
        self.notes += tuple(note for note in notes if note not in self.notes)
        self.announce(notes=list(self.notes))

    def _study(self) -> None:
        """Run the study of the task, and announce its result for the report."""
        kinds: dict[str, type[Study]] = {"tune": ModelTuner, "compare": ModelComparison, "vendor": VendorComparison}
        study = kinds[self.task.work](
            self.request,
            self.task.operators,
            self.dataset,
            self.machine,
            self.job.target,
            self.announce,
            self.job.given,
        )
        if self.task.work == "vendor":
            self.machine()  # processes of its own measure, and nobody else may meanwhile
        self.announce(result=study.run(self.job.model))

    def _fuse(self) -> Sequence[Occurrence]:
        self.announce(stage="fusing")
        fused = fuse_model(self.build, self.job.model, self.job.target)
        self.asked = fused.asked
        self._note(*fused.notes)
        return fused.occurrences

    def _dry_run(self) -> None:
        """Store the model's operators without measuring; build the model only if its launches are unknown otherwise."""
        built = self.build.kind.dry_run_builds
        occurrences = self._compile().occurrences if built else self._fuse()
        self._note(*notes_of_control(self.job.model))
        self.identify()
        locations = [o.locations for o in occurrences]
        self.results.store_operators([o.operator for o in occurrences], locations, self.job.model, self.notes)

    def _compile(self) -> CompiledModel:
        """Build the model, and copy schedules, launches, code and other properties of the build to `results`."""
        specs = static_inputs(self.job.model, self.build)
        built = self.job.built
        compiled = built.compiled
        self.results.schedules |= built.schedules
        self.asked = built.asked
        for occurrence in compiled.by_label.values():
            if occurrence.label in compiled.launches:
                self.results.launches[occurrence.operator.key] = compiled.launches[occurrence.label]
            if occurrence.label in compiled.code:
                self.results.code[occurrence.operator.key] = compiled.code[occurrence.label]
        self.results.reads = tuple(call.inputs for call in compiled.calls)
        self.results.details["build_seconds"] = round(compiled.build_seconds, 3)
        if compiled.left_out:
            self.results.details["left_out_passes"] = list(compiled.left_out)
        if compiled.executor == "graph":
            self.results.recipe = Recipe.of(self.build, self.job.model.content, specs, built)
        self._note(*built.notes)
        return compiled

    def _measure_model(self) -> None:
        try:
            compiled = self._compile()
        except (ModelError, MeasureError) as error:
            self._give_up(error)
            return
        self.announce(stage="reading loops")
        # Now, since nothing may run beside what is measured.
        keep_loops(compiled.occurrences, target_line(str(self.job.target)))
        blamed: dict[str, int] = {}
        while True:
            try:
                self._measure_compiled(compiled)
                return
            except BoardLostError as error:
                if self.checking is not None:
                    blamed[self.checking] = blamed.get(self.checking, 0) + 1
                    if blamed[self.checking] > 1:  # twice is no accident
                        self.announce(one_by_one=str(error), excluded={self.checking: f"{TWICE}{error}"})
                        return
                self.lost(error)
            except (ModelError, MeasureError) as error:
                self._give_up(error)
                return

    def _give_up(self, error: OpProfilerError) -> None:
        """Announce that the model cannot be measured as a whole; under the executor ``vm``, raise the error."""
        if self.build.executor == "vm":
            raise error
        self.announce(one_by_one=str(error))

    def _measure_compiled(self, compiled: CompiledModel) -> None:
        self.checking = None
        self.announce(stage="opening the machine")
        machine = self.machine()
        self.identify()
        if not self.results.request.build.threads:
            return  # this is another board than the one that was asked before
        self.announce(stage="loading")
        inputs = self.job.inputs
        loaded: TimedModel
        static: LoadedModel | None = None
        if compiled.executor == "vm":
            loaded, operators = compiler_in_use().load_dynamic(compiled, machine.runtime, inputs)
            schedules = self.results.schedules
            for operator, label in zip(operators, loaded.labels):
                schedules[operator.key] = schedules[compiled.by_label[label].operator.key]
        else:
            loaded = static = machine.load(compiled, inputs)
            operators = [compiled.by_label[label].operator for label in loaded.labels]
        self.results.store_operators(operators, compiled.locations_of(loaded.labels), self.job.model, self.notes)
        if not self.results.leave_out(machine):
            return
        keys = [operator.key for operator in operators]
        launches = compiled.launch_counts(loaded.labels)
        count = counting(
            self.request, machine, loaded, keys, recipe=self.results.recipe, launches=launches, announce=self.announce
        )
        if count is not None and self._count_what_was_timed(count) and not self.results.leave_out(machine):
            return
        request, earlier = self.results.request, self.results.earlier
        limits = machine.limits.of_rounds(request.measuring.rounds)
        session = Session(request, machine, loaded, operators, limits=limits, count=count, known=earlier.known())
        session.check_kernels(self._check)
        self.checking = None
        if static is not None:
            self._look_at_values(static, operators)
        self.announce(stage="measuring", share=0.0)
        self._next_checkpoint = time.monotonic() + _CHECKPOINT_SECONDS
        self.results.keep(session.measure(earlier.samples(session), self._checkpoint))

    def _count_what_was_timed(self, count: Count) -> bool:
        """Add counters to stored times that lack them; return whether any stored times lacked counters."""
        earlier = self.results.earlier
        threads = [n for n in self.results.request.build.threads if earlier.uncounted(n)]
        if threads:
            add_counts(self.dataset, earlier.beside(count(threads)))
        return bool(threads)

    def _check(self, operator: Operator) -> None:
        self.checking = operator.key
        self.announce(stage="checking", operator=operator.key)

    def _look_at_values(self, loaded: LoadedModel, operators: Sequence[Operator]) -> None:
        """Store details of the values that the model computes: their accuracy, and the shares of denormal numbers."""
        self.announce(stage="looking at values")  # of the whole model: a crash is no longer the last kernel's
        if self.build.on_host:  # from a board every tensor would have to be fetched
            self.results.details["denormal"] = denormal_shares(operators, loaded.kernel_outputs())
        loaded.run_model()
        outputs = loaded.output_arrays()
        self.results.details["accuracy"] = accuracy_against_float32(
            self.build, self.job.model.content, outputs, self.job.inputs, self.announce
        )

    def _checkpoint(self, share: float, results: Callable[[], list[ThreadResult]]) -> None:
        self.announce(stage="measuring", share=share)
        if time.monotonic() >= self._next_checkpoint:
            self.results.keep(results())
            self._next_checkpoint = time.monotonic() + _CHECKPOINT_SECONDS


def main() -> int:
    """Read a task and carry it out; entry point of the process, whose exit code it returns."""
    return carry_out(WorkerTask, lambda task, announce: CollectionWorker(task, announce).run())
