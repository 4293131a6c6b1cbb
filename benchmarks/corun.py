"""How much faster are plans than running one operator after the other? Every policy, interleaved in one run.

    python benchmarks/corun.py [MODEL ...]        (about 30 minutes for all; models joined by + run together)

Each line of models runs in a separate process. Where two models run together once and twice each, the second line is
their throughput with two requests at a time. *sequential* is TVM's graph executor with all threads. *limit* is the sum
of its operators at one thread divided by the number of cores, measured in the same run: except for effects of caches,
no plan of the same kernels can be faster. *gap closed* is the share of the way from sequential to the limit that a
policy covers. ``auto`` is chosen in a short run before the printed one, among ``sequential`` (by blocks and by rows)
and the four other plans with the best predicted times, including plans with merged kernels.

Goal: auto is never slower; half of the gap is closed, geometric mean over the branching models; pairs are within 5 % of
the limit.
"""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
from common import at_least, every, outputs_verdict, requests_of, run_of, store

if TYPE_CHECKING:
    from common import Tables

BRANCHING = (
    "squeezenet_v1.1",
    "inception_v3",
    "remoteonnx:light_inception_v1",
    "densenet-121",
    "nasnetamobile",
    "randwire-0",
    "transformers:bert",
)
CHAINS = ("resnet-18", "mobilenet")
PAIRS = (
    "resnet-18+mobilenet",
    "transformers:bert+resnet-18",
    "resnet-18+mobilenet+resnet-18+mobilenet",
    "transformers:bert+resnet-18+transformers:bert+resnet-18",
)
ROUNDS = 21


def measure(names: str) -> dict[str, Any]:
    """Medians and intervals of every way to run the models, microseconds."""
    from op_profiler.parallel.corun.candidates import best_of, candidates_of, merged_candidates
    from op_profiler.parallel.corun.comparison import outputs_agree
    from op_profiler.parallel.corun.models import load_models
    from op_profiler.parallel.corun.request import CorunRequest
    from op_profiler.parallel.corun.timing import Way, compare_outputs, time_in_turn

    def quiet(text: str) -> None:
        pass

    requests = requests_of(names)
    request = CorunRequest(models=tuple(one.model for one in requests))
    base = load_models(requests, cores=request.cores, merge=False, announce=quiet)
    plans = candidates_of(request, base, quiet)
    costs = plans[0].profile.costs if plans[0].profile else None
    plans += merged_candidates(request, base, lambda text: print(text, file=sys.stderr))
    auto = best_of(plans, quiet)[0]
    with contextlib.ExitStack() as stack:
        executors = [stack.enter_context(plan.models.executor(plan.plan)) for plan in plans]
        sequential = base.sequential()
        one = Way(lambda: base.machine.threads.use(1), sequential.run)
        ways = [sequential, one, *(Way(lambda: None, executor.run) for executor in executors)]
        timed = time_in_turn(ways, rounds=ROUNDS, meter=base.machine.meter(), limits=base.machine.limits)
        sequential.prepare()
        sequential.run()
        expected = [array.copy() for array in base.sequential_outputs()]
        outputs = []
        for plan, executor in zip(plans, executors, strict=True):
            executor.run()
            equal, difference = compare_outputs(expected, executor.outputs())
            outputs.append(outputs_verdict(equal, outputs_agree(plan.plan, equal, difference)))
    rows = [
        {
            "policy": candidate.plan.title,
            "us": float(timed.median_us[2 + way]),
            "speedup": timed.speedup(2 + way),
            "speedup_interval": timed.speedup_interval(2 + way),
            "predicted_us": candidate.plan.predicted_us,
            "outputs": outputs[way],
            "auto": candidate is auto,
        }
        for way, candidate in enumerate(plans)
    ]
    return {
        "sequential_us": float(timed.median_us[0]),
        "sequential_interval_us": timed.interval_us(0),
        "one_thread_us": float(timed.median_us[1]),
        "limit_us": float(timed.median_us[1]) / request.cores,
        "slowdown": costs.slowdown if costs else None,
        "foreign_load": timed.load.foreign,
        "kernels": len(base.graph),
        "plans": rows,
    }


