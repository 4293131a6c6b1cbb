"""How do both compilers compare: times of whole models next to torch, sums of operators, and times of collections?

    python benchmarks/compilers.py [MODEL ...] [--keep FILE]      (about half an hour for all of them)

Each side of a model (a compiler or torch) runs in a separate process, and the processes run in turns. The compilers get
the same graph and weights; torch runs the network of that name of torchvision or transformers, if there is one. Relax's
own pipeline has no schedules for processors, so a run of a larger model takes seconds, and of bert more than twenty: it
has one turn, and if a run is long, its first run counts. *stock runs* is the number of runs behind its median. A side
that fails, or that takes too long to build or to run, is left out.

Then the model is collected twice with each compiler, with empty caches. The first collection gives the distance of the
sum of operators from the whole model. Both collections are timed next to two builds: the compiler's own (``stock``, its
function and default pipeline in a separate process), and the build in the first collection. One model takes about four
minutes. ``--keep`` skips the models that the file contains for this commit and machine. With BENCHMARK_DATASETS=FOLDER,
the datasets of the collections are stored in this existing folder, one for each model and compiler.

Goal: ours within 1.05 of Relay's in the geometric mean, and within 1.15 for every network; sums within 2 % in the
median and 5 % at worst.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from collection_common import COMPILERS, cost_of, cost_row, stage_row
from common import FIGURE_MODELS, ROOT, at_most, every, requests_of, run_of, store

if TYPE_CHECKING:
    from common import Tables

SIDES = ("relay", "relax", "stock", "torch")
_BERT = "transformers:bert"
_TORCH = {
    "local:resnet-18": "resnet18",
    "local:resnet-50": "resnet50",
    "local:squeezenet_v1.1": "squeezenet1_1",
    "local:inception_v3": "inception_v3",
    "local:densenet-121": "densenet121",
    _BERT: "bert",
}
"""Networks of torch; the others have none."""
_TOKENS = 128  # as the source transformers has them by itself
_ROUNDS, _ROUNDS_OF_STOCK = 9, 1
_SECONDS = 0.3  # of a turn, and one run at least behind the first
_LONG_SECONDS = 1.5  # a first run from here on counts: nothing that it warms is as long
_MAKING_SECONDS, _TURN_SECONDS, _TURN_OF_STOCK_SECONDS = 240, 20, 300  # of a side, which is left out if it takes longer

_ANSWER = re.compile(r"ready|[0-9.]+ [0-9]+")

Run = Callable[[int], Callable[[], Any]]
"""From a thread count to what runs the model once."""


def compiled(name: str, side: str) -> Run:
    """The model under a compiler of TVM."""
    import dataclasses

    from op_profiler.building.build import build_model
    from op_profiler.building.requested_inputs import random_inputs
    from op_profiler.building.requested_model import load_model
    from op_profiler.compilers.compiler import compiler_in_use
    from op_profiler.compilers.tvm_build import runtime_device
    from op_profiler.cores import usable_cores
    from op_profiler.measure.threads import ThreadPool

    (request,) = requests_of(name)
    compiler = "relay" if side == "relay" else "relax"
    pipeline = "stock" if side == "stock" else "default"
    request = dataclasses.replace(request, compiler=compiler, pipeline=pipeline, schedules="none")
    model, _, target = load_model(request)
    inputs, pool = random_inputs(list(model.inputs)), ThreadPool()
    pool.use(usable_cores())  # a pool of Relax gets no more threads later than it was first given
    built = build_model(request, model, target)
    run = compiler_in_use().load(built.compiled, runtime_device(target), inputs).run_model

    def at(threads: int) -> Callable[[], Any]:
        pool.use(threads)
        return run

    return at


def of_torch(name: str) -> Run:
    """torch's network of that name."""
    import torch

    from op_profiler.frontends.importers.torch import load_torchvision

    (request,), torchvision = requests_of(name), load_torchvision()
    if name == _BERT:
        from op_profiler.frontends.zoo import transformers as zoo  # imports torchvision too, which has to be there

        network, _ = zoo.build("bert", folder=False)
        examples = zoo.inputs_of(network, request.model, _TOKENS)
        call = functools.partial(network, **{key: made.tensor for key, made in examples.items()})
    else:
        network = getattr(torchvision.models, _TORCH[name])(weights=None).eval()
        data = torch.randn(1, 3, *((299, 299) if name == "local:inception_v3" else (224, 224)))
        call = functools.partial(network, data)

    def at(threads: int) -> Callable[[], Any]:
        torch.set_num_threads(threads)

        def run() -> None:
            with torch.inference_mode():
                call()

        return run

    return at


