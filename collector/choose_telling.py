#!/usr/bin/env python3
"""Choose the operators that `op-profiler calibrate` measures first: writes telling_points.json next to `telling.py`.

    python collector/choose_telling.py

The first run takes forty minutes, most of them for lowering and reading loops; nothing is measured. The script selects
the random operators that are most informative about those of the included networks
(`op_profiler.prediction.latency.design`). Run it again if the drawn operators, the description of loops or the included
data has changed; without a change, the same operators are selected again.
"""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "python"))

if TYPE_CHECKING:
    from op_profiler.operators.kinds.point import Point
    from op_profiler.operators.operator import Operator

_POOL, _CHOSEN = 8000, 800
_BATCH_BYTES = 2e7
"""What a batch of calibration moves between two calls of an operator, about."""
_NOTED_EACH = 500


def main() -> None:
    from op_profiler.collection.sampling.telling import POINTS_FILE, digest, pool
    from op_profiler.prediction.latency.design import most_informative, of_networks
    from op_profiler.prediction.latency.loops import loops_of
    from op_profiler.prediction.latency.open_predictor import open_predictor, shipped_examples
    from op_profiler.prediction.latency.query import Query

    ships = shipped_examples()
    wanted, weight = of_networks(ships)
    print(f"{len(wanted)} operators of the included networks", flush=True)
    largest = max(ships, key=len)
    device = largest.devices[int(largest.device[0])]
    kernels = open_predictor(device=device.key).base.kernels
    assert kernels is not None, "the included data has loops"
    points = list(itertools.islice(pool(), _POOL))
    places, operators = lowered(points, device.target)
    loops = loops_of(operators, device.target, print)
    candidates = Query.of(operators, loops=loops, traffic_bytes=_BATCH_BYTES).sampled()
    known = candidates.has_loops.nonzero()[0]
    taken = most_informative(candidates.take(known), wanted, weight, kernels, _CHOSEN)
    numbers = [places[known[at]] for at in taken]
    found = {"digest": digest([points[at] for at in numbers]), "numbers": numbers}
    POINTS_FILE.write_text(json.dumps(found) + "\n", encoding="utf-8")
    print(f"{len(numbers)} of {len(points)} points: {POINTS_FILE}")


def lowered(points: list[Point], target: str) -> tuple[list[int], list[Operator]]:
    """Of each point that the compiler takes its number, and the operator that computes most or moves most."""
    from op_profiler.collection.sampling.batches import operators_of_points
    from op_profiler.targets.target import resolve_target

    resolved = resolve_target(target)
    numbers, operators = [], []
    for number, point in enumerate(points):
        if number % _NOTED_EACH == 0:
            print(f"lowering, {number} of {len(points)}", flush=True)
        found = [one.operator for one in operators_of_points([point], resolved, 0)]
        if found:
            numbers.append(number)
            operators.append(max(found, key=lambda one: (one.flops, one.bytes_read + one.bytes_written)))
    return numbers, operators


if __name__ == "__main__":
    main()
