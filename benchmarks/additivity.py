"""Do the operators add up to the model? Sum of operators over whole model, next to TVM's debug executor.

    python benchmarks/additivity.py [MODEL ...]        (about fifteen minutes for all of them)

Everything of one model is measured in one process. For each model and thread count, the script prints the time of the
whole model, the ratio of op_profiler's sum to it, and the ratio of the debug executor's sum to the whole model measured
between the runs of the debug executor.

Goal: the distance from 1 is 2 % in the median and 5 % at worst, and at most 3 % for mlp, rnn, lstm and gru, whose
kernels take microseconds.
"""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

import numpy as np
from common import FIGURE_MODELS, at_most, every, in_own_process, provenance, store

if TYPE_CHECKING:
    from common import Tables

SMALL_MODELS = (("local", "mlp"), ("local", "rnn"), ("local", "lstm"), ("local", "gru"))
"""Their kernels take microseconds and less: what a call costs decides."""
_DEBUG_ROUNDS = 15


def measure(source: str, name: str) -> dict[str, list[float | None]]:
    """By thread count: whole model in us, our ratio, the debug executor's, and 1.0 where background load was marked."""
    from tvm.contrib.debugger import debug_executor

    from op_profiler.building.build import build_model
    from op_profiler.building.request import BuildRequest
    from op_profiler.building.requested_inputs import random_inputs
    from op_profiler.collection.request import CollectRequest
    from op_profiler.collection.session import Session
    from op_profiler.compilers.tvm_build import load_tvm
    from op_profiler.cores import usable_cores
    from op_profiler.frontends.frontend import ModelRequest
    from op_profiler.frontends.lowered_cache import original_model
    from op_profiler.measure.samples import Samples
    from op_profiler.targets.llvm.host import Host
    from op_profiler.targets.target import resolve_target

    tvm = load_tvm()
    target = resolve_target("llvm")
    build = BuildRequest(
        model=ModelRequest(source=source, name=name), schedules="none", threads=tuple(sorted({1, usable_cores()}))
    )
    model = original_model(build.model)
    compiled = build_model(build, model, target).compiled
    inputs = random_inputs(list(model.inputs))
    machine = Host(target)
    graph = machine.load(compiled, inputs)
    operators = [compiled.by_label[label].operator for label in graph.labels]
    session = Session(CollectRequest(build=build), machine, graph, operators)
    results = session.measure({n: Samples() for n in build.threads}, lambda *_: None)

    factory = compiled.library
    debug = debug_executor.create(factory.get_graph_json(), factory.get_lib(), tvm.cpu())
    debug.set_input(**factory.get_params())
    for key, value in inputs.items():
        debug.set_input(key, value)
    ratios = {}
    for result in results:
        session.pool.use(result.threads)
        debug.profile()
        whole, sums = [], []
        for _ in range(_DEBUG_ROUNDS):
            graph.run_model()
            whole.append(graph.time_model())
            calls = debug.profile().calls
            sums.append(sum(float(c["Duration (us)"].microseconds) for c in calls))
        debug_ratio = float(np.median(sums) / np.median(whole))
        whole_model = result.timing.whole_model
        marked = float(whole_model.foreign_load)
        ratios[str(result.threads)] = [whole_model.median_us, result.timing.ratio, debug_ratio, marked]
    return ratios


def claim(tables: Tables) -> str:
    """Return the sentence of the README, with its number from the stored tables."""
    (ours,) = (row for row in tables["distance_from_1"] if row["sum_of"] == "op_profiler")
    models = len({row["model"] for row in tables["models"]})
    return (
        f"Over {models} models, the sum of the operators differs from the time of the model by at most "
        f"{ours['worst_percent']} %."
    )


def reached(tables: Tables) -> bool | None:
    """Return whether the stored tables reach the goal, or None if a number that it needs is missing.

    A ratio that is missing, of the small models too, counts as unknown.
    """
    near = [row for row in tables.get("distance_from_1", ()) if row["sum_of"] == "op_profiler"]
    off = [(row["model"], _off_percent(row["op_profiler_ratio"])) for row in tables.get("models", ())]
    small = [[far for model, far in off if model == name] or [None] for _, name in SMALL_MODELS]
    return every(
        [
            every(at_most(row["median_percent"], 2) for row in near),
            every(at_most(row["worst_percent"], 5) for row in near),
            every(at_most(far, 5) for _, far in off),
            every(at_most(far, 3) for of_model in small for far in of_model),
        ]
    )


def _off_percent(ratio: float | None) -> float | None:
    """Return the distance of a ratio from 1 in percent, or None if there is no ratio."""
    return None if ratio is None else round(100 * abs(ratio - 1), 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", help="names among the figure's models; default: all")
    parser.add_argument("--one", nargs=2, metavar=("SOURCE", "NAME"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure(*arguments.one)))
        return
    print(provenance())
    print(f"{'model':20} {'threads':>7} {'whole us':>11} {'op_profiler':>12} {'debug executor':>15}")
    distances, debug_distances, rows = [], [], []
    for source, name in (*FIGURE_MODELS, *SMALL_MODELS):
        if arguments.models and name not in arguments.models:
            continue
        ratios = in_own_process(__file__, ["--one", source, name])
        if ratios is None:
            print(f"{name:20} failed", flush=True)
            continue
        for threads, (whole, ours, debug, marked) in ratios.items():
            row = {"model": name, "threads": int(threads), "whole_model_us": round(whole, 1)}
            rows.append(row | {"op_profiler_ratio": ours and round(ours, 3), "debug_executor_ratio": round(debug, 3)})
            if ours is None:
                print(f"{name:20} {threads:>7} {whole:>11.1f} no pair: the machine was disturbed", flush=True)
                continue
            distances.append(abs(ours - 1))
            debug_distances.append(abs(debug - 1))
            remark = "  under background load" if marked else ""
            print(f"{name:20} {threads:>7} {whole:>11.1f} {ours:>12.3f} {debug:>15.3f}{remark}", flush=True)
    if not distances:
        raise SystemExit("nothing was measured")
    far = []
    for label, values in (("op_profiler", distances), ("debug executor", debug_distances)):
        median, worst = float(np.median(values)), float(np.max(values))
        print(f"{label}: distance from 1: median {median:.1%}, worst {worst:.1%}")
        far.append({"sum_of": label, "median_percent": round(100 * median, 1), "worst_percent": round(100 * worst, 1)})
    apart = "by {median_percent} % (median) and {worst_percent} % (worst)"
    headline = f"the sum of the operators differs from the time of the whole model {apart.format_map(far[0])}"
    theirs = f"and the sum that TVM's debug executor reports differs {apart.format_map(far[1])}"
    tables = {"models": rows, "distance_from_1": far}
    store(__file__, f"{headline}, {theirs}", tables, whole=not arguments.models)


if __name__ == "__main__":
    main()
