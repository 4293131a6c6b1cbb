"""Determines the costs of operators for plans: measures them in isolation and side by side, or predicts them."""

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
    """Measured costs of operators, and their samples in microseconds.

    Attributes:
        costs: the costs for policies.
        alone_us: times in isolation by thread count, shape (rounds, nodes).
        together_us: times at one thread while a copy of the models runs on every core, shape (rounds, cores, nodes);
            empty with one core.
        bound_to: for every core, the core that its lane was bound to while the copies ran, as the system reports it;
            None if the lane was not bound.
        load: background load during the measurement.
        split: the faster way to cut operators with several threads. If both ways are about equally fast, it is
            ``rows``, because times then change less when a host moves its virtual cores.
        in_order_us: for each way to cut operators, the sum of their times one after the other on all cores.
        tuned_us: times in isolation, shape (rounds,), of each `Step` with a schedule other than that of the build.
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
        """Return the times in isolation of an operator with the threads and the schedule of a step, microseconds.

        The shape is (rounds,); the result is None if this step was not measured.
        """
        if step.schedule is not None:
            return self.tuned_us.get(step)
        return self.alone_us[step.threads][:, step.node] if step.threads in self.alone_us else None


def measure_costs(models: Models) -> Profile:
    """Measure the costs of the operators of models.

    The models run sequentially at every thread count and with every way to cut operators, with each operator on another
    core than the one before (for the handover), and as copies on every core (for the slow-down). All runs are
    interleaved, so that compared costs are from the same minutes. All operators together get one slow-down factor.
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
    """Return the costs that ``op-profiler predict`` predicts, and a sentence that names the device that they are for.

    Args:
        target: target as the user wrote it, which is the key of stored calibrations.
        db: address of the dataset to predict from; None for this machine's calibration, or else the included data.
        note: called with messages about slow steps.

    Raises:
        DatasetError: the data contains no times of this compiler's kernels.
        UsageError: the predictor cannot estimate some operators; the message names them.
    """
    compiler = compiler_in_use().name
    found = calibrated(open_predictor, target, note) if db is None and compiler == DEFAULT_COMPILER else None
    predictor = found or open_predictor("default", db=db, compiler=compiler, note=note)
    counts = [count for count in predictor.thread_counts if count <= len(models.cores)]
    built_for = target_line(models.machine.device.target)
    return costs_from_predictor(predictor, models.graph, counts, built_for, note), costs_sentence(predictor.device, db)


def costs_sentence(device: DeviceName, db: str | None) -> str:
    """Return a sentence that names the device of predicted costs.

    If the user gave no dataset and the device is not this machine, the sentence contains a warning, because the user
    may not expect the times of another machine.

    Args:
        db: address of the dataset that the user gave; None if the user gave none.
    """
    found = f"planned with times of {device.processor} ({device.target})"
    expected = db is not None or is_here(device)
    return found if expected else f"{found}, NOT of this machine; --costs measured takes its own"


def costs_from_predictor(
    predictor: OperatorPredictor, graph: KernelGraph, threads: Sequence[int], target: str, note: Callable[[str], None]
) -> Costs:
    """Return costs with predicted latencies at these thread counts, and without handovers and slow-down.

    Args:
        target: target for which the kernels were built.
        note: called with messages about slow steps.

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


def warm_timeline_us(executor: Executor) -> np.ndarray:
    """Return the timeline (`Executor.timeline_us`) of one run; untimed runs before it warm up caches and threads."""
    warm_up(executor.run)
    executor.run()
    return executor.timeline_us()


def warm_durations_us(executor: Executor) -> np.ndarray:
    """Return the time of every operator in one run after untimed warm-up runs, microseconds, shape (nodes,)."""
    return np.diff(warm_timeline_us(executor))[:, 0]


def _gap(executor: Executor) -> float:
    """Return the median time in microseconds from the end of an operator to the start of the next on another core."""
    spans = warm_timeline_us(executor)
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
