"""What does it matter where a model lies in memory? Sixteen copies of a model, measured in turn in one process.

    python benchmarks/placements.py [MODEL ...]        (default: mobilenet resnet-18; two minutes)

The machine is in the same state for all copies, so only their memory differs. The result contains the differences of
operators above 50 us between two copies, and between two sets of eight copies each, at one thread.

Goal: none; it is the reason why a run measures several copies (`measure/placements.py`).
"""

from __future__ import annotations

import argparse
import itertools
import json
import time

import numpy as np
from common import in_own_process, provenance, store

MODELS = ("mobilenet", "resnet-18")
_COPIES = 16
_SECONDS = 25.0
_ROUNDS_A_TURN = 3
_SMALLEST_US = 50.0
_CLOSE = np.log(1.03)


def measure(name: str) -> dict[str, float]:
    """Percentages of operators within 3 %, and 95 % quantiles of the differences."""
    from op_profiler.compilers.relay.graph_executor import bind_graph, load_graph
    from op_profiler.compilers.relay.lower import compile_model
    from op_profiler.compilers.tvm_build import load_tvm
    from op_profiler.frontends import FRONTENDS
    from op_profiler.frontends.frontend import ModelRequest
    from op_profiler.frontends.lowered_cache import load_cached
    from op_profiler.measure.threads import ThreadPool
    from op_profiler.targets.target import resolve_target

    tvm = load_tvm()
    model = load_cached(FRONTENDS.get("local"), ModelRequest(source="local", name=name))
    compiled = compile_model(model, resolve_target("llvm"))
    rng = np.random.default_rng(0)
    inputs = {spec.name: spec.random(rng) for spec in model.inputs}
    copies = [load_graph(compiled, tvm.cpu(), inputs)]
    for _ in range(_COPIES - 1):
        weights = {key: array.copyto(tvm.cpu()) for key, array in compiled.library.get_params().items()}
        copies.append(bind_graph(compiled, tvm.cpu(), inputs, weights=weights))
    ThreadPool().use(1)
    everything = [True] * len(copies[0].kernels)
    times_us: list[list[list[float]]] = [[] for _ in copies]
    until = time.monotonic() + _SECONDS
    while time.monotonic() < until:
        for copy, found in zip(copies, times_us):
            copy.run_model()
            found += [copy.walk("model", everything) for _ in range(_ROUNDS_A_TURN)]
    medians = np.array([np.median(found, axis=0) for found in times_us])
    large = medians[0] > _SMALLEST_US
    two = [np.abs(np.log(a / b))[large] for a, b in itertools.combinations(medians, 2)]
    sets = [np.median(np.concatenate(times_us[first::2]), axis=0) for first in (0, 1)]
    eight = np.abs(np.log(sets[0] / sets[1]))[large]
    return {
        "operators": int(large.sum()),
        "two_copies_within_3_percent": round(100 * float(np.mean(np.array(two) < _CLOSE)), 1),
        "two_copies_95_percent_below_percent": round(100 * float(np.quantile(two, 0.95)), 1),
        "two_sets_of_eight_within_3_percent": round(100 * float(np.mean(eight < _CLOSE)), 1),
        "two_sets_of_eight_95_percent_below_percent": round(100 * float(np.quantile(eight, 0.95)), 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure(arguments.one)))
        return
    print(provenance())
    rows = []
    for name in arguments.models or MODELS:
        found = in_own_process(__file__, ["--one", name])
        assert found is not None, f"{name} failed"
        rows.append({"model": name} | found)
        print(f"{name:12}", json.dumps(found), flush=True)
    two, eight = (
        ", ".join(f"{row[f'{which}_within_3_percent']} %" for row in rows)
        for which in ("two_copies", "two_sets_of_eight")
    )
    headline = f"operators within 3 % between two copies: {two}; between two sets of eight: {eight}"
    store(__file__, headline, {"models": rows}, whole=not arguments.models)


if __name__ == "__main__":
    main()
