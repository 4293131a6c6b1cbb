"""How much faster is tuning operators together than tuning each in isolation?

    python benchmarks/collaborate.py [MODEL ...]        (about three minutes each; models joined by + run together)

Each line of models runs in a separate process. *sequential* is TVM's graph executor with all threads. *untuned* is the
better of the plans of greedy and ios with the kernels of the build. *tuned in isolation* is a plan with the schedules
that are fastest in isolation. *collaborate* is the plan after a search over thread counts and schedules together. All
are timed in turn after the search. If the search found nothing faster than *tuned in isolation*, *collaborate* is that
plan.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from common import requests_of, run_of, store

if TYPE_CHECKING:
    from op_profiler.building.request import BuildRequest
    from op_profiler.parallel.corun.models import Models

MODELS = ("squeezenet_v1.1", "squeezenet_v1.1+mobilenet", "resnet-18+mobilenet", "densenet-121")
ROUNDS = 41


def measure(names: str) -> dict[str, Any]:
    """Of models that are joined by +."""
    return measure_requests(requests_of(names))


def measure_requests(
    requests: Sequence[BuildRequest], about: Callable[[Models], Any] = lambda models: None
) -> dict[str, Any]:
    """Speed-ups of every plan over sequential and over *tuned in isolation*, with intervals.

    Args:
        about: what else is to be said of the models, as a plain value.
    """
    from op_profiler.cores import usable_cores
    from op_profiler.parallel.corun.candidates import candidates_of
    from op_profiler.parallel.corun.models import load_models
    from op_profiler.parallel.corun.request import COLLABORATE, CorunRequest
    from op_profiler.parallel.corun.timing import Way, compare_outputs, time_in_turn

    def quiet(text: str) -> None:
        pass

    base = load_models(requests, cores=usable_cores(), merge=False, announce=quiet)
    request = CorunRequest(models=tuple(one.model for one in requests), policy=COLLABORATE)
    candidates = {one.plan.policy: one for one in candidates_of(request, base, quiet)}
    search = next(one.collaboration for one in candidates.values())
    assert search is not None
    with contextlib.ExitStack() as stack:
        executors = {name: stack.enter_context(base.executor(one.plan)) for name, one in candidates.items()}
        sequential = base.sequential()
        ways = [sequential, *(Way(lambda: None, executor.run) for executor in executors.values())]
        timed = time_in_turn(ways, rounds=ROUNDS, meter=base.machine.meter(), limits=base.machine.limits)
        sequential.prepare()
        sequential.run()
        expected = [array.copy() for array in base.sequential_outputs()]
        difference = 0.0
        for executor in executors.values():
            executor.run()
            difference = max(difference, compare_outputs(expected, executor.outputs())[1])
    places = {name: 1 + place for place, name in enumerate(executors)}
    untuned = min((name for name in places if name in ("greedy", "ios")), key=lambda n: timed.median_us[places[n]])
    alone = places.get("tuned in isolation", places[COLLABORATE])  # one plan where the search found nothing better
    rows = {"untuned": places[untuned], "tuned in isolation": alone, COLLABORATE: places[COLLABORATE]}
    return {
        "about": about(base),
        "kernels": len(base.graph),
        "sequential_us": float(timed.median_us[0]),
        "foreign_load": timed.load.foreign or search.foreign_load,
        "difference": difference,
        "plans": {
            name: {
                "us": float(timed.median_us[way]),
                "speedup": [timed.speedup(way), *timed.speedup_interval(way)],
                "over_alone": [timed.speedup(way, alone), *timed.speedup_interval(way, alone)],
            }
            for name, way in rows.items()
        },
        "shared_stages": len(search.shared),
        "shared_us": [float(np.sum([us[i] for i in search.shared])) for us in (search.alone_us, search.jointly_us)],
    }


def main() -> None:
    run = run_of(__file__, __doc__, measure, MODELS)
    models, plans, gains = [], [], []
    for names, found in run.found:
        alone_us, jointly_us = found["shared_us"]
        print(
            f"\n{names} ({found['kernels']} kernels): sequential {found['sequential_us']:.0f} us; "
            f"{found['shared_stages']} stages with operators side by side, {alone_us:.0f} us tuned in isolation, "
            f"{jointly_us:.0f} together; outputs within {found['difference']:.0e} of the largest value"
            + ("; under background load" if found["foreign_load"] else "")
        )
        for name, row in found["plans"].items():
            (speedup, low, high), (over, low_over, high_over) = row["speedup"], row["over_alone"]
            print(
                f"  {name:12} {row['us']:>9.0f} us  speed-up {speedup:.3f} ({low:.3f} to {high:.3f})  "
                f"over tuned in isolation {over:.3f} ({low_over:.3f} to {high_over:.3f})",
                flush=True,
            )
            row = {"models": names, "plan": name, "us": round(row["us"])}
            row |= {"speedup": round(speedup, 3), "low": round(low, 3), "high": round(high, 3)}
            plans.append(row | {"over_tuned_alone": round(over, 3), "over_low": round(low_over, 3)})
            plans[-1]["over_high"] = round(high_over, 3)
        gains.append(plans[-1]["over_tuned_alone"])
        models.append(
            {
                "models": names,
                "kernels": found["kernels"],
                "sequential_us": round(found["sequential_us"]),
                "stages_side_by_side": found["shared_stages"],
                "tuned_alone_us": round(alone_us),
                "together_us": round(jointly_us),
                "outputs": f"within {found['difference']:.0e} of the largest value",
            }
        )
    headline = f"tuned together over tuned in isolation: {min(gains):.3f} to {max(gains):.3f} times as fast"
    store(__file__, headline, {"models": models, "plans": plans}, whole=run.whole)


if __name__ == "__main__":
    main()
