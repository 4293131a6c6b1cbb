"""Are predicted costs good enough to plan with? IOS from predicted costs, from measured ones, and the optimum.

    python benchmarks/ios_quality.py [MODEL ...]        (about ten minutes)

Three plans of each model run in turn. The first two are each the fastest of a few measured plans that IOS proposes from
the costs of single operators, which are predicted from the included data or measured in isolation. The third is the
plan of IOS when the cost of every stage that IOS evaluates is measured on worker threads. *measurements* is the number
of measurements that a method needs. A second table repeats the comparison for parts of the model of ten operators each,
with the fastest of all divisions into stages, which also uses measured stages.

Goal: plans from predicted costs are at most 5 % slower, with a tenth of the measurements.
"""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
from common import at_most, every, requests_of, run_of, store

if TYPE_CHECKING:
    from common import Tables

    from op_profiler.parallel.corun.models import Models
    from op_profiler.parallel.planning.costs import Costs
    from op_profiler.parallel.planning.graph import KernelGraph
    from op_profiler.parallel.planning.plan import Stage

MODELS = ("squeezenet_v1.1", "remoteonnx:light_inception_v1", "inception_v3", "randwire-0")
ROUNDS = 31
_STAGE_ROUNDS = 7
_FEW = 5
_PIECE, _PIECES = 10, 3
_STAGES = 3000  # where there are more, the search looks at a part of them


class StageTimer:
    """Runs stages by themselves, over tensors that a run of the whole models has filled; none of them share memory.

    Attributes:
        count: how many stages were measured.
    """

    count: int

    def __init__(self, models: Models, *, rounds: int) -> None:
        from op_profiler.parallel.corun.models import in_order
        from op_profiler.parallel.runtime.lane_executor import load_side_by_side

        self._models = models
        self._rounds = rounds
        nothing_ended = [0] * len(models.graph)
        loaded = load_side_by_side(models.graph, models.compiled, nothing_ended, models.machine.runtime, models.inputs)
        self._kernels = [kernel for model in loaded for kernel in model.kernels]
        self.count = 0
        self._run(in_order(models, 1).stages, 1)

    def us(self, stage: Stage) -> float:
        """Median microseconds from the start of the first operator to the end of the last.

        Raises:
            MeasureError: a kernel fails.
        """
        self.count += 1
        return self._run((stage,), self._rounds)

    def of_all_us(self, stages: tuple[Stage, ...]) -> float:
        """The same for several stages that are run as a plan."""
        return self._run(stages, self._rounds)

    def _run(self, stages: tuple[Stage, ...], rounds: int) -> float:
        from op_profiler.parallel.corun.models import plan_of
        from op_profiler.parallel.runtime.lane_executor import Programme, happens_before, lane_tables
        from op_profiler.parallel.runtime.lanes import Lanes

        plan = plan_of(self._models, "stage", stages)
        programme = Programme(self._models.graph, plan, happens_before(self._models.graph, plan))
        with Lanes(programme.cores, lane_tables(programme, self._kernels), programme.signals) as lanes:
            lanes.run()
            samples = []
            for _ in range(rounds):
                lanes.run()
                times = np.concatenate(lanes.times_us())
                samples.append(times[:, 1].max() - times[:, 0].min())
        return float(np.median(samples))


def measure(name: str) -> dict[str, Any]:
    """Medians of the plans, microseconds, and how many measurements each took."""
    from op_profiler.cores import usable_cores
    from op_profiler.parallel.corun.costs import measure_costs, predicted_costs
    from op_profiler.parallel.corun.models import load_models, plan_of
    from op_profiler.parallel.corun.timing import Way, time_in_turn
    from op_profiler.parallel.planning.plan import Plan
    from op_profiler.parallel.planning.policies.ios import ios_candidates

    def quiet(text: str) -> None:
        pass

    requests = requests_of(name)
    models = load_models(requests, cores=usable_cores(), merge=False, announce=quiet)

    def fastest(candidates: tuple[tuple[Stage, ...], ...]) -> Plan:
        plans = [plan_of(models, "ios", stages) for stages in candidates]
        with contextlib.ExitStack() as stack:
            executors = [stack.enter_context(models.executor(plan)) for plan in plans]
            ways = [Way(lambda: None, executor.run) for executor in executors]
            timed = time_in_turn(ways, rounds=_STAGE_ROUNDS, meter=None, limits=models.machine.limits)
        return plans[int(np.argmin(timed.median_us))]

    found: dict[str, tuple[Plan, int]] = {}
    alone = measure_costs(models).costs
    predicted, _ = predicted_costs(models, requests[0].target, None, quiet)
    for label, costs in (("predicted", predicted), ("measured alone", alone)):
        few = ios_candidates(models.graph, costs, models.cores, count=_FEW).candidates
        found[label] = (fastest(few), len(few))
    stages = StageTimer(models, rounds=_STAGE_ROUNDS)
    searched = ios_candidates(models.graph, alone, models.cores, count=1, transitions=_STAGES, stage_us=stages.us)
    found["stages measured"] = (plan_of(models, "ios", searched.candidates[0]), stages.count)
    with contextlib.ExitStack() as stack:
        executors = [stack.enter_context(models.executor(plan)) for plan, _ in found.values()]
        ways = [models.sequential(), *(Way(lambda: None, executor.run) for executor in executors)]
        timed = time_in_turn(ways, rounds=ROUNDS, meter=models.machine.meter(), limits=models.machine.limits)
    return {
        "kernels": len(models.graph),
        "sequential_us": float(timed.median_us[0]),
        "foreign_load": timed.load.foreign,
        "plans": {
            label: [float(timed.median_us[1 + way]), measurements]
            for way, (label, (_, measurements)) in enumerate(found.items())
        },
        "over_measured": [timed.speedup(len(found), over=1 + way) for way in range(len(found))],
        "pieces": [_piece(models, predicted, alone, stages, first) for first in _pieces(models.graph)],
    }