def serve(side: str, name: str) -> None:
    """Make the model; then, for each thread count on a line of input, tell a run's milliseconds, and of how many."""
    at = of_torch(name) if side == "torch" else compiled(name, side)
    print("ready", flush=True)
    for line in sys.stdin:
        run = at(int(line))
        first = timed(run)  # warms caches, pages and what a library makes anew at another thread count
        times = [first] if first >= _LONG_SECONDS else []
        until = time.perf_counter() + _SECONDS
        while not times or time.perf_counter() < until - first:
            times.append(timed(run))
        print(1e3 * float(np.median(times)), len(times), flush=True)


def timed(run: Callable[[], Any]) -> float:
    """Seconds of one call."""
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


class Turn(NamedTuple):
    """The median of the runs of a turn, and how many there were."""

    ms: float
    runs: int


class Side:
    """A process that measures one side."""

    def __init__(self, side: str, name: str) -> None:
        environment = dict(os.environ, PYTHONPATH=str(ROOT / "python"))
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--serve", side, name],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._side = side
        self.is_there = False

    def wait(self) -> None:
        """Until the model is made."""
        self.is_there = self._answer(_MAKING_SECONDS) == "ready"

    def turn(self, threads: int) -> Turn | None:
        """One turn; None where the process failed or took too long, after which it is not there."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.write(f"{threads}\n")
            self._process.stdin.flush()
        answer = self._answer(_TURN_OF_STOCK_SECONDS if self._side == "stock" else _TURN_SECONDS)
        self.is_there = bool(answer)
        if not answer:
            return None
        ms, runs = answer.split()
        return Turn(float(ms), int(runs))

    def _answer(self, seconds: float) -> str:
        """The next line that is ours; empty where the process ended or was ended after so long."""
        assert self._process.stdout is not None
        limit = threading.Timer(seconds, self._process.kill)
        limit.start()
        lines = iter(self._process.stdout.readline, "")
        found = next((line.strip() for line in lines if _ANSWER.fullmatch(line.strip())), "")
        limit.cancel()
        return found

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()


def measure(name: str) -> dict[str, Any]:
    """``turns`` as `in_turns`; ``collections`` by compiler, as of `cost_of`."""
    return {"turns": in_turns(name), "collections": {compiler: collected(name, compiler) for compiler in COMPILERS}}


def collected(name: str, compiler: str) -> dict[str, Any] | None:
    """As `cost_of`; the dataset stays where that is asked for."""
    folder = os.environ.get("BENCHMARK_DATASETS")
    db = Path(folder) / f"{name.replace(':', '-')}-{compiler}.db" if folder else None
    return cost_of(name, compiler, db)


def in_turns(name: str) -> dict[str, dict[str, Turn]]:
    """By thread count and side, the median of the turns and all of their runs."""
    from op_profiler.cores import usable_cores

    wanted = [side for side in SIDES if side != "torch" or name in _TORCH]
    sides = {side: Side(side, name) for side in wanted}  # made beside each other, since nothing is timed yet
    for one in sides.values():
        one.wait()
    counts = sorted({1, usable_cores()})
    turns: dict[int, dict[str, list[Turn]]] = {n: {side: [] for side in sides} for n in counts}
    for number in range(_ROUNDS):
        for threads in counts:
            for side, one in sides.items():
                if not one.is_there or (side == "stock" and number >= _ROUNDS_OF_STOCK):
                    continue
                turn = one.turn(threads)
                if turn is not None:
                    turns[threads][side].append(turn)
    whole = {side for side, one in sides.items() if one.is_there}
    for one in sides.values():
        one.close()
    return {
        str(n): {side: together(of_side) for side, of_side in found.items() if side in whole}
        for n, found in turns.items()
    }


def together(turns: list[Turn]) -> Turn:
    """Turns of one side as one."""
    return Turn(float(np.median([turn.ms for turn in turns])), sum(turn.runs for turn in turns))


def reached(tables: Tables) -> bool | None:
    """Return whether the stored tables reach the goal, or None if a number that it needs is missing.

    A network without a ratio, or a compiler without sums of operators, counts as unknown.
    """
    ratios = [row["ratio"] for row in tables.get("models", ())]
    known = [ratio for ratio in ratios if ratio]
    sums = {row["compiler"]: row for row in tables.get("together", ())}
    off = [row["sum_from_1_percent"] for row in tables.get("collections", ())]
    return every(
        [
            at_most(geometric_mean(known), 1.05) if ratios and len(known) == len(ratios) else None,
            every(at_most(ratio, 1.15) for ratio in ratios),
            *(at_most(sums[name]["sum_from_1_median_percent"], 2) if name in sums else None for name in COMPILERS),
            every(at_most(far, 5) for far in off),
        ]
    )


def geometric_mean(ratios: Sequence[float]) -> float:
    """Return the geometric mean of ratios of times."""
    return float(np.exp(np.mean(np.log(ratios))))


def main() -> None:
    if sys.argv[1:2] == ["--serve"]:
        serve(*sys.argv[2:4])
        return
    run = run_of(__file__, __doc__, measure, [f"{source}:{name}" for source, name in FIGURE_MODELS])
    print(f"{'model':20} {'threads':>7}" + "".join(f"{side + ' ms':>12}" for side in SIDES) + f"{'relax / relay':>15}")
    rows: list[dict[str, Any]] = []
    collections: list[dict[str, Any]] = []
    stages: list[dict[str, Any]] = []
    for one in run.found:
        collections += rows_of_collections(one.name, one.result["collections"])
        there = {compiler: cost for compiler, cost in one.result["collections"].items() if cost is not None}
        stages += [stage_row(one.name, compiler, cost) for compiler, cost in there.items()]
        for threads, turns in one.result["turns"].items():
            found = {side: ms for side, (ms, _) in turns.items()}
            ratio = found["relax"] / found["relay"] if {"relax", "relay"} <= found.keys() else None
            told = "".join(f"{found[side]:12.2f}" if side in found else f"{'-':>12}" for side in SIDES)
            print(f"{one.name:20} {threads:>7}{told}{'-' if ratio is None else f'{ratio:.3f}':>15}", flush=True)
            times = {f"{side}_ms": round(found[side], 3) if side in found else None for side in SIDES}
            of_stock = {"stock_runs": turns["stock"][1] if "stock" in turns else None}
            row = {"model": one.name, "threads": int(threads), **times, **of_stock}
            rows.append(row | {"ratio": ratio and round(ratio, 3)})
    ratios = [row["ratio"] for row in rows if row["ratio"]]
    if not ratios or not collections:
        return
    mean, worst = geometric_mean(ratios), max(ratios)
    headline = f"Relax with our schedules over Relay: {mean:.2f} in the geometric mean, {worst:.2f} at worst"
    print(headline)
    store(__file__, headline, {"models": rows, **tables_of(collections), "stages": stages}, whole=run.whole)


def rows_of_collections(name: str, found: dict[str, Any]) -> list[dict[str, Any]]:
    """A row a compiler; printed too."""
    rows = []
    for compiler, times in found.items():
        if times is None:
            print(f"{name:20} the collection under {compiler} failed", flush=True)
            continue
        distances = [abs(ratio - 1) for ratio in times["ratios"].values() if ratio is not None]
        row = cost_row(name, compiler, times)
        row["sum_from_1_percent"] = round(100 * max(distances), 1) if distances else None
        rows.append(row)
        print("  " + ", ".join(f"{key} {value}" for key, value in row.items()), flush=True)
    return rows


def tables_of(collections: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """The collections, and what they are together, by compiler."""
    together = []
    for compiler in COMPILERS:
        rows = [row for row in collections if row["compiler"] == compiler]
        far = [row["sum_from_1_percent"] for row in rows if row["sum_from_1_percent"] is not None]
        if not rows or not far:
            continue
        line = {"compiler": compiler, "sum_from_1_median_percent": round(float(np.median(far)), 1)}
        line["sum_from_1_worst_percent"] = max(far)
        for key in ("first_over_stock_build", "first_over_our_build", "second_of_first_percent"):
            known = [row[key] for row in rows if row[key] is not None]
            line[key] = round(float(np.median(known)), 2) if known else None
        together.append(line)
        print(", ".join(f"{key} {value}" for key, value in together[-1].items()), flush=True)
    return {"collections": collections, "together": together}


if __name__ == "__main__":
    main()
