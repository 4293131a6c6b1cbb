"""Costs of operators for plans: measured in place, in isolation, after a change of cores and side by side, or
predicted."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from op_profiler.compilers import DEFAULT_COMPILER
from op_profiler.compilers.compiler import compiler_in_use
from op_profiler.errors import UsageError
from op_profiler.option_values import several, threads_text
from op_profiler.parallel.corun.models import Models, in_order, plan_of
from op_profiler.parallel.corun.timing import Load, in_quiet_rounds, warm_up
from op_profiler.parallel.planning.costs import Costs
from op_profiler.parallel.planning.graph import KernelGraph
from op_profiler.parallel.planning.plan import BLOCKS, ROWS, Group, Plan, Stage, Step
from op_profiler.prediction.latency.calibration import calibrated
from op_profiler.prediction.latency.devices import is_here, target_line
from op_profiler.prediction.latency.network import Network
from op_profiler.prediction.latency.open_predictor import open_predictor

if TYPE_CHECKING:
    from op_profiler.parallel.runtime.executor import Executor
    from op_profiler.prediction.latency.devices import DeviceName
    from op_profiler.prediction.latency.operator_predictor import OperatorPredictor

_ROUNDS, _SECONDS = 15, 15.0
_CLOSE = 1.02


@dataclasses.dataclass(frozen=True)
class Profile:
    """Measured costs, and their samples.

    Attributes:
        alone_us: times in isolation by thread count, shape (rounds, nodes).
        together_us: times at one thread, with a copy of the models on every core; shape (rounds, cores, nodes); empty
            with one core.
        bound_to: for every core the core that its lane was bound to while copies ran, as the system reports it.
        load: background load meanwhile.
        split: the faster way to cut operators with several threads; by rows if both are close, because then less
            changes when a host moves its virtual cores.
        in_order_us: by each way to cut them, the time of all operators one after the other on all cores.
        tuned_us: times in isolation under other schedules than those of the build, shape (rounds,).
    """

    costs: Costs
    alone_us: dict[int, np.ndarray]
    together_us: np.ndarray
    bound_to: dict[int, int | None]
    load: Load
    split: str
    in_order_us: dict[str, float]
    tuned_us: Mapping[Step, np.ndarray] = dataclasses.field(default_factory=dict)

    def alone(self, step: Step) -> np.ndarray | None:
        """Return the samples of an operator with the threads and the schedule of a step, shape (rounds,); None if not
        measured."""
        if step.schedule is not None:
            return self.tuned_us.get(step)
        return self.alone_us[step.threads][:, step.node] if step.threads in self.alone_us else None


def measure_costs(models: Models) -> Profile:
    """Run the models in order at every thread count and with every way to cut operators, across cores, and as copies on
    every core.

    All runs are interleaved, so that compared costs come from the same minutes. The factor by which operators slow each
    other down is that of the sum over all operators.
    """
    cores = models.cores
    counts = models.thread_counts
    with contextlib.ExitStack() as stack:
        alone = {
            (n, split): stack.enter_context(models.executor(in_order(dataclasses.replace(models, split=split), n)))
            for n in counts
            for split in (models.splits if n > 1 else (BLOCKS,))
        }
        wandering = together = None
        if len(cores) > 1:
            wandering = stack.enter_context(models.executor(_from_core_to_core(models)))
            copies = models.copies(len(cores))
            together = stack.enter_context(copies.executor(_beside_copies(models, copies)))

        def one_round(_: int) -> tuple[list[np.ndarray], np.ndarray, float]:
            alone_us = [warm_durations_us(executor) for executor in alone.values()]
            if wandering is None or together is None:
                return alone_us, np.zeros(0), 0.0
            handover_us = _gap(wandering)
            return alone_us, warm_durations_us(together).reshape(len(cores), -1), handover_us

        machine = models.machine
        until = time.monotonic() + _SECONDS
        rounds, load = in_quiet_rounds(
            one_round, rounds=_ROUNDS, meter=machine.meter(len(cores)), limits=machine.limits, fewest=1, until=until
        )
        bound_to = together.bound_to() if together is not None else {}
    alone_rounds, together_rounds, handovers_us = zip(*rounds, strict=True)
    by_way = {way: np.asarray(rows) for way, rows in zip(alone, zip(*alone_rounds), strict=True)}
    in_order_us = {way: float(np.median(by_way[counts[-1], way], axis=0).sum()) for way in models.splits}
    split = ROWS if in_order_us.get(ROWS, math.inf) < _CLOSE * in_order_us[BLOCKS] else BLOCKS
    samples = {count: by_way[count, split if count > 1 else BLOCKS] for count in counts}
    latency = {count: np.median(rows, axis=0) for count, rows in samples.items()}
    beside = np.asarray(together_rounds)
    slowdown = float(np.median(beside, axis=0).sum() / latency[1].sum() / len(cores)) if beside.size else 1.0
    costs = Costs(latency, handover_us=float(np.median(handovers_us)), slowdown=max(slowdown, 1.0))
    return Profile(costs, samples, beside, bound_to, load, split, in_order_us)


def predicted_costs(models: Models, target: str, db: str | None, note: Callable[[str], None]) -> tuple[Costs, str]:
    """Return the predictions of ``op-profiler predict`` for the operators, and a sentence that names the device of
    these times.

    Args:
        target: target as the user wrote it; calibrations are stored under it.
        db: address of a dataset; None for this machine's calibration, or for the included data.
        note: gets messages about slow steps.

    Raises:
        DatasetError: there are no times of this compiler's kernels.
        UsageError: the predictor cannot estimate some operators; the message names them.
    """
    compiler = compiler_in_use().name
    found = calibrated(open_predictor, target, note) if db is None and compiler == DEFAULT_COMPILER else None
    predictor = found or open_predictor("default", db=db, compiler=compiler, note=note)
    counts = [count for count in predictor.thread_counts if count <= len(models.cores)]
    built_for = target_line(models.machine.device.target)
    return costs_from_predictor(predictor, models.graph, counts, built_for, note), costs_sentence(predictor.device, db)


def costs_sentence(device: DeviceName, db: str | None) -> str:
    """Return a sentence that names the device of predicted costs, because a user who gave no dataset may not expect
    another machine.

    Args:
        db: address of the dataset that the user gave.
    """
    found = f"planned with times of {device.processor} ({device.target})"
    expected = db is not None or is_here(device)
    return found if expected else f"{found}, NOT of this machine; --costs measured takes its own"


def costs_from_predictor(
    predictor: OperatorPredictor, graph: KernelGraph, threads: Sequence[int], target: str, note: Callable[[str], None]
) -> Costs:
    """Return latencies at these thread counts from a predictor; handovers and neighbours then cost nothing.

    Args:
        target: target for which the kernels were built.
        note: gets messages about slow steps.

    Raises:
        UsageError: a thread count was never measured, or the predictor cannot estimate some operators; the message
            names them.
    """
    network = Network.of(" ".join(graph.models), [node.operator for node in graph.nodes])
    network = network.with_loops(predictor, threads, target=target, note=note)
    places = {operator.key: at for at, operator in enumerate(network.operators)}
    of_node = [places[node.operator.key] for node in graph.nodes]
    latency_us = {}
    for count in threads:
        found = predictor.predict(network.query.at(count)).latency_us[of_node]
        unknown = sorted({graph.nodes[i].name for i in np.flatnonzero(~np.isfinite(found))})
        if unknown:
            raise UsageError(
                f"there is no estimate at {threads_text(count)} for {several(len(unknown), 'operator')}: "
                f"{', '.join(unknown[:5])}. Measure the model with op-profiler collect, and plan with that dataset"
            )
        latency_us[count] = found
    return Costs(latency_us)


def warm_durations_us(executor: Executor) -> np.ndarray:
    """Return the time of every operator in one run, after untimed runs that warm up caches and threads; shape
    (nodes,)."""
    warm_up(executor.run)
    executor.run()
    spans = executor.timeline_us()
    return np.asarray(spans[:, 1] - spans[:, 0])


def _gap(executor: Executor) -> float:
    """Return the median time in microseconds from the end of an operator to the start of the next on another core."""
    warm_up(executor.run)
    executor.run()
    spans = executor.timeline_us()
    return float(np.median(spans[1:, 0] - spans[:-1, 1])) if len(spans) > 1 else 0.0


def _from_core_to_core(models: Models) -> Plan:
    cores = models.cores
    stages = tuple(Stage((Group((Step(n, 1),), (cores[n % len(cores)],)),)) for n in range(len(models.graph)))
    return plan_of(models, "from core to core", stages)


def _beside_copies(models: Models, copies: Models) -> Plan:
    size = len(models.graph)
    groups = tuple(
        Group(tuple(Step(copy * size + node, 1) for node in range(size)), (core,))
        for copy, core in enumerate(models.cores)
    )
    return plan_of(copies, "copies", (Stage(groups),))