def _pieces(graph: KernelGraph) -> list[int]:
    """First operators of the pieces with most branches, which do not overlap."""
    joins = [sum(len(node.inputs) > 1 for node in graph.nodes[i : i + _PIECE]) for i in range(len(graph) - _PIECE + 1)]
    chosen: list[int] = []
    for first in np.argsort(-np.array(joins), kind="stable"):
        if len(chosen) < _PIECES and all(abs(first - other) >= _PIECE for other in chosen):
            chosen.append(int(first))
    return sorted(chosen)


def _piece(models: Models, predicted: Costs, alone: Costs, stages: StageTimer, first: int) -> dict[str, Any]:
    """Microseconds of the best plans for `_PIECE` operators in a row, and how many measurements each took."""
    from op_profiler.parallel.planning.graph import KernelGraph
    from op_profiler.parallel.planning.plan import Group, Stage, Step
    from op_profiler.parallel.planning.policies.exhaustive import exhaustive
    from op_profiler.parallel.planning.policies.ios import ios_candidates

    nodes = models.graph.nodes[first : first + _PIECE]
    piece = KernelGraph(
        models.graph.models,
        tuple(
            dataclasses.replace(n, index=i, inputs=tuple(s - first for s in n.inputs if s >= first))
            for i, n in enumerate(nodes)
        ),
    )

    def there(stage: Stage) -> Stage:
        """A stage of the piece as one of the model."""
        return Stage(
            tuple(Group(tuple(Step(s.node + first, s.threads) for s in g.steps), g.cores) for g in stage.groups)
        )

    def of(costs: Costs) -> Costs:
        latency = {threads: us[first : first + _PIECE] for threads, us in costs.latency_us.items()}
        return dataclasses.replace(costs, latency_us=latency)

    def total_us(plan: tuple[Stage, ...]) -> float:
        return stages.of_all_us(tuple(there(stage) for stage in plan))

    few = ios_candidates(piece, of(predicted), models.cores, count=_FEW).candidates
    before = stages.count
    best = exhaustive(piece, of(alone), models.cores, stage_us=lambda stage: stages.us(there(stage)))
    tried = stages.count - before
    chosen = min(few, key=total_us)
    pairs = [(total_us(chosen), total_us(best)) for _ in range(_STAGE_ROUNDS)]
    ours, optimum = (float(np.median(column)) for column in zip(*pairs, strict=True))
    return {"first": first, "predicted_us": ours, "optimum_us": optimum, "few": len(few), "tried": tried}


def reached(tables: Tables) -> bool | None:
    """Return whether the stored tables reach the goal, or None if a number that it needs is missing.

    Both parts compare with the plan from measured stages.
    """
    plans = {(row["model"], row["costs"]): row for row in tables.get("plans", ())}
    ours = {model: row for (model, costs), row in plans.items() if costs == "predicted"}
    most = {model: plans[model, "stages measured"]["measurements"] / 10 for model in ours}
    few = [at_most(row["measurements"], most[model]) for model, row in ours.items()]
    return every([*few, *(at_most(row["over_stages_measured"], 1.05) for row in ours.values())])


def main() -> None:
    run = run_of(__file__, __doc__, measure, MODELS)
    print(f"{'model':32} {'kernels':>7} {'plan of IOS from':18} {'us':>9} {'over the last':>13} {'measurements':>13}")
    plans, pieces = [], []
    for name, found in run.found:
        about = {"model": name, "kernels": found["kernels"]}
        print(f"{name:32} {found['kernels']:>7} {'(sequential)':18} {found['sequential_us']:>9.1f}")
        plans.append(about | row_of("(sequential)", found["sequential_us"], None, None))
        for (label, (us, count)), ratio in zip(found["plans"].items(), found["over_measured"], strict=True):
            print(f"{'':40} {label:18} {us:>9.1f} {ratio:>13.3f} {count:>13}", flush=True)
            plans.append(about | row_of(label, us, round(ratio, 3), count))
        for piece in found["pieces"]:
            ours, optimum = piece["predicted_us"], piece["optimum_us"]
            print(
                f"{'':32} operators {piece['first']} to {piece['first'] + _PIECE - 1}: predicted {ours:.1f} us "
                f"({piece['few']} measurements), optimum {optimum:.1f} us ({piece['tried']}), "
                f"ratio {ours / optimum:.3f}",
                flush=True,
            )
            pieces.append(
                {
                    "model": name,
                    "first": piece["first"],
                    "last": piece["first"] + _PIECE - 1,
                    "predicted_us": round(ours, 1),
                    "measurements": piece["few"],
                    "optimum_us": round(optimum, 1),
                    "tried": piece["tried"],
                    "ratio": round(ours / optimum, 3),
                }
            )
    worst = max(row["over_stages_measured"] for row in plans if row["costs"] == "predicted")
    headline = f"plans from predicted costs take at most {worst} of the time of those with every stage measured"
    store(__file__, headline, {"plans": plans, "pieces": pieces}, whole=run.whole)


def row_of(costs: str, us: float, over: float | None, measurements: int | None) -> dict[str, Any]:
    """The plan of some costs as a record."""
    return {"costs": costs, "us": round(us, 1), "over_stages_measured": over, "measurements": measurements}


if __name__ == "__main__":
    main()
