"""Are operators on all cores faster by blocks or by rows, when the host's cores are close to each other or far apart?

    python benchmarks/cut_by_rows.py [MODEL ...]        (about two minutes each)

The operators run one after the other on worker threads, in turns by blocks on all cores, by rows on all cores, and on
one core. A round counts as *far* if blocks take over 1.2 times the time on one core divided by the number of cores. A
host may move its virtual cores at any minute; a state that did not occur is left out.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from typing import Any

import numpy as np
from common import requests_of, run_of, store

MODELS = ("squeezenet_v1.1", "densenet-121", "randwire-0")
_SECONDS = 90.0
_FAR = 1.2
_WAYS = ("blocks", "rows", "one_core_over_cores")


def measure(name: str) -> dict[str, Any]:
    """By state of the host: rounds, and medians of the sum of all operators in microseconds, with quartiles."""
    from op_profiler.cores import usable_cores
    from op_profiler.parallel.corun.costs import warm_durations_us
    from op_profiler.parallel.corun.models import in_order, load_models
    from op_profiler.parallel.planning.plan import BLOCKS, ROWS

    requests = requests_of(name)
    models = load_models(requests, cores=usable_cores(), merge=False, announce=lambda text: None)
    cores = len(models.cores)
    rounds: dict[str, list[list[float]]] = {"near": [], "far": []}
    with contextlib.ExitStack() as stack:
        executors = []
        for split, threads in ((BLOCKS, cores), (ROWS, cores), (BLOCKS, 1)):
            cut = dataclasses.replace(models, split=split)
            executors.append(stack.enter_context(cut.executor(in_order(cut, threads))))
        end = time.monotonic() + _SECONDS
        while time.monotonic() < end:
            blocks, rows, one = (float(warm_durations_us(executor).sum()) for executor in executors)
            rounds["far" if blocks > _FAR * one / cores else "near"].append([blocks, rows, one / cores])
    return {
        state: {"rounds": len(found), "quartiles_us": np.percentile(found, (25, 50, 75), axis=0).T.tolist()}
        for state, found in rounds.items()
        if len(found) > 2
    }


def main() -> None:
    run = run_of(__file__, __doc__, measure, MODELS)
    print(f"{'model':18} {'cores':6} {'rounds':>6} {'blocks us':>24} {'rows us':>24} {'one core over cores us':>24}")
    rows = []
    for name, found in run.found:
        for state, medians in found.items():
            texts = (f"{middle:.0f} ({low:.0f} to {high:.0f})" for low, middle, high in medians["quartiles_us"])
            print(
                f"{name:18} {state:6} {medians['rounds']:>6} " + " ".join(f"{text:>24}" for text in texts), flush=True
            )
            row = {"model": name, "cores": state, "rounds": medians["rounds"]}
            for way, (low, middle, high) in zip(_WAYS, medians["quartiles_us"], strict=True):
                row |= {f"{way}_us": round(middle), f"{way}_low_us": round(low), f"{way}_high_us": round(high)}
            rows.append(row)
    far = [row["rows_us"] / row["blocks_us"] for row in rows if row["cores"] == "far"]
    gain = f"{min(far):.2f} to {max(far):.2f} of the time of blocks" if far else "no figure: they never were"
    store(__file__, f"where the cores are far apart, rows take {gain}", {"states": rows}, whole=run.whole)


if __name__ == "__main__":
    main()
