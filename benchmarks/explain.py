"""Does explain report the planted cause, and does tuning gain what explain predicts?

Goal: the planted cause is named first for at least 10 of 12 operators; the predicted gain of tuning is within 20 % of
the actual gain, in the median over 20 operators.

    python benchmarks/explain.py --keep gains.jsonl        (the causes a minute, the gains some 15 s an operator)

Each of 12 operators was built to be slow for one reason. Then operators of models that are not in the included trials
are searched with 32 trials; the predicted speed-up is the one that explain reports before the search. Operators in the
file of --keep are not searched again; --causes leaves the gains out.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common import at_least, at_most, every, provenance, store
from planted_common import CAUSES, Planted, built_of

if TYPE_CHECKING:
    from common import Records, Tables

TRIALS = 32
OPERATORS = 20
MODELS = ("vgg-11", "resnet-34", "densenet-121", "squeezenet_v1.0")
_ROUNDS = 15
_FLOPS = 1e6, 3e8


def explain_planted(planted: Planted, machine: Any, target: Any, threads: int) -> Any:
    """The explanation of the kernel that suffers."""
    import tvm

    from op_profiler.analysis.explain.explain import explain_built
    from op_profiler.analysis.explain.other_times import KnownSchedules
    from op_profiler.analysis.explain.request import ExplainRequest
    from op_profiler.building.request import BuildRequest
    from op_profiler.compilers.compiler import compiler_in_use
    from op_profiler.frontends.frontend import ModelRequest

    kernels = planted.kernels(tvm.te, compiler_in_use().vector_lanes(target), threads)
    built, inputs = built_of(kernels, target)
    key = built.compiled.by_label["kernel0"].operator.key
    build = BuildRequest(model=ModelRequest(source="local", name=planted.name), threads=(threads,))
    request = ExplainRequest(build=build, operator=key)
    found = explain_built(built, machine, inputs, request, KnownSchedules({}, None), lambda text: None)
    return found.operators[0]


def causes() -> list[dict[str, Any]]:
    """One row a planted cause."""
    from op_profiler.measure.turns import measuring
    from op_profiler.targets.open_machine import open_machine
    from op_profiler.targets.target import locks_of, resolve_target

    target = resolve_target("llvm")
    machine = open_machine("llvm", target, None)
    threads = max(machine.device.properties["peaks"]["threads"])
    rows = []
    with measuring(locks_of(["llvm"])):
        for planted in CAUSES:
            found = explain_planted(planted, machine, target, threads)
            first = found.losses[0] if found.losses else None
            rows.append(
                {
                    "planted": planted.name,
                    "cause": planted.cause,
                    "named_first": first.cause if first is not None else None,
                    "us": round(found.time_us, 1),
                    "lost_us": round(first.lost_us, 1) if first is not None else None,
                    "sureness": round(found.sureness, 2) if found.sureness is not None else None,
                }
            )
            others = ", ".join(f"{loss.cause} {loss.lost_us:.1f}" for loss in found.losses[1:4])
            print(f"{json.dumps(rows[-1])}  then {others}", flush=True)
    return rows


def searched_operators() -> list[tuple[str, Any]]:
    """Small anchors of the models, with the model's name, each once; none that is in the included trials."""
    from op_profiler.collection.studies.tune import tunables_of
    from op_profiler.compilers.compiler import compiler_in_use
    from op_profiler.dataset import read_parquet
    from op_profiler.frontends import FRONTENDS
    from op_profiler.frontends.frontend import ModelRequest
    from op_profiler.frontends.lowered_cache import load_cached
    from op_profiler.shipped import shipped_trials
    from op_profiler.targets.target import resolve_target

    file = shipped_trials()
    known = {row["operator_key"] for row in read_parquet(file)} if file is not None else set()
    target = resolve_target("llvm")
    found: dict[str, tuple[str, Any]] = {}
    for name in MODELS:
        model = load_cached(FRONTENDS.get("local"), ModelRequest(source="local", name=name))
        items = [
            item for item in tunables_of(model, target)[0] if item.default and compiler_in_use().own_tasks(item.anchor)
        ]
        for item in sorted(items, key=lambda item: item.anchor.flops):
            if item.anchor.key not in known and _FLOPS[0] < item.anchor.flops < _FLOPS[1]:
                found.setdefault(item.anchor.key, (name, item))
    by_model = [[entry for entry in found.values() if entry[0] == name] for name in MODELS]
    mixed = itertools.zip_longest(*by_model)  # of every model the smallest first
    return [entry for row in mixed for entry in row if entry is not None][:OPERATORS]


