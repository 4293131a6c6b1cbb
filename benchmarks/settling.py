"""Must a model run untimed before each round? The same kernels after a run, after a round, and after reference kernels.

    python benchmarks/settling.py [MODEL ...]        (default: squeezenet_v1.1 resnet-18 mlp; two minutes)

A round is timed after another thread count and one run (``once``), after such a round (``a_round``), and after the
reference kernels and a run (``probe``), all in random order with the baseline, a round after three runs. The result is
the difference of the medians of the whole model from the baseline, by thread count.

Goal: within 1 % after a round of a millisecond and more: such rounds follow each other without a run between them
(`measure/rounds.py`), and models of a tenth of a second run once after the reference kernels. Shorter ones run before
each round, and three times after the reference kernels.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from common import every, requests_of, run_of, store

if TYPE_CHECKING:
    from common import Tables

MODELS = ("local:squeezenet_v1.1", "local:resnet-18", "local:mlp")
_SECONDS = 12.0  # a thread count
_REFERENCE = "three_runs"


def measure(name: str) -> dict[str, Any]:
    """``rows``: one a thread count, percentages from the reference."""
    from op_profiler.building.build import build_model
    from op_profiler.building.requested_inputs import random_inputs
    from op_profiler.building.requested_model import load_model
    from op_profiler.cores import usable_cores
    from op_profiler.targets.open_machine import open_machine

    (request,) = requests_of(name)
    model, _, target = load_model(request)
    machine = open_machine("llvm", target, None)
    loaded: Any = machine.load(build_model(request, model, target).compiled, random_inputs(list(model.inputs)), 1)
    probe, everything = machine.steadiness_probe(), [True] * len(loaded.labels)
    assert probe is not None

    def runs(count: int) -> None:
        for _ in range(count):
            loaded.run_model()

    def a_round() -> None:
        loaded.run_model()
        loaded.time_model()
        loaded.walk("model", everything)
        loaded.move_stack()

    def probed() -> None:
        probe.timed()
        runs(1)

    before: dict[str, Callable[[], None]] = {
        _REFERENCE: lambda: runs(3),
        "once": lambda: runs(1),
        "a_round": a_round,
        "probe": probed,
    }
    rows = []
    for threads in sorted({1, usable_cores()}):
        found: dict[str, list[float]] = {way: [] for way in before}
        until = time.monotonic() + _SECONDS
        while time.monotonic() < until:
            for way in random.sample(list(before), len(before)):
                machine.threads.use(usable_cores() if threads == 1 else 1)
                loaded.run_model()
                machine.threads.use(threads)
                before[way]()
                found[way].append(loaded.time_model())
        usual = float(np.median(found[_REFERENCE]))
        off = {f"{way}_percent": round(100 * (float(np.median(us)) / usual - 1), 2) for way, us in found.items()}
        del off[f"{_REFERENCE}_percent"]
        rows.append({"threads": threads, "turns": len(found[_REFERENCE]), "whole_us": round(usual, 1), **off})
    return {"rows": rows}


def reached(tables: Tables) -> bool | None:
    """Return whether the stored tables reach the goal, or None if a number that it needs is missing.

    Without a model of a tenth of a second, the part about the probe counts as unknown.
    """
    rows = tables.get("models", ())
    return every(
        [
            every(abs(row["a_round_percent"]) <= 1 for row in rows if row["whole_us"] >= 1e3),
            every(abs(row["probe_percent"]) <= 1 for row in rows if row["whole_us"] >= 1e5),
        ]
    )


def main() -> None:
    run = run_of(__file__, __doc__, measure, MODELS)
    rows = [{"model": one.name, **row} for one in run.found for row in one.result["rows"]]
    for row in rows:
        print(row, flush=True)
    most = max(abs(value) for row in rows for key, value in row.items() if key.endswith("_percent"))
    headline = f"the whole model after one run, a round or the probe is at most {most} % off the one after three runs"
    print(headline)
    store(__file__, headline, {"models": rows}, whole=run.whole)


if __name__ == "__main__":
    main()
