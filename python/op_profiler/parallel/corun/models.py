"""Loads models twice: in TVM's graph executor, which runs one kernel after the other, and for plans."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from op_profiler.building.prepared_model import PreparedModel, in_words
from op_profiler.building.requested_model import load_model
from op_profiler.compilers.compiler import compiler_in_use
from op_profiler.errors import MeasureError
from op_profiler.parallel.corun.schedule_variants import Variants
from op_profiler.parallel.corun.timing import Way
from op_profiler.parallel.planning.graph import GraphNode, KernelGraph
from op_profiler.parallel.planning.plan import BLOCKS, ROWS, Group, Plan, Stage, Step
from op_profiler.parallel.planning.rows import cut_by_rows
from op_profiler.targets import TARGETS
from op_profiler.targets.open_machine import open_machine

if TYPE_CHECKING:
    from op_profiler.building.request import BuildRequest
    from op_profiler.compilers.compiled_model import CompiledModel
    from op_profiler.compilers.tvm_types import PackedFunction
    from op_profiler.parallel.runtime.executor import Executor
    from op_profiler.parallel.runtime.plan_lanes import PlanLanes
    from op_profiler.schedules.schedule import Schedule
    from op_profiler.targets.machine import LoadedModel, Machine


@dataclasses.dataclass(frozen=True)
class Models:
    """Models that are loaded on this machine's processor or GPU.

    Attributes:
        graph: kernels of all models.
        compiled: the models compiled for plans.
        loaded: the models loaded in TVM's graph executor, with the storage that the compiler planned.
        inputs: inputs of each model, random or given by the user.
        batch_sizes: batch size of each lowered model.
        contents: content of each model, see `ImportedModel.content`.
        asked: computations for which each build looked up schedule records, see `BuiltModel.asked`.
        merged: kinds of merged operators (parallel type ``full``).
        machine: the machine that runs the models.
        cores: numbers of the cores (streams of a GPU) that plans may use.
        schedules: schedules of the operators in the builds, by workload key.
        split: how plans cut operators with several threads; see `Plan.split`.
    """

    graph: KernelGraph
    compiled: tuple[CompiledModel, ...]
    loaded: tuple[LoadedModel, ...]
    inputs: tuple[dict[str, np.ndarray], ...]
    batch_sizes: tuple[int, ...]
    contents: tuple[str, ...]
    asked: tuple[frozenset[str], ...]
    merged: tuple[str, ...]
    machine: Machine
    cores: tuple[int, ...]
    schedules: dict[str, Schedule] = dataclasses.field(default_factory=dict)
    split: str = BLOCKS

    @property
    def lanes(self) -> PlanLanes:
        """Return the kind of lanes on which plans run: cores or streams."""
        return TARGETS.get(self.machine.device.kind).plan_lanes()

    @property
    def thread_counts(self) -> tuple[int, ...]:
        """Return the possible thread counts of an operator, in ascending order."""
        return self.lanes.thread_counts(len(self.cores))

    @property
    def splits(self) -> tuple[str, ...]:
        """Return the ways to cut operators with several threads: only `BLOCKS` if cutting by rows changes nothing."""
        by_rows = self.thread_counts[-1] > 1 and any(node.rows for node in self.graph.nodes)
        return (BLOCKS, ROWS) if by_rows else (BLOCKS,)

    @functools.cached_property
    def labels(self) -> tuple[str, ...]:
        """Return the compiler's hash of each node's operator."""
        return tuple(call.label for one in self.compiled for call in one.calls)

    @functools.cached_property
    def variants(self) -> Variants:
        """Return the builder of the operators' kernels under other schedules."""
        return Variants(self.compiled, self.machine.device.target)

    def functions(self, schedules: Mapping[int, Schedule | None]) -> dict[int, PackedFunction]:
        """Return the kernels of nodes for `Executor.use`, without the nodes that keep the kernel of the build.

        Args:
            schedules: schedule of each node; None for the kernel of the build.

        Raises:
            PlanError: an operator cannot be built with its schedule; the message names it.
        """
        return {
            node: self.variants.function(self.labels[node], one) for node, one in schedules.items() if one is not None
        }

    def sequential(self) -> Way:
        """Return a `Way` for sequential execution: one kernel after the other on all cores, with TVM's own executor."""

        def run() -> None:
            for model in self.loaded:
                model.run_model()
            self.machine.runtime.sync()

        return Way(lambda: self.machine.threads.use(len(self.cores)), run)

    def sequential_outputs(self) -> list[np.ndarray]:
        """Return the outputs of the models after a run of `sequential`."""
        return [array for model in self.loaded for array in model.output_arrays()]

    def executor(self, plan: Plan) -> Executor:
        """Return an executor that runs the models by a plan, on cores or streams.

        Raises:
            PlanError: the plan is not for these models or this machine, or a schedule in it cannot be built.
            MeasureError: the plan is for models with other merged operators.
        """
        device = self.machine.device
        plan.check(self.graph, device=device.key, processor=device.processor, cores=self.cores)
        if plan.merged != self.merged:
            raise MeasureError(f"the plan merges {plan.merged or 'nothing'}, the models were built with {self.merged}")
        executor = self.lanes.executor(self.graph, self.compiled, plan, self.machine.runtime, self.inputs)
        executor.use(self.functions({step.node: step.schedule for step, _ in plan.steps}))
        return executor

    def copies(self, count: int) -> Models:
        """Return `count` copies of every model, each with separate tensors and weights; only plans can run them."""
        names = [f"{name} #{copy}" for copy in range(count) for name in self.graph.models]
        compiled = self.compiled
        for _ in range(count - 1):
            compiled += tuple(self.lanes.copy(one) for one in self.compiled)
        return dataclasses.replace(
            self, graph=kernel_graph(names, compiled), compiled=compiled, loaded=(), inputs=self.inputs * count
        )


