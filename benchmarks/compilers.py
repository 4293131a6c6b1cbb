"""How fast are whole models under Relay's default schedules, ours for Relax, Relax's own pipeline, and in torch?

    python benchmarks/compilers.py [MODEL ...] [--keep FILE]      (about forty minutes for all of them)

All sides of one model are processes of their own that wait for each other, and run in turns. They are given the same
graph and weights, but torch, which runs torchvision's or transformers' network of that name, where there is one.
Relax's own pipeline schedules nothing for processors, so a run of a larger model takes seconds: it has fewer turns. A
side that fails, or takes too long to be made or to run, is left out; the others are told all the same. One model takes
two to three minutes, and ``--keep`` goes on behind those that are there.

Goal: ours within 1.05 of Relay's in the geometric mean, and within 1.15 for every network.
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
from collections.abc import Callable
from typing import Any

import numpy as np
from common import FIGURE_MODELS, ROOT, requests_of, run_of, store

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
_ROUNDS, _ROUNDS_OF_STOCK = 11, 3
_SECONDS = 0.4  # of a turn, and two runs at least where one takes less
_MAKING_SECONDS, _TURN_SECONDS = 240, 20  # of a side, which is left out where it takes longer

_ANSWER = re.compile(r"ready|[0-9.]+")

Run = Callable[[int], Callable[[], Any]]
"""From a thread count to what runs the model once."""


def compiled(name: str, side: str) -> Run:
    """The model under a compiler of TVM."""
    import dataclasses

    from op_profiler.building.build import build_model
    from op_profiler.building.requested_model import load_model, random_inputs
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
    from op_profiler.frontends.zoo import transformers as zoo

    (request,) = requests_of(name)
    if name == _BERT:
        network, _ = zoo.build("bert", folder=False)
        examples = zoo.inputs_of(network, request.model, _TOKENS)
        call = functools.partial(network, **{key: made.tensor for key, made in examples.items()})
    else:
        network = getattr(load_torchvision().models, _TORCH[name])(weights=None).eval()
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
    """Make the model; then, for each thread count on a line of input, tell the milliseconds of a run."""
    at = of_torch(name) if side == "torch" else compiled(name, side)
    print("ready", flush=True)
    for line in sys.stdin:
        run = at(int(line))
        first = timed(run)
        times = [first] if first >= _SECONDS else []  # a short one only warms caches and pages
        until = time.perf_counter() + _SECONDS
        while not times or time.perf_counter() < until - first:
            times.append(timed(run))
        print(1e3 * float(np.median(times)), flush=True)


def timed(run: Callable[[], Any]) -> float:
    """Seconds of one call."""
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


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
        self.is_there = self._answer(_MAKING_SECONDS) == "ready"

    def ms(self, threads: int) -> float | None:
        """One turn; None where the process failed or took too long, after which it is not there."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.write(f"{threads}\n")
            self._process.stdin.flush()
        answer = self._answer(_TURN_SECONDS)
        self.is_there = bool(answer)
        return float(answer) if answer else None

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
    """By thread count and side, the median of the turns in milliseconds."""
    from op_profiler.cores import usable_cores

    wanted = [side for side in SIDES if side != "torch" or name in _TORCH]
    sides = {side: Side(side, name) for side in wanted}
    counts = sorted({1, usable_cores()})
    turns: dict[int, dict[str, list[float]]] = {n: {side: [] for side in sides} for n in counts}
    for number in range(_ROUNDS):
        for threads in counts:
            for side, one in sides.items():
                if not one.is_there or (side == "stock" and number >= _ROUNDS_OF_STOCK):
                    continue
                ms = one.ms(threads)
                if ms is not None:
                    turns[threads][side].append(ms)
    whole = {side for side, one in sides.items() if one.is_there}
    for one in sides.values():
        one.close()
    return {
        str(n): {side: float(np.median(times)) for side, times in found.items() if side in whole}
        for n, found in turns.items()
    }


def main() -> None:
    if sys.argv[1:2] == ["--serve"]:
        serve(*sys.argv[2:4])
        return
    run = run_of(__file__, __doc__, measure, [f"{source}:{name}" for source, name in FIGURE_MODELS])
    print(f"{'model':20} {'threads':>7}" + "".join(f"{side + ' ms':>12}" for side in SIDES) + f"{'relax / relay':>15}")
    rows: list[dict[str, Any]] = []
    ratios: list[float] = []
    for one in run.found:
        for threads, found in one.result.items():
            ratio = found["relax"] / found["relay"] if {"relax", "relay"} <= found.keys() else None
            told = "".join(f"{found[side]:12.2f}" if side in found else f"{'-':>12}" for side in SIDES)
            print(f"{one.name:20} {threads:>7}{told}{'-' if ratio is None else f'{ratio:.3f}':>15}", flush=True)
            times = {f"{side}_ms": round(found[side], 3) if side in found else None for side in SIDES}
            rows.append({"model": one.name, "threads": int(threads), **times, "ratio": ratio and round(ratio, 3)})
            ratios += [] if ratio is None else [ratio]
    if not ratios:
        return
    mean, worst = float(np.exp(np.mean(np.log(ratios)))), max(ratios)
    headline = f"Relax with our schedules over Relay: {mean:.2f} in the geometric mean, {worst:.2f} at worst"
    print(headline)
    store(__file__, headline, {"models": rows}, whole=run.whole)


if __name__ == "__main__":
    main()