def reached(tables: Tables) -> bool | None:
    """Return whether the stored tables reach the goal, or None if a number that it needs is missing.

    A pair without a plan counts as unknown.
    """
    auto = {row["models"]: row for row in tables.get("plans", ()) if row["auto"]}
    return every(
        [
            every(at_least(row["speedup"], 1) for row in auto.values()),
            every(at_least(row["gap_closed_percent"], 50) for row in tables.get("branching_models", ())),
            *(at_least(1.05 * auto[pair]["limit_over_it"], 1) if pair in auto else None for pair in PAIRS),
        ]
    )


def main() -> None:
    run = run_of(__file__, __doc__, measure, (*BRANCHING, *CHAINS, *PAIRS))
    over_limit: list[tuple[float, float]] = []
    models, plans = [], []
    for names, found in run.found:
        low, high = found["sequential_interval_us"]
        print(
            f"\n{names} ({found['kernels']} kernels): sequential {found['sequential_us']:.0f} us "
            f"({low:.0f} to {high:.0f}), "
            f"one thread {found['one_thread_us']:.0f}, limit {found['limit_us']:.0f}; "
            f"operators beside a copy of themselves take {found['slowdown']:.2f} times as long"
            + ("; under background load" if found["foreign_load"] else "")
        )
        models.append(
            {
                "models": names,
                "kernels": found["kernels"],
                "sequential_us": round(found["sequential_us"]),
                "low_us": round(low),
                "high_us": round(high),
                "one_thread_us": round(found["one_thread_us"]),
                "limit_us": round(found["limit_us"]),
                "beside_a_copy": found["slowdown"] and round(found["slowdown"], 2),
            }
        )
        gap = found["sequential_us"] - found["limit_us"]
        for row in found["plans"]:
            low, high = row["speedup_interval"]
            closed = (found["sequential_us"] - row["us"]) / gap if gap > 0 else float("nan")
            print(
                f"  {row['policy']:32} {row['us']:>9.0f} us  speed-up {row['speedup']:.3f} ({low:.3f} to {high:.3f})  "
                f"gap closed {closed:>6.1%}  limit over it {found['limit_us'] / row['us']:.3f}  "
                f"predicted {row['predicted_us']:>9.0f}  outputs {row['outputs']}"
                + ("  <- auto" if row["auto"] else ""),
                flush=True,
            )
            plans.append(
                {
                    "models": names,
                    "policy": row["policy"],
                    "us": round(row["us"]),
                    "speedup": round(row["speedup"], 3),
                    "low": round(low, 3),
                    "high": round(high, 3),
                    "gap_closed_percent": round(100 * closed, 1) if gap > 0 else None,
                    "limit_over_it": round(found["limit_us"] / row["us"], 3),
                    "predicted_us": round(row["predicted_us"]),
                    "outputs": row["outputs"],
                    "auto": row["auto"],
                }
            )
            if row["auto"] and names in BRANCHING:
                over_limit.append((found["sequential_us"] / found["limit_us"], row["us"] / found["limit_us"]))
    if over_limit:
        before, after = np.exp(np.mean(np.log(over_limit), axis=0)).tolist()
        closed = round(100 * (before - after) / (before - 1), 1)
        print(
            f"\nbranching models, geometric means over the limit: sequential {before:.3f}, auto {after:.3f}; "
            f"gap closed {closed}%"
        )
        means = {"sequential_over_limit": round(before, 3), "auto_over_limit": round(after, 3)}
        tables = {"models": models, "plans": plans, "branching_models": [means | {"gap_closed_percent": closed}]}
        headline = f"branching models: auto closes {closed} % of the gap to the limit"
        store(__file__, headline, tables, whole=run.whole)


if __name__ == "__main__":
    main()