def kernel_graph(names: Sequence[str], compiled: Sequence[CompiledModel]) -> KernelGraph:
    """Return the graph of the kernels of models, for planning.

    Args:
        names: names of the models.
        compiled: the compiled models.
    """
    nodes: list[GraphNode] = []
    for model, one in enumerate(compiled):
        first = len(nodes)
        for call in one.calls:
            sources = tuple(first + source for source in call.inputs)
            operator = one.by_label[call.label].operator
            rows = cut_by_rows(operator, one.loops.get(call.label, ()))
            nodes.append(GraphNode(len(nodes), model, call.name, operator, sources, rows))
    return KernelGraph(tuple(names), tuple(nodes))


def plan_of(models: Models, policy: str, stages: tuple[Stage, ...], predicted_us: float | None = None) -> Plan:
    """Return a plan with these stages for models on this machine."""
    device = models.machine.device
    return Plan(
        policy=policy,
        models=models.graph.models,
        graph=models.graph.digest,
        device=device.key,
        processor=device.processor,
        stages=stages,
        predicted_us=predicted_us,
        merged=models.merged,
        split=models.split,
    )


def in_order(models: Models, threads: int) -> Plan:
    """Return a plan that runs one operator after the other, each with this thread count."""
    steps = tuple(Step(node, threads) for node in range(len(models.graph)))
    return plan_of(models, "sequential", (Stage((Group(steps, models.cores[:threads]),)),))


def mergeable(requests: Sequence[BuildRequest]) -> bool:
    """Return whether the compiler finds parallel operators to merge in any model; the models are only lowered."""
    return any(compiler_in_use().merge_parallel(load_model(request)[0])[1] for request in requests)


def load_models(
    requests: Sequence[BuildRequest], *, cores: int, merge: bool, announce: Callable[[str], None]
) -> Models:
    """Lower, build and load models for this machine.

    Args:
        requests: build requests of the models; all for the same target.
        cores: number of cores (streams of a GPU) that plans may use.
        merge: whether to merge parallel operators into one kernel if the compiler can.
        announce: called with messages about slow steps.

    Raises:
        ModelError, MeasureError: a model cannot be lowered, built or run.
        UsageError: the machine has fewer cores.
    """
    lanes = requests[0].kind.plan_lanes()
    numbers = lanes.first(cores)
    # A model that is requested twice is built once; only its tensors exist twice.
    jobs = {request: _built(request, merge, announce) for request in dict.fromkeys(requests)}
    found = [jobs[request] for request in requests]
    announce("loading")
    machine = open_machine(requests[0].target, found[0].target, None)
    compiled = [_noted(one) for one in found]
    loaded = tuple(compiler_in_use().load(one, machine.runtime, job.inputs) for one, job in zip(compiled, found))
    for_plans = lanes.prepared(compiled)
    return Models(
        graph=kernel_graph([request.model.name for request in requests], for_plans),
        compiled=for_plans,
        loaded=loaded,
        inputs=tuple(one.inputs for one in found),
        batch_sizes=tuple(one.model.batch_size for one in found),
        contents=tuple(one.model.content for one in found),
        asked=tuple(one.built.asked for one in found),
        merged=tuple(sorted({kind for one in found for kind in one.merged})),
        machine=machine,
        cores=numbers,
        schedules={key: schedule for one in found for key, schedule in one.built.schedules.items()},
    )


def _built(request: BuildRequest, merge: bool, announce: Callable[[str], None]) -> PreparedModel:
    """Lower and build a model, and return it; it is not loaded on the machine."""
    announce(f"lowering {request.model.name}")
    with PreparedModel(request, in_words(announce, stages=False)) as job:
        job.begin_compiling()
        job.load(merge=merge)
        _ = job.inputs  # rejects a model with dynamic shapes before it is built
        announce(f"compiling {request.model.name}" + (" with merged operators" if merge else ""))
        _ = job.built
    return job


def _noted(job: PreparedModel) -> CompiledModel:
    """Return the compiled model, with an additional note if its outputs differ from those of the model's framework."""
    compiled, agreement = job.built.compiled, job.model.agreement
    notes = () if agreement.outputs_agree else (f"{job.model.name}: {agreement}",)
    return dataclasses.replace(compiled, notes=(*compiled.notes, *notes))
