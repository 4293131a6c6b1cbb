"""How good are schedules without a search? The best of 8 proposals of the ranking, over the best of a 128-trial search.

One model at a time is held out: the ranking is fitted to the trials of the other models' operators and proposes 8
schedules for each heavy op of the held-out model. They are measured in turns with the best schedule of a search.

    op-profiler collect --modelname MODEL --iftune true --trials 128 --db sqlite:///trials.db     # once, for each model
    python benchmarks/zero_shot.py --db sqlite:///trials.db
"""

from __future__ import annotations

import argparse
import math
from typing import Any

from common import provenance, store

MODELS = (
    ("local", "resnet-18"),
    ("local", "squeezenet_v1.1"),
    ("local", "mobilenet"),
    ("transformers", "bert"),
)
PROPOSED = 8
ROUNDS = 15


def anchors_of(source: str, name: str, target: Any) -> list[Any]:
    """The heavy ops of a model that can be tuned."""
    from op_profiler.collection.studies.tune import tunables_of
    from op_profiler.frontends import FRONTENDS
    from op_profiler.frontends.frontend import ModelRequest
    from op_profiler.frontends.lowered_cache import load_cached

    model = load_cached(FRONTENDS.get(source), ModelRequest(source=source, name=name))
    return tunables_of(model, target, None)[0]


def best_of_search(rows: list[dict[str, Any]], item: Any, tasks: dict[str, Any]) -> Any | None:
    """The candidate of an op's ``tuned`` rows that was the fastest."""
    from op_profiler.tuning.candidate import Candidate

    mine = [r for r in rows if r["operator_key"] == item.anchor.key and r["origin"] == "tuned" and r["median_us"]]
    for row in sorted(mine, key=lambda r: float(r["median_us"])):
        if row["template"] in tasks:
            index = tasks[row["template"]].point(row["knobs"])
            spec = next(s for s in item.tasks if s.template == row["template"])
            if index is not None:
                return Candidate(spec, index)
        elif item.default is not None and row["template"] == item.default.template:
            return Candidate(item.default, None)
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--db", required=True)
    arguments = parser.parse_args()

    from op_profiler.compilers.compiler import compiler_in_use
    from op_profiler.cores import usable_cores
    from op_profiler.dataset import Dataset, flat_rows
    from op_profiler.prediction.schedules.proposals import good_schedules, propose
    from op_profiler.prediction.schedules.ranking import RankingModel, evaluate, examples
    from op_profiler.targets.target import resolve_target
    from op_profiler.tuning.trials.runner import TrialRunner

    target, threads = resolve_target("llvm"), usable_cores()
    with Dataset.open(arguments.db, create=False, read_only=True) as dataset:
        rows = list(flat_rows(dataset, where="executor = 'kernel' and complete"))
    trials = [r for r in rows if r["origin"] == "trial" and r["template"].endswith(".op_profiler")]
    data = examples(trials)
    models = {name: anchors_of(source, name, target) for source, name in MODELS}
    print(provenance())
    score = evaluate(data, [[item.anchor.key for item in items] for items in models.values()])
    print(
        f"trials of the left-out model: {score.pairwise:.1%} of the pairs in the right order; "
        + ", ".join(f"top {k} {loss:.2f}" for k, loss in score.top.items())
    )
    print(f"{'model':20}{'ops':>5}{'best of ' + str(PROPOSED) + ' / search':>20}{'best':>8}{'worst':>8}")
    ranking = {"pairs_in_right_order_percent": round(100 * score.pairwise, 1)}
    ranking |= {f"top_{k}": round(loss, 2) for k, loss in score.top.items()}
    everything: list[float] = []
    records: list[dict[str, Any]] = []
    for name, items in models.items():
        held = {item.anchor.key for item in items}
        kept = [(r, e) for r, e in zip(trials, data) if e.operator not in held]
        model = RankingModel.train([e for _, e in kept])
        good = good_schedules([r for r, _ in kept], [e for _, e in kept])
        logs: list[float] = []
        state: Any = next((r["cache"] for r in trials if r["operator_key"] in held), "hot")
        with TrialRunner(str(target), threads, cache=state) as runner:
            for item in items:
                tasks = [compiler_in_use().task(spec, target) for spec in item.tasks]
                best = best_of_search(rows, item, {task.spec.template: task for task in tasks})
                if best is None:
                    continue
                chosen = propose(item.anchor, tasks, model, good, count=PROPOSED, threads=threads)
                results = runner.compare([best, *(p.candidate for p in chosen)], ROUNDS)
                fastest = min(r.median_us for r in results[1:])
                logs.append(math.log(fastest / results[0].median_us))
        everything += logs
        mean, best_ratio, worst = (math.exp(value) for value in (sum(logs) / len(logs), min(logs), max(logs)))
        print(f"{name:20}{len(logs):5}{mean:20.3f}{best_ratio:8.2f}{worst:8.2f}", flush=True)
        records.append({"model": name, "ops": len(logs), f"best_of_{PROPOSED}_over_search": round(mean, 3)})
        records[-1] |= {"best": round(best_ratio, 2), "worst": round(worst, 2)}
    mean = round(math.exp(sum(everything) / len(everything)), 3)
    print(f"all: {mean:.3f} (geometric mean over {len(everything)} ops)")
    headline = f"the best of {PROPOSED} proposals takes {mean} of the time of the best of a 128-trial search"
    total = {"ops": len(everything), "geometric_mean": mean}
    store(__file__, headline, {"ranking": [ranking], "models": records, "all": [total]}, whole=True)


if __name__ == "__main__":
    main()
