"""What does it matter from which place on the stack a kernel is called? Four places, 16 bytes apart.

    python benchmarks/stack_places.py [MODEL ...]        (default: squeezenet_v1.1 resnet-18 mobilenet; two minutes)

The result contains, at one thread, the differences of operators above 50 us between the fastest and the slowest place,
and the same differences with the places of the rounds shuffled, which chance alone causes.

Goal: none; it is the reason why every round is measured from another place (`measure/stack.py`).
"""

from __future__ import annotations

import random
import time
from typing import Any

import numpy as np
from common import run_of, store

MODELS = ("squeezenet_v1.1", "resnet-18", "mobilenet")
_PLACES = 4
_COPIES = 8
_SECONDS = 30.0
_SMALLEST_US = 50.0
_NOTABLE = 0.03


def measure(name: str) -> dict[str, Any]:
    """Percentages, over the operators."""
    from op_profiler.building.build import build_model
    from op_profiler.building.request import BuildRequest
    from op_profiler.building.requested_inputs import random_inputs
    from op_profiler.building.requested_model import load_model
    from op_profiler.frontends.frontend import ModelRequest
    from op_profiler.targets.open_machine import open_machine

    request = BuildRequest(model=ModelRequest(source="local", name=name))
    relay_model, _, target = load_model(request)
    compiled = build_model(request, relay_model, target).compiled
    machine = open_machine("llvm", target, None)
    machine.threads.use(1)
    loaded: Any = machine.load(compiled, random_inputs(list(relay_model.inputs)), _COPIES)
    everything = [True] * len(loaded.labels)
    rounds: list[list[float]] = []
    places: list[int] = []
    until = time.monotonic() + _SECONDS
    while time.monotonic() < until:
        copy = loaded.moved()
        copy.run_model()
        places.append(copy.stack_turn % _PLACES)
        rounds.append([copy.time_model(), *copy.walk("model", everything)])
    times_us = np.array(rounds)
    large = np.median(times_us, axis=0) > _SMALLEST_US
    apart = _apart(times_us[:, large], np.array(places))
    shuffled = _apart(times_us[:, large], np.array(random.Random(0).sample(places, len(places))))
    return {
        "rounds": len(rounds),
        "whole_model_percent": round(100 * float(apart[0]), 1),
        "operators": int(large.sum()) - 1,
        "median_percent": round(100 * float(np.median(apart[1:])), 1),
        "largest_percent": round(100 * float(apart[1:].max()), 1),
        "above_3_percent": int((apart[1:] > _NOTABLE).sum()),
        "shuffled_median_percent": round(100 * float(np.median(shuffled[1:])), 1),
        "shuffled_largest_percent": round(100 * float(shuffled[1:].max()), 1),
    }


def _apart(times_us: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Slowest over fastest place less one, by column of `times_us`; medians over the rounds."""
    medians = np.array([np.median(times_us[places == place], axis=0) for place in range(_PLACES)])
    return np.asarray(medians.max(axis=0) / medians.min(axis=0) - 1)


def main() -> None:
    run = run_of(__file__, __doc__, measure, MODELS)
    rows = [{"model": name, **result} for name, result in run.found]
    for row in rows:
        print(row, flush=True)
    largest = ", ".join(f"{row['model']} {row['largest_percent']} %" for row in rows)
    headline = f"slowest over fastest place, largest difference of an operator: {largest}"
    print(headline)
    store(__file__, headline, {"models": rows}, whole=run.whole)


if __name__ == "__main__":
    main()
