"""Runs several models on several targets: each model chooses one target; models on different targets run side by side.

The choice is a game (see `op_profiler.parallel.planning.games`): the players are the models, the resources are the
targets, and the cost of a model is its own latency on the chosen target, including transfers, plus the wait for other
models that chose the same target.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from op_profiler.building.agreement import with_agreement
from op_profiler.building.build import build_model
from op_profiler.building.prepared_model import in_words
from op_profiler.building.requested_inputs import random_inputs, static_inputs
from op_profiler.cores import binding_order
from op_profiler.frontends.lowered_cache import original_model
from op_profiler.measure.turns import compiling, measuring
from op_profiler.parallel.corun.request import Announce, CorunRequest
from op_profiler.parallel.corun.target_workers import (
    OnTarget,
    Placement,
    TargetWorker,
    Work,
    load_on_target,
    run_all,
    split_cores,
)
from op_profiler.parallel.corun.timing import TimedWays, Way, compare_outputs, time_in_turn
from op_profiler.parallel.planning.games import GameOutcome, play, without_pygambit
from op_profiler.targets.remote.rpc import is_tracker
from op_profiler.targets.target import locks_of, resolve_target, use_build_for

if TYPE_CHECKING:
    from op_profiler.compilers.compiled_model import CompiledModel

_COST_ROUNDS = 15
_TOLERANCE = 1e-3  # kernels of other targets add in another order


@dataclasses.dataclass(frozen=True)
class TargetsResult:
    """A placement of models, and the results of running it.

    Attributes:
        targets: targets as the user wrote them.
        compiled_for: complete targets, in the same order.
        placements: the returned placement: the equilibrium; for ``auto``, all models on one target if that was faster.
        outcome: the game and its equilibrium; `GameOutcome.load_us` is the latency of each model on each target,
            including transfers.
        sequential: all models on the fastest single target, with all cores.
        timed: times from the same rounds; way 0 is `sequential`, way 1 is the equilibrium, even if it is not returned.
        predicted_us: makespan of the equilibrium, microseconds.
        outputs_equal: whether all outputs of the returned placement equal those of `sequential` bit for bit.
        largest_difference: largest difference between an output of the returned placement and of `sequential`, divided
            by the largest value of the latter.
        notes: notes for the user.
    """

    policy: str
    models: tuple[str, ...]
    targets: tuple[str, ...]
    compiled_for: tuple[str, ...]
    placements: tuple[Placement, ...]
    outcome: GameOutcome
    sequential: Placement
    timed: TimedWays
    predicted_us: float
    outputs_equal: bool
    largest_difference: float
    notes: tuple[str, ...]

    @property
    def outputs_agree(self) -> bool:
        """Return whether the outputs differ by at most the tolerance for kernels of different targets."""
        return self.largest_difference <= _TOLERANCE

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-serializable dictionary: fields of `CorunResult.to_json` that exist for several targets, the
        targets, and the game."""
        return {
            "models": list(self.models),
            "targets": list(self.targets),
            "compiled_for": list(self.compiled_for),
            "policy": self.policy,
            "costs_us": self.outcome.load_us.tolist(),
            "equilibria": self.outcome.equilibria,
            "exact": self.outcome.exact,
            "optimum_us": self.outcome.optimum_us,
            "price_of_stability": self.outcome.price_of_stability,
            "price_of_anarchy": self.outcome.price_of_anarchy,
            "sequential": dataclasses.asdict(self.sequential),
            **self.timed.to_json(),
            "predicted_us": self.predicted_us,
            "outputs_equal": self.outputs_equal,
            "outputs_agree": self.outputs_agree,
            "largest_difference": self.largest_difference,
            "notes": list(self.notes),
            "stages": [[dataclasses.asdict(placement) for placement in self.placements]],
        }


def corun_on_targets(request: CorunRequest, announce: Announce) -> TargetsResult:
    """Measure every model on every target, let the models choose targets, and compare with the best single target.

    Args:
        request: a request whose method `check` raised nothing.

    Raises:
        OpProfilerError: a model, a target or a setting cannot be used; or a model fails on a target (the message names
            both).
    """
    for note in without_pygambit():
        announce(note)
    if request.place is not None:
        is_tracker(request.place.host, request.place.port)  # fails before minutes of compiling if no tracker answers
    cores = binding_order()[: request.cores]
    shares = split_cores(request.targets, cores)
    loaded = _load(request, announce)
    with contextlib.ExitStack() as stack:
        stack.enter_context(measuring(locks_of(request.targets), announce))

        def worker(number: int, cores_of_target: tuple[int, ...]) -> TargetWorker:
            return stack.enter_context(TargetWorker(loaded[number], cores_of_target))

        side_by_side = [worker(number, share) for number, share in enumerate(shares)]
        alone = [worker(number, cores) if one.takes_all_cores else one for number, one in enumerate(side_by_side)]
        announce("measuring every model on every target")
        load_us, best = _measured_costs(side_by_side, alone, request)
        announce("comparing with everything on the best target")
        return _compared(request, play(load_us), side_by_side, alone, best)


