"""What operators cost on lanes, measured where they run: alone, on another core than before, and side by side."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from op_profiler.parallel.planning.costs import Costs
from op_profiler.parallel.planning.plan import BLOCKS, ROWS, Group, Plan, Stage, Step
from op_profiler.parallel.timing import Load, in_quiet_rounds, settle

if TYPE_CHECKING:
    from op_profiler.parallel.loaded_models import Models
    from op_profiler.parallel.runtime.executor import Executor

_ROUNDS, _SECONDS = 15, 15.0
_CLOSE = 1.02


@dataclasses.dataclass(frozen=True)
class Profile:
    """Costs as they were measured, and the samples behind them.

    Attributes:
        alone_us: by thread count, shape (rounds, nodes).
        together_us: at one thread, with a copy of the models on every core; shape (rounds, cores, nodes); empty with
            one core.
        bound_to: for every core the one that its lane was bound to while copies ran, as the system told.
        load: of others meanwhile.
        split: how operators with several threads were cut, as which they took less; by rows if both are close, since
            that changes less when a host moves its virtual cores closer together or further apart.
        in_order_us: by each way to cut them, what all operators take one after the other on all cores.
        tuned_us: with other schedules than those of the build, alone, shape (rounds,).
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
        """Samples of an operator with threads and schedule of a step, shape (rounds,); None where none were taken."""
        if step.schedule is not None:
            return self.tuned_us.get(step)
        return self.alone_us[step.threads][:, step.node] if step.threads in self.alone_us else None


def measure_costs(models: Models) -> Profile:
    """Run the models in order at every thread count and way to cut operators, from core to core, and as copies on every
    core.

    All of it in turn, so that costs that are compared come from the same minute. The factor by which operators slow
    each other down is that of the sum over all operators.
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
            alone_us = [settled_durations_us(executor) for executor in alone.values()]
            if wandering is None or together is None:
                return alone_us, np.zeros(0), 0.0
            handover_us = _gap(wandering)
            return alone_us, settled_durations_us(together).reshape(len(cores), -1), handover_us

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


def settled_durations_us(executor: Executor) -> np.ndarray:
    """What every operator takes in one run, after runs that settle caches and threads; shape (nodes,)."""
    settle(executor.run)
    executor.run()
    spans = executor.timeline_us()
    return np.asarray(spans[:, 1] - spans[:, 0])


def _gap(executor: Executor) -> float:
    """Median microseconds between the end of an operator and the start of the next, which is on another core."""
    settle(executor.run)
    executor.run()
    spans = executor.timeline_us()
    return float(np.median(spans[1:, 0] - spans[:-1, 1])) if len(spans) > 1 else 0.0


def plan_of(models: Models, policy: str, stages: tuple[Stage, ...], predicted_us: float | None = None) -> Plan:
    """A plan for these models on this machine."""
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
    """One operator after the other, each with so many threads."""
    steps = tuple(Step(node, threads) for node in range(len(models.graph)))
    return plan_of(models, "sequential", (Stage((Group(steps, models.cores[:threads]),)),))


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
