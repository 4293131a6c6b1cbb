"""For which pairs of operators is tuning together faster than tuning each in isolation?

    python benchmarks/contended_pairs.py [NAME ...] [--keep FILE]     (15 minutes by estimate; --keep goes on)

The pairs of single operators compete for memory bandwidth (products of one row), for the cache (products whose weights
fit into it separately but not together), or for the execution units (convolutions whose channels are a prime number; on
hyperthreads only). One pair shares nothing but the cores. Sizes follow from the caches of this machine. The timed plans
are those of `collaborate.py`.

`--policy auto` tunes operators together if they compete for a resource for which each pair here was significantly
faster: `GAINS` in `op_profiler.parallel.corun.contention`, which a test compares with this result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from collaborate import measure_requests
from common import run_of, store

if TYPE_CHECKING:
    from op_profiler.building.request import BuildRequest
    from op_profiler.parallel.corun.models import Models

Shapes = tuple[tuple[int, ...], ...]
_ROWS = 32
_STEP = 64


def pairs() -> dict[str, tuple[str, tuple[Shapes, Shapes]]]:
    """By name the operator of the source ``simple``, and the shapes of its tensors, of both."""
    from op_profiler.cores import usable_cores
    from op_profiler.measure.caches import caches_in_use_bytes

    # The side of a square weight of float32 that takes three fifths of the caches.
    side = int((0.6 * caches_in_use_bytes(range(usable_cores())) / 4) ** 0.5) // _STEP * _STEP
    dense = {rows: ((rows, side), (side, side)) for rows in (1, _ROWS)}
    wide = ((_ROWS, side // 2), (2 * side, side // 2))
    return {
        "products of one row": ("dense", (dense[1], ((1, side // 2), (2 * side, side // 2)))),
        "weights beyond the cache": ("dense", (dense[_ROWS], wide)),
        "prime channels": ("conv2d", (((1, 113, 29, 29), (113, 113, 3, 3)), ((1, 109, 31, 31), (109, 109, 3, 3)))),
        "prime columns": ("dense", (((64, 509), (1021, 509)), ((64, 1021), (509, 1021)))),
        "nothing but cores": ("conv2d", (((1, 64, 28, 28), (64, 64, 3, 3)), ((1, 128, 14, 14), (128, 128, 3, 3)))),
    }


def requests_of_pair(name: str) -> tuple[BuildRequest, ...]:
    """What to build for a pair."""
    from op_profiler.building.request import BuildRequest
    from op_profiler.frontends.frontend import ModelRequest

    operator, both = pairs()[name]
    models = (ModelRequest(source="simple", name=operator, input_shapes=shapes) for shapes in both)
    return tuple(BuildRequest(model=model) for model in models)


def measure(name: str) -> dict[str, Any]:
    """As of `collaborate.py`, and what the pair competes for."""
    found = measure_requests(requests_of_pair(name), contention_of)
    plan = found["plans"]["collaborate"]
    (over, low, high), (speedup, *_) = plan["over_alone"], plan["speedup"]
    return {
        "pair": name,
        "contention": found["about"],
        "stages_side_by_side": found["shared_stages"],
        "sequential_us": round(found["sequential_us"]),
        "together_us": round(plan["us"]),
        "speedup": round(speedup, 3),
        "over_tuned_alone": round(over, 3),
        "over_low": round(low, 3),
        "over_high": round(high, 3),
        "background_load": found["foreign_load"],
    }


def contention_of(models: Models) -> str | None:
    """What the heavy operators of a pair compete for."""
    from op_profiler.parallel.corun.contention import SharedParts

    heaviest = sorted((node.operator for node in models.graph.nodes), key=lambda one: -one.flops)[:2]
    return SharedParts.of(models.cores).contention(heaviest)


def main() -> None:
    run = run_of(__file__, __doc__, measure, list(pairs()))
    rows = [found.result for found in run.found]
    for row in rows:
        print(row, flush=True)
    gains = [row["over_tuned_alone"] for row in rows]
    surely = [row["pair"] for row in rows if row["over_low"] > 1]
    headline = (
        f"tuned together over tuned in isolation: {min(gains):.3f} to {max(gains):.3f} times as fast; surely faster: "
    )
    store(__file__, headline + (", ".join(surely) or "none"), {"pairs": rows}, whole=run.whole)


if __name__ == "__main__":
    main()