def _load(request: CorunRequest, announce: Announce) -> list[OnTarget]:
    """Lower every model once, build it for every target, and load it there."""
    use_build_for(*request.targets, compiler=request.compiler)
    targets = [resolve_target(name) for name in request.targets]
    inputs: list[dict[str, np.ndarray]] = []
    compiled: list[list[CompiledModel]] = [[] for _ in targets]
    requests = [request.on(name) for name in request.targets]
    for number, one in enumerate(requests[0]):
        with compiling(announce):
            announce(f"lowering {one.model.name}")
            model = with_agreement(one, original_model(one.model), {}, in_words(announce))
            inputs.append(random_inputs(static_inputs(model, one)))
            for name, target, builds, asked in zip(request.targets, targets, compiled, requests, strict=True):
                announce(f"compiling {one.model.name} for {name}")
                builds.append(build_model(asked[number], model, target).compiled)
    announce("loading")
    names = tuple(model.name for model in request.models)
    return [
        load_on_target(name, target, names, builds, inputs, request.place)
        for name, target, builds in zip(request.targets, targets, compiled, strict=True)
    ]


def _timed(works: Sequence[Work], alone: Sequence[TargetWorker], rounds: int) -> TimedWays:
    """Time each of the works once per round, alternately; the background load is that of this machine.

    Args:
        alone: for every target, a worker with all the cores that the target can use.
    """
    machine = next(worker.machine for worker in alone if worker.loaded.board is None)
    ways = [Way(lambda: None, functools.partial(run_all, work)) for work in works]
    return time_in_turn(ways, rounds=rounds, meter=machine.meter(), limits=machine.limits)


def _measured_costs(
    side_by_side: Sequence[TargetWorker], alone: Sequence[TargetWorker], request: CorunRequest
) -> tuple[np.ndarray, int]:
    """Measure the models on the targets.

    Args:
        side_by_side: a worker for every target, with its share of the cores.
        alone: a worker for every target, with all the cores that the target can use.

    Returns:
        The time of every model on every target, microseconds, shape (models, targets), and the number of the target
        that is fastest for all models together.
    """
    everything = range(len(request.models))
    works: list[Work] = [[(worker, [number])] for number in everything for worker in side_by_side]
    works += [[(worker, everything)] for worker in alone]
    timed = _timed(works, alone, _COST_ROUNDS)
    split = len(request.models) * len(side_by_side)
    return timed.median_us[:split].reshape(len(request.models), -1), int(np.argmin(timed.median_us[split:]))


def _compared(
    request: CorunRequest,
    outcome: GameOutcome,
    side_by_side: Sequence[TargetWorker],
    alone: Sequence[TargetWorker],
    place: int,
) -> TargetsResult:
    """Time the equilibrium, and all models on the best target, in new rounds; return the result.

    The rounds in which the models chose targets would favour their choice.

    Args:
        place: number of the best target for all models together.
    """
    best = alone[place]
    everything = range(len(request.models))
    chosen = [[n for n in everything if outcome.choices[n] == at] for at in range(len(side_by_side))]
    work = [(worker, numbers) for worker, numbers in zip(side_by_side, chosen) if numbers]
    timed = _timed([[(best, everything)], work], alone, request.rounds)
    notes = [*without_pygambit()]
    notes += [
        f"this TVM does not support the processor and compiled {one.name} for any of its kind; name it with -mcpu"
        for one in (worker.loaded for worker in side_by_side)
        if one.target.attrs.get("mcpu") == "generic" and "-mcpu" not in one.name
    ]
    if request.policy == "auto" and not timed.faster(1):
        notes.append(
            f"side by side was not faster than everything on {best.loaded.name} and is not returned: this is "
            "everything there"
        )
        work = [(best, list(everything))]
    expected, found = run_all([(best, everything)]), run_all(work)
    equal, difference = compare_outputs(
        [array for number in everything for array in expected[number]],
        [array for number in everything for array in found[number]],
    )
    return TargetsResult(
        policy=request.policy,
        models=best.loaded.models,
        targets=request.targets,
        compiled_for=tuple(str(worker.loaded.target) for worker in side_by_side),
        placements=tuple(worker.placement(numbers) for worker, numbers in work),
        outcome=outcome,
        sequential=best.placement(everything),
        timed=timed,
        predicted_us=outcome.makespan_us,
        outputs_equal=equal,
        largest_difference=difference,
        notes=tuple(notes),
    )