def gain_of(name: str, item: Any, gain: Any, target: Any, peak: float, threads: int) -> dict[str, Any]:
    """What is promised of a search of one operator, and what it brings; hot caches."""
    from op_profiler.tuning.candidate import Candidate
    from op_profiler.tuning.search import OperatorSearch
    from op_profiler.tuning.trials.runner import TrialRunner

    with TrialRunner(str(target), threads) as runner:
        (before,) = runner.compare([Candidate(item.default, None)], _ROUNDS)
        promised = gain.predict(dataclasses.asdict(item.anchor), "hot", before.median_us, peak)
        assert promised is not None  # the searched operators are as large as those of the included trials
        search = OperatorSearch(
            item.tasks, target, runner, tuner="xgb_knob", trials=TRIALS, defaults=(item.default,)
        ).run()
    default_us = search.default.result.median_us if search.default is not None else before.median_us
    best_us = min(default_us, search.finalists[0].result.median_us)
    return {
        "operator": item.anchor.key,
        "anchor": item.anchor.anchor,
        "model": name,
        "default_us": round(default_us, 2),
        "best_us": round(best_us, 2),
        "promised_speedup": round(before.median_us / promised.us, 3),
        "speedup": round(default_us / best_us, 3),
        "off": round(before.median_us / promised.us / (default_us / best_us) - 1, 3),
    }


def gains(keep: Path | None) -> list[dict[str, Any]]:
    """One row an operator; what the file holds is not searched again."""
    from op_profiler.analysis.explain.other_times import KnownSchedules
    from op_profiler.measure.turns import measuring
    from op_profiler.targets.open_machine import open_machine
    from op_profiler.targets.target import locks_of, resolve_target

    target = resolve_target("llvm")
    peaks = open_machine("llvm", target, None).device.properties["peaks"]
    gain = KnownSchedules.read(None, shipped=True, threads=1).gain
    assert gain is not None, "the included trials are missing"
    lines = keep.read_text().splitlines() if keep is not None and keep.exists() else []
    known = {row["operator"]: row for row in map(json.loads, lines)}
    rows = []
    for name, item in searched_operators():
        if item.anchor.key not in known:
            with measuring(locks_of(["llvm"])):
                row = gain_of(name, item, gain, target, max(peaks["flops_per_us"]), max(peaks["threads"]))
            known[item.anchor.key] = row
            if keep is not None:
                with keep.open("a") as file:
                    file.write(json.dumps(row) + "\n")
        rows.append(known[item.anchor.key])
        print(json.dumps(rows[-1]), flush=True)
    return rows


def reached(tables: Tables) -> bool | None:
    """Return whether the stored tables reach the goal, or None if a number that it needs is missing.

    Fewer than 12 causes or 20 gains count as unknown.
    """
    planted, searched = tables.get("causes", ()), tables.get("gains", ())
    named = at_least(named_first(planted), 10) if len(planted) == 12 else None
    return every([named, at_most(median_off(searched), 0.2) if len(searched) == OPERATORS else None])


def named_first(planted: Records) -> int:
    """Return how many planted causes are named first."""
    return sum(row["named_first"] == row["cause"] for row in planted)


def median_off(searched: Records) -> float:
    """Return the median error of the promised speed-up, as a share; not a number if nothing was searched."""
    return statistics.median(abs(row["off"]) for row in searched) if searched else float("nan")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, metavar="FILE", help="gains of earlier runs, which go on from there")
    parser.add_argument("--causes", action="store_true", help="leave the gains out")
    arguments = parser.parse_args()
    print(provenance())
    found = causes()
    right = named_first(found)
    print(f"{right} of {len(found)} planted causes are named first")
    searched = [] if arguments.causes else gains(arguments.keep)
    off = median_off(searched)
    print(f"predicted over measured gain: median error {off:.1%} of {len(searched)} operators")
    store(
        __file__,
        f"{right} of {len(found)} planted causes named first; "
        f"the predicted gain of tuning has a median error of {off:.1%}",
        {"causes": found, "gains": searched},
        whole=len(searched) == OPERATORS,
    )


if __name__ == "__main__":
    main()
