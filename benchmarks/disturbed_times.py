"""Are times that another process disturbed marked? Collections beside a process that spins half of the time.

    python benchmarks/disturbed_times.py [--keep FILE] [GROUP ...]     (eight minutes; --keep goes on where it stopped)

squeezenet is collected at two threads: 20 times with the background load read, and 20 times with the times of the
rounds only, as on machines where the load cannot be read. Meanwhile, a process spins on one of its cores in phases of 5
to 500 ms. A collection without this process precedes and follows each group of four; the mean of both is the quiet
time.

Goal: no unmarked median is more than 5 % off the quiet time.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from common import every, requests_of, run_of, store

if TYPE_CHECKING:
    from common import Tables

_MODEL = "local:squeezenet_v1.1"
_THREADS = 2
_OF_GROUP = 4
_METERED, _ROUNDS_ALONE = "metered", "rounds-alone"
GROUPS = tuple(f"{how}-{number}" for number in range(5) for how in (_METERED, _ROUNDS_ALONE))
_PATIENCE_SECONDS = "3"
_CLOSE = 0.05
_SPIN = """
import os, random, sys, time
os.sched_setaffinity(0, {int(sys.argv[1])})
while True:
    until = time.monotonic() + random.uniform(0.005, 0.5)
    while time.monotonic() < until:
        pass
    time.sleep(random.uniform(0.005, 0.5))
"""


@contextlib.contextmanager
def spinning(core: int) -> Iterator[None]:
    """Keep a core busy for a random half of the time."""
    with subprocess.Popen([sys.executable, "-c", _SPIN, str(core)]) as process:
        try:
            yield
        finally:
            process.kill()


def measure(group: str) -> dict[str, Any]:
    """``collections``: one a disturbed collection of the group, each beside the quiet time."""
    os.environ["OP_PROFILER_PATIENCE_SECONDS"] = _PATIENCE_SECONDS
    from op_profiler.building.build import build_model
    from op_profiler.building.requested_inputs import random_inputs
    from op_profiler.building.requested_model import load_model
    from op_profiler.targets.open_machine import open_machine

    (request,) = requests_of(_MODEL)
    model, _, target = load_model(request)
    machine: Any = open_machine("llvm", target, None)
    if group.startswith(_ROUNDS_ALONE):
        machine.meter = lambda threads: None
    built = build_model(request, model, target).compiled
    loaded = machine.load(built, random_inputs(list(model.inputs)), 1)
    first = _collected(machine, loaded, built)
    with spinning(machine.threads.core_set(_THREADS)[-1]):
        found = [_collected(machine, loaded, built) for _ in range(_OF_GROUP)]
    last = _collected(machine, loaded, built)
    quiet_us = float(np.mean([first["whole_us"], last["whole_us"]]))
    moved = abs(last["whole_us"] / first["whole_us"] - 1)
    return {
        "collections": [
            one
            | {"quiet_us": round(quiet_us, 1), "off_percent": round(100 * (one["whole_us"] / quiet_us - 1), 1)}
            | {"quiet_moved_percent": round(100 * moved, 1), "quiet_marked": bool(first["marked"] or last["marked"])}
            for one in found
        ]
    }


def _collected(machine: Any, loaded: Any, built: Any) -> dict[str, Any]:
    """What a worker process does with a loaded model, and what it then stores of the whole model."""
    import dataclasses

    from op_profiler.collection.request import CollectRequest, Measuring
    from op_profiler.collection.session import Session
    from op_profiler.measure.samples import Samples

    (request,) = requests_of(_MODEL)
    build = dataclasses.replace(request, threads=(_THREADS,))
    wanted = CollectRequest(build=build, measuring=Measuring(energy="none"))
    operators = [built.by_label[label].operator for label in loaded.labels]
    session = Session(wanted, machine, loaded, operators, remembered=False)
    started = time.monotonic()
    (result,) = session.measure({_THREADS: Samples()}, lambda *_: None)
    timing, whole = result.timing, result.timing.whole_model
    marks = ["background load" if whole.foreign_load else "", timing.disturbed_by or ""]
    assert whole.median_us is not None and timing.sum_of_operators_us is not None
    return {
        "whole_us": round(whole.median_us, 1),
        "median_of_all_us": round(float(np.median(whole.samples_us)), 1),
        "sum_us": round(timing.sum_of_operators_us, 1),
        "ratio": None if timing.ratio is None else round(timing.ratio, 4),
        "quiet_share": whole.quiet_share,
        "rounds": len(whole.samples_us),
        "marked": "; ".join(filter(None, marks)),
        "took_s": round(time.monotonic() - started, 1),
    }


def reached(tables: Tables) -> bool | None:
    """Return whether the stored tables reach the goal, or None if a number that it needs is missing.

    Unknown are an unmarked median near a quiet time that was disturbed itself, and a run without an unmarked median.
    """
    rows = tables.get("collections", ())
    if all(row["marked"] != "" for row in rows):
        return None
    return every(row["marked"] != "" or _near(row) for row in rows)


def _near(row: Mapping[str, Any]) -> bool | None:
    """Return whether a median is near the quiet time, or None if that was disturbed itself."""
    return False if _is_off(row) else None if _is_unsure(row) else True


def _is_off(row: Mapping[str, Any]) -> bool:
    return bool(abs(row["off_percent"]) > 100 * _CLOSE)


def _is_unsure(row: Mapping[str, Any]) -> bool:
    """Return whether the quiet time was disturbed itself."""
    return bool(row["quiet_marked"] or row["quiet_moved_percent"] > 100 * _CLOSE)


def main() -> None:
    run = run_of(__file__, __doc__, measure, GROUPS)
    rows = [{"group": one.name, **row} for one in run.found for row in one.result["collections"]]
    for row in rows:
        print(row, flush=True)
    unmarked = [row for row in rows if not row["marked"]]
    unsure = sum(map(_is_unsure, rows))
    wrong = list(filter(_is_off, unmarked))
    most = max((abs(row["off_percent"]) for row in unmarked), default=0.0)
    before = max((abs(row["median_of_all_us"] / row["quiet_us"] - 1) for row in rows), default=0.0)
    parts = [
        f"{len(rows) - len(unmarked)} of {len(rows)} collections next to a process that spins half of the time are "
        "marked as disturbed"
    ]
    if unmarked:
        parts.append(
            f"{len(wrong)} of the {len(unmarked)} unmarked medians differ by more than {_CLOSE:.0%} from the time "
            f"without the spinning process, by at most {most} %"
        )
    parts += [
        f"medians over all rounds, including disturbed rounds, differ by up to {before:.0%} from the time without the "
        "spinning process",
        f"for {unsure} collections, the measurement without the spinning process was itself disturbed",
    ]
    headline = "; ".join(parts)
    print(headline)
    store(__file__, headline, {"collections": rows}, whole=run.whole)


if __name__ == "__main__":
    main()
