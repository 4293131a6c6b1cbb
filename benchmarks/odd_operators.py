"""How far off are single operators with odd attributes and sizes, and do their intervals hold?

    python benchmarks/odd_operators.py [--from N] [--count N] [--final] [--keep FILE] [--predictor FILE]

Operators of ONNX are drawn (`odd_operators_common.py`): each of those that compute something, attributes off their
defaults, 100 to 10,000,000 elements, batches of 1, 8 and 32, float32 and float16. Each is predicted for this processor
first, and then built and measured on one thread, within a minute. --keep stores measured times, a line of JSON each,
and the next run continues there and only predicts again.

Seeds are of three kinds, as those of drawn networks (``collector/drawn_networks/seeds.py``). A run shows development
seeds. --final also shows test seeds, which are spent by that (`network_sets_common.py`), and stores the result.

Goal: no answer wrong by a factor of 3 with an interval that excludes the truth, 90 % within a factor of 1.5, intervals
that hold 88 to 92 %.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from common import at_least, at_most, every, measured_on, provenance, store, stored_tables
from network_sets_common import DEVELOPMENT, SPENT, TEST, kind_of_seed, spend_seeds, spent_seeds

if TYPE_CHECKING:
    from common import Tables

    from op_profiler.prediction.latency.answer import Chosen

_SECONDS = 60.0
"""For the build and the measurement of one operator."""
_OF_TIMES_SECONDS, _FEWEST_TIMES, _MOST_TIMES = 1.0, 5, 200
_FACTORS = (1.25, 1.5, 2, 4)
_WORST = 20
_FEWEST = 100  # operators of the test set, from which on it is judged


@dataclasses.dataclass(frozen=True)
class Judged:
    """An operator, what was predicted of it and what was measured; microseconds.

    Attributes:
        predicted_us, high_us: None where there is only a least time.
    """

    seed: int
    name: str
    predicted_us: float | None
    low_us: float
    high_us: float | None
    measured_us: float
    outside: bool

    @property
    def factor(self) -> float:
        """How far off the prediction is, 1 or more; NaN without one."""
        if self.predicted_us is None:
            return math.nan
        return max(self.predicted_us / self.measured_us, self.measured_us / self.predicted_us)

    @property
    def holds(self) -> bool:
        """Whether the measured time is inside the interval, or above the least time."""
        return self.low_us <= self.measured_us <= (math.inf if self.high_us is None else self.high_us)


class Worker:
    """A process that predicts and measures operators, started again where one ends or takes too long."""

    def __init__(self, options: Sequence[str]) -> None:
        self._options = options
        self._process: subprocess.Popen[str] | None = None

    def ask(self, seed: int, *, measure: bool) -> dict[str, Any]:
        """What the process found; of one that ended, why."""
        if self._process is None:
            command = [sys.executable, __file__, "--serve", *self._options]
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            self._answer(600.0)  # until the predictor is there
        print(json.dumps({"seed": seed, "measure": measure}), file=self._process.stdin, flush=True)
        line = self._answer(_SECONDS)
        if line:
            return dict(json.loads(line))
        self.close()
        return {"error": "it took too long, or its process ended"}

    def _answer(self, seconds: float) -> str:
        assert self._process is not None
        stream: IO[str] | None = self._process.stdout
        assert stream is not None
        ready, _, _ = select.select([stream], [], [], seconds)
        return stream.readline() if ready else ""

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def serve(predictor: str | None) -> None:
    """Answer seeds that come in, a line of JSON each, with a line each."""
    from op_profiler.child_processes import end_with_parent

    end_with_parent()
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what TVM prints is no answer
    from odd_operators_common import drawn

    from op_profiler.prediction.latency.answer import choose
    from op_profiler.prediction.latency.request import PredictRequest

    request = PredictRequest(check_outputs="never")
    if predictor is None:
        request = dataclasses.replace(request, device=processor_here())
    else:
        request = dataclasses.replace(request, predictor=predictor)
    chosen = choose(request, lambda text: None)
    print("ready", file=out, flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            found = _found(chosen, drawn(asked["seed"]).model, measure=asked["measure"])
        except Exception as error:  # an importer may raise anything
            found = {"error": f"{type(error).__name__}: {error}"[:300]}
        print(json.dumps(found), file=out, flush=True)


def processor_here() -> str:
    """Return the name of this processor, as for ``--device``."""
    from op_profiler.targets.llvm.identity import processor_name

    return processor_name()


def _found(chosen: Chosen, model: Any, *, measure: bool) -> dict[str, Any]:
    """What is predicted of a model, and then what its kernels take, summed up."""
    import onnx

    from op_profiler.frontends.frontend import ModelRequest
    from op_profiler.prediction.latency.answer import network_of
    from op_profiler.prediction.latency.network import predict_network

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "drawn.onnx")
        onnx.save(model, path)
        request = dataclasses.replace(chosen.request, model=ModelRequest(source="file", name=str(path)))
        network, _ = network_of(chosen, request, lambda text: None)
        said = predict_network(chosen.predictor, network)
        numbers = {"predicted_us": said.total_us, "low_us": said.low_us, "high_us": said.high_us}
        found: dict[str, Any] = {name: value if math.isfinite(value) else None for name, value in numbers.items()}
        found |= {"outside": bool(said.outside)}
        found |= {"tiers": said.operators.tiers(), "kernels": [one.name for one in network.operators]}
        if measure:
            found["measured_us"] = time_us(request.model, chosen.target)
    return found


def time_us(model: Any, target_name: str) -> float:
    """All kernels of a model after each other on one thread: the sum of their medians.

    Each round has values of its own, because a processor learns the branches of up to 50,000 values that repeat: `sin`
    takes a third of its time then.
    """
    import numpy as np

    from op_profiler.building.requested_target import target_for
    from op_profiler.compilers.relay.lower import compile_model
    from op_profiler.frontends import FRONTENDS
    from op_profiler.measure.kernels import GraphKernels
    from op_profiler.targets import TARGETS
    from op_profiler.targets.llvm.host import Host
    from op_profiler.targets.target import resolve_target

    imported = FRONTENDS.get("file").load(model)
    target = target_for(imported, TARGETS.get("llvm"), "float32", resolve_target(target_name))
    compiled = compile_model(imported, target)
    rng = np.random.default_rng(0)
    host = Host(target)
    loaded = host.load(compiled, {spec.name: spec.random(rng) for spec in imported.inputs}, 1)
    assert isinstance(loaded, GraphKernels)
    host.threads.use(1)
    loaded.run_model()
    times: list[list[float]] = []
    until = time.monotonic() + _OF_TIMES_SECONDS
    while len(times) < _FEWEST_TIMES or (time.monotonic() < until and len(times) < _MOST_TIMES):
        loaded.set_inputs({spec.name: spec.random(rng) for spec in imported.inputs})
        times.append(loaded.walk("model", [True] * len(loaded.labels)))
    each = np.median(np.array(times), axis=0) - (loaded.call_overhead_us() or 0.0)
    return float(np.maximum(each, 0.0).sum())


def judged(seeds: Sequence[int], kept: Path | None, options: Sequence[str]) -> Iterator[Judged]:
    """Every operator of some seeds that can be imported, built and measured.

    Args:
        kept: file of measured times, of this run and of earlier ones on the same machine and with the same versions.
    """
    from odd_operators_common import drawn

    about = measured_on()
    on = {name: about[name] for name in ("processor", "machine", "tvm")}
    lines = kept.read_text().splitlines() if kept is not None and kept.exists() else []
    entries = [entry for entry in map(json.loads, lines) if entry["on"] == on]
    known = {(entry["seed"], entry["name"]): entry.get("measured_us") for entry in entries}
    worker = Worker(options)
    try:
        for seed in seeds:
            name = drawn(seed).name
            if (seed, name) in known and known[seed, name] is None:
                continue  # it failed before
            found = worker.ask(seed, measure=(seed, name) not in known)
            measured_us = found.get("measured_us", known.get((seed, name)))
            if "error" in found:
                print(f"{seed} {name}: {found['error']}", file=sys.stderr)
            if kept is not None and (seed, name) not in known:
                entry = {"seed": seed, "name": name, "measured_us": measured_us, "error": found.get("error")}
                with kept.open("a") as file:
                    file.write(json.dumps({**entry, "on": on}) + "\n")
            if measured_us and "error" not in found:
                values = {key: found[key] for key in ("predicted_us", "high_us", "outside")}
                low_us = found["low_us"] or 0.0
                yield Judged(seed=seed, name=name, measured_us=measured_us, low_us=low_us, **values)
    finally:
        worker.close()


def shares(some: Sequence[Judged], of: str) -> dict[str, Any]:
    """How many are near, over those with an estimate, and how many intervals hold, over all."""
    answered = [one for one in some if one.predicted_us is not None]
    count = max(len(answered), 1)
    widths = sorted(math.sqrt((one.high_us or 0.0) / one.low_us) for one in answered if one.low_us)

    def near(factor: float) -> float:
        return round(100 * sum(one.factor <= factor for one in answered) / count, 1)

    return {
        "of": of,
        "operators": len(some),
        "with_an_estimate": len(answered),
        **{f"within_{str(factor).replace('.', '_')}_percent": near(factor) for factor in _FACTORS},
        "inside_interval_percent": round(100 * sum(one.holds for one in answered) / count, 1),
        "wrong_by_3_and_outside": sum(one.factor > 3 and not one.holds for one in answered),
        "median_interval_factor": round(widths[len(widths) // 2], 2) if widths else None,
        "faster_than_least_time": sum(not one.holds for one in some if one.predicted_us is None),
    }


def rows_of(some: Sequence[Judged], of: str) -> list[dict[str, Any]]:
    """The worst ones."""
    worst = sorted((one for one in some if one.predicted_us is not None), key=lambda one: -one.factor)[:_WORST]
    return [
        {
            "of": of,
            "seed": one.seed,
            "operator": one.name,
            "predicted_us": _rounded(one.predicted_us),
            "low_us": _rounded(one.low_us),
            "high_us": _rounded(one.high_us),
            "measured_us": _rounded(one.measured_us),
            "factor": round(one.factor, 2),
            "interval_holds": one.holds,
        }
        for one in worst
    ]


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")


def reached(tables: Tables) -> bool | None:
    """Return whether the stored tables reach the goal, or None if the test set has fewer than `_FEWEST` operators."""
    rows = [row for row in tables.get("shares", ()) if row["of"] == TEST]
    return every(_reached_by(row) for row in rows)


def _reached_by(row: dict[str, Any] | Any) -> bool | None:
    if row["with_an_estimate"] < _FEWEST:
        return None
    return every(
        [
            at_most(row["wrong_by_3_and_outside"], 0),
            at_least(row["within_1_5_percent"], 90),
            at_least(row["inside_interval_percent"], 88),
            at_most(row["inside_interval_percent"], 92),
        ]
    )


def headline_of(row: dict[str, Any]) -> str:
    return (
        f"{row['of']}: {row['within_1_5_percent']} % of {row['with_an_estimate']} operators within a factor of 1.5, "
        f"{row['inside_interval_percent']} % inside the interval, {row['wrong_by_3_and_outside']} wrong by a factor "
        "of 3 with an interval that excludes the truth"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--from", dest="first", type=int, default=0, help="least seed")
    parser.add_argument("--count", type=int, default=500, help="operators of each kind of seed that is shown")
    parser.add_argument("--final", action="store_true", help="also the test set, whose seeds are spent by that")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="measured times of earlier runs")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no further operator after this time")
    parser.add_argument("--predictor", metavar="FILE", help="a predictor in place of the included one")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments.predictor)
        return
    print(provenance())
    until = time.monotonic() + arguments.seconds
    spent = spent_seeds(script=__file__)
    tables: dict[str, list[dict[str, Any]]] = {"shares": [], "worst": []}
    whole = arguments.final
    for of in (DEVELOPMENT, TEST) if arguments.final else (DEVELOPMENT,):
        seeds = seeds_of(of, arguments.first, arguments.count, spent)
        if of == TEST:
            spend_seeds(__file__, measured_on()["processor"], "operators", seeds)
        found = []
        for one in judged(seeds, arguments.keep, ["--predictor", arguments.predictor] if arguments.predictor else []):
            found.append(one)
            print(line_of(one), flush=True)
            if time.monotonic() > until:
                whole = False
                break
        tables["shares"].append(shares(found, of))
        tables["worst"] += rows_of(found, of)
    for row in tables["worst"]:
        print(row)
    for row in tables["shares"]:
        print(row)
    if SPENT in (stored := stored_tables(__file__)):
        tables[SPENT] = stored[SPENT]
    headline = headline_of(tables["shares"][-1])
    print(headline)
    whole = whole and not arguments.predictor
    store(__file__, headline, tables, whole=whole)


def seeds_of(of: str, first: int, count: int, spent: frozenset[int]) -> list[int]:
    """The least seeds of a kind; spent test seeds are of the development set, and give no figure."""
    kinds = ((seed, kind_of_seed(seed)) for seed in range(first, first + 10 * count + 3 * len(spent)))
    return [seed for seed, kind in kinds if kind == of and seed not in spent][:count]


def line_of(one: Judged) -> str:
    """An operator in one line, as it is printed."""
    interval = f"({one.low_us:.4g} to {one.high_us:.4g})" if one.high_us is not None else f"(at least {one.low_us:.4g})"
    said = f"{one.predicted_us:9.4g}" if one.predicted_us is not None else "     none"
    return f"{one.seed:5} {one.measured_us:9.4g} us, {said} {interval}{'' if one.holds else ' OUTSIDE'} {one.name}"


if __name__ == "__main__":
    main()
