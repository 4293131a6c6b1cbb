"""The process that lowers, compiles and measures one model, and writes what it measured to the dataset.

A process of its own, because a compiler or a kernel that crashes must cost one operator and not the run, because TVM
reads its environment once, and because whatever TVM prints from C++ ends up in this process's log, off the screen.
It announces what it is about to do, one JSON object a line; the last announcement before a crash tells what crashed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import sys
import time
import traceback
from typing import TYPE_CHECKING, Any, TextIO

import msgspec

from op_profiler.child_processes import end_with_parent
from op_profiler.collection import lookup
from op_profiler.collection.worker_task import WorkerTask
from op_profiler.errors import EXIT_ENVIRONMENT, BoardLostError, MeasureError, ModelError, OpProfilerError
from op_profiler.measure.failures import TWICE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from op_profiler.collection.counting import Count
    from op_profiler.collection.results import Results
    from op_profiler.collection.session import ThreadResult
    from op_profiler.compilers.compiled_model import BuiltModel, CompiledModel, Occurrence
    from op_profiler.compilers.imported_model import ImportedModel
    from op_profiler.compilers.tvm_types import Target
    from op_profiler.dataset import Dataset
    from op_profiler.measure.measurement import Device
    from op_profiler.operators.operator import Operator
    from op_profiler.targets.machine import LoadedModel, Machine, TimedModel

_BUILDS = ("build", "build merged")
_MOST_LOSSES = 10
_CHECKPOINT_SECONDS = 1.0
"""Storing takes a tenth of the time of a window of rounds; a kill costs so much, and one window, at most."""


class Worker:
    """Carries out one task.

    Args:
        events: where announcements go.
    """

    def __init__(self, task: WorkerTask, events: TextIO) -> None:
        self.task = task
        self.request = task.request
        self.build = task.request.build
        self.events = events
        self.inputs: dict[str, Any] = {}
        self.checking: str | None = None
        self.losses = 0
        self._machine: Machine | None = None
        self._turn = contextlib.ExitStack()
        self._next_checkpoint = 0.0
        self.notes: tuple[str, ...] = ()
        self.asked: frozenset[str] = frozenset()
        self.dataset: Dataset
        self.results: Results

    def announce(self, **event: Any) -> None:
        """Write one event and push it out, so that it survives a crash in the next instruction."""
        self.events.write(json.dumps(event) + "\n")
        self.events.flush()

    def run(self) -> None:
        """Lower, compile, measure, store.

        Raises:
            OpProfilerError: the model, the machine or the dataset does not allow it.
        """
        from op_profiler.building.requested_model import load_model
        from op_profiler.collection.results import Results
        from op_profiler.dataset import Dataset

        if self.task.work == "describe":
            self.announce(result=[self._description()], done=True)
            return
        self._begin_compiling()
        if self.task.work not in _BUILDS and self.build.on_host and not self.request.dry_run:
            self.build.kind.expect_machine()
        model, self.inputs, target = load_model(self.build, self.announce)
        self._note(*model.notes)
        if self.task.work in _BUILDS:
            self.announce(result=self._only_built(model, target), done=True)
            return
        with Dataset.open(self.request.db, was_open=True) as self.dataset:
            self.results = Results(self.dataset, self.task)
            try:
                if self.task.work != "measure" or self.task.one_by_one or not self._is_stored(model):
                    self._carry_out(model, target)
            finally:
                if self._machine is not None:
                    self._machine.close()
                self._turn.close()
        self.announce(done=True)

    def _description(self) -> dict[str, Any]:
        """Fields of the machine's `Device`."""
        from op_profiler.building.requested_model import load_target
        from op_profiler.targets.open_machine import open_machine

        build = self.build
        target = load_target(build)
        machine = open_machine(build.target, target, build.place, self.request.measuring.core_set)
        try:
            return dataclasses.asdict(machine.device)
        finally:
            machine.close()

    def _carry_out(self, model: ImportedModel, target: Target) -> None:
        from op_profiler.collection.operators_alone import OperatorsAlone

        if self.request.dry_run:
            self._dry_run(model, target)
        elif self.task.work != "measure":
            self._study(model, target)
        elif self.task.one_by_one:
            OperatorsAlone(self, self._fuse(model, target), model, target).measure()
        else:
            self._measure_model(model, target)

    def _begin_compiling(self) -> None:
        """Until the machine is opened. A dry run does not wait for what may be hours of another's tuning."""
        from op_profiler.measure.turns import compiling

        if not self.request.dry_run:
            self._turn.enter_context(compiling(lambda text: self.announce(note=text)))

    def machine(self) -> Machine:
        """The machine to measure on, opened when first needed, and from then on ours alone. It is the same one in every
        precision, also where models in int8 are compiled for fewer of its instructions."""
        if self._machine is None:
            from op_profiler.measure.turns import locks_of, measuring
            from op_profiler.targets.open_machine import open_machine
            from op_profiler.targets.target import resolve_target

            build = self.build
            self._turn.close()
            if build.place is None:
                names = locks_of([build.target])
                self._turn.enter_context(measuring(names, lambda text: self.announce(note=text)))
            target = resolve_target(build.target)
            self._machine = open_machine(build.target, target, build.place, self.request.measuring.core_set)
            self.results.device = self._machine.device
            self.dataset.add_device(self.device)
        return self._machine

    @property
    def device(self) -> Device:
        """The machine that was opened last."""
        assert self.results.device is not None
        return self.results.device

    def _is_stored(self, model: ImportedModel) -> bool:
        """Whether the dataset has all that is asked for; the supervisor can only tell of some models and machines."""
        machine = self.request.machine()
        if machine is None:  # asked for once more after compiling, which may take long
            self.machine().close()
            self._machine, machine = None, self.device.identity
            self._begin_compiling()
        base_key = self.request.base_key(model.content, machine)
        found = lookup.find(self.dataset, self.request, base_key, self.task.since)
        if found is None or not (self.request.dry_run or found.answered >= set(self.build.threads)):
            return False
        self.announce(model_key=found.key)
        return True

    def identify(self, model: ImportedModel) -> None:
        """Find out which model of the dataset this is, and tell."""
        self.results.identify(model.content, self.asked)
        self.announce(model_key=self.results.model_key)

    def lost(self, error: BoardLostError) -> None:
        """The machine went away: the next one that is asked for may be it again, or another of its key."""
        if self._machine is not None:
            self._machine.close()
        self._machine = None
        self.losses += 1
        if self.losses >= _MOST_LOSSES:
            raise error
        self.announce(problem=f"{error}; asking for it again")

    def _note(self, *notes: str) -> None:
        """What the user should know about the model, the build and the records that it was compiled with."""
        self.notes += tuple(note for note in notes if note not in self.notes)
        self.announce(notes=list(self.notes))

    def _study(self, model: ImportedModel, target: Target) -> None:
        """Work whose outcome is a result for the report, beside what it stores."""
        from op_profiler.collection.studies.compare import ModelComparison
        from op_profiler.collection.studies.study import Study
        from op_profiler.collection.studies.tune import ModelTuner
        from op_profiler.collection.studies.vendor import VendorComparison

        kinds: dict[str, type[Study]] = {"tune": ModelTuner, "compare": ModelComparison, "vendor": VendorComparison}
        study = kinds[self.task.work](
            self.request,
            self.task.operators,
            self.dataset,
            self.machine,
            target,
            self.announce,
            self.inputs,
        )
        if self.task.work == "vendor":
            self.machine()  # processes of its own measure, and nobody else may meanwhile
        self.announce(result=study.run(model))

    def _fuse(self, model: ImportedModel, target: Target) -> Sequence[Occurrence]:
        from op_profiler.building.build import fuse_model

        self.announce(stage="fusing")
        fused = fuse_model(self.build, model, target)
        self.asked = fused.asked
        self._note(*fused.notes)
        return fused.occurrences

    def _dry_run(self, model: ImportedModel, target: Target) -> None:
        """Extract and cost; build too where only that tells how kernels are launched."""
        built = self.build.kind.dry_run_builds
        occurrences = self._compile(model, target)[0].occurrences if built else self._fuse(model, target)
        self.identify(model)
        layers = [o.layers for o in occurrences]
        self.results.store_operators([o.operator for o in occurrences], layers, model, self.notes)

    def _only_built(self, model: ImportedModel, target: Target) -> list[dict[str, str]]:
        """Where the build is kept; nothing where it was to be merged, and there is nothing to merge."""
        if self.task.work == "build merged":
            from op_profiler.compilers.compiler import compiler_in_use

            model, kinds = compiler_in_use().merge_parallel(model)
            if not kinds:
                return []
        return [{"kept": self._built(model, target).kept}]

    def _built(self, model: ImportedModel, target: Target) -> BuiltModel:
        from op_profiler.building.build import build_model

        self.announce(stage="compiling")
        return build_model(self.build, model, target)

    def _compile(self, model: ImportedModel, target: Target) -> tuple[CompiledModel, list[Any]]:
        """The built model and its inputs' shapes; notes the schedule and the launches of every operator."""
        from op_profiler.building.recipe import Recipe
        from op_profiler.building.requested_model import static_inputs

        specs = static_inputs(model, self.build)
        built = self._built(model, target)
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
            self.results.recipe = Recipe.of(self.build, model.content, specs, built)
        self._note(*built.notes)
        return compiled, specs

    def _measure_model(self, model: ImportedModel, target: Target) -> None:
        from op_profiler.predict.latency.devices import target_line
        from op_profiler.predict.latency.loops import keep_loops

        try:
            compiled, specs = self._compile(model, target)
        except (ModelError, MeasureError) as error:
            self._give_up(error)
            return
        self.announce(stage="reading loops")
        keep_loops(compiled.occurrences, target_line(str(target)))  # now, since nothing may run beside what is measured
        blamed: dict[str, int] = {}
        while True:
            try:
                self._measure_compiled(compiled, specs, model)
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
        """The model cannot be measured as a whole."""
        if self.build.executor == "vm":
            raise error
        self.announce(one_by_one=str(error))

    def _measure_compiled(self, compiled: CompiledModel, specs: list[Any], model: ImportedModel) -> None:
        from op_profiler.building.requested_model import random_inputs
        from op_profiler.collection.counting import counting
        from op_profiler.collection.session import Session
        from op_profiler.compilers.compiler import compiler_in_use

        self.checking = None
        self.announce(stage="opening the machine")
        machine = self.machine()
        self.identify(model)
        if not self.results.request.build.threads:
            return  # this is another board than the one that was asked before
        self.announce(stage="loading")
        inputs = self.inputs or random_inputs(specs)
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
        self.results.store_operators(operators, compiled.layers_of(loaded.labels), model, self.notes)
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
            self._look_at_values(static, operators, model.content, inputs)
        self.announce(stage="measuring", share=0.0)
        self._next_checkpoint = time.monotonic() + _CHECKPOINT_SECONDS
        self.results.keep(session.measure(earlier.samples(session), self._checkpoint))

    def _count_what_was_timed(self, count: Count) -> bool:
        """Take counters that an earlier collection did not ask for; whether there were any to take."""
        from op_profiler.dataset.counts import add_counts

        earlier = self.results.earlier
        threads = [n for n in self.results.request.build.threads if earlier.uncounted(n)]
        if threads:
            add_counts(self.dataset, earlier.beside(count(threads)))
        return bool(threads)

    def _check(self, operator: Operator) -> None:
        self.checking = operator.key
        self.announce(stage="checking", operator=operator.key)

    def _look_at_values(
        self, loaded: LoadedModel, operators: Sequence[Operator], content: str, inputs: dict[str, Any]
    ) -> None:
        """What the model computes, beside how long it takes: how exact it is, and whether its values make it slow."""
        from op_profiler.collection.accuracy import told_accuracy
        from op_profiler.collection.denormals import denormal_shares

        self.announce(stage="looking at values")  # of the whole model: a crash is no longer the last kernel's
        if self.build.on_host:  # from a board every tensor would have to be fetched
            self.results.details["denormal"] = denormal_shares(operators, loaded.kernel_outputs())
        loaded.run_model()
        outputs = loaded.output_arrays()
        self.results.details["accuracy"] = told_accuracy(self.build, content, outputs, inputs, self.announce)

    def _checkpoint(self, share: float, results: Callable[[], list[ThreadResult]]) -> None:
        self.announce(stage="measuring", share=share)
        if time.monotonic() >= self._next_checkpoint:
            self.results.keep(results())
            self._next_checkpoint = time.monotonic() + _CHECKPOINT_SECONDS


def main() -> int:
    """Entry of the process: the task on standard input, announcements to the descriptor named by the argument."""
    end_with_parent()
    events = os.fdopen(int(sys.argv[1]), "w")
    worker = Worker(msgspec.json.decode(sys.stdin.buffer.read(), type=WorkerTask), events)
    try:
        worker.run()
    except OpProfilerError as error:
        worker.announce(error=str(error), code=error.exit_code)
        return error.exit_code
    except MemoryError:
        worker.announce(error="out of memory", code=EXIT_ENVIRONMENT)
        return EXIT_ENVIRONMENT
    except Exception as error:  # noqa: BLE001 - whatever it is, the supervisor must hear of it
        traceback.print_exc()
        worker.announce(error=f"{type(error).__name__}: {error}", code=EXIT_ENVIRONMENT, unexpected=True)
        return EXIT_ENVIRONMENT
    return 0
