"""How fast are predictions of the included predictor, and how long does it take to load?

    python benchmarks/query_speed.py

The results are: `op-profiler predict resnet-18` with an empty cache folder and again; exact look-ups and regressed
operators per second in a batch; a lowered ResNet-50; loading in a new process; a thousand networks of an architecture
search whose widths and depths differ; and look-ups by size of the table from 10^3 to 10^6 rows.

Goal: resnet-18 is predicted in 4 s cold and 1 s warm, a thousand networks within 10 s, a million look-ups a second, a
lowered network within 2 ms.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from common import ROOT, at_least, at_most, every, provenance, store

if TYPE_CHECKING:
    from common import Tables

_BATCH = 1_000_000
_REGRESSED = 200_000
_LOADING = (
    "import time; started = time.perf_counter();"
    "from op_profiler.prediction.latency import predictor_files as files;"
    "from op_profiler.prediction.latency.open_predictor import shipped_processor;"
    "files.load(shipped_processor().predictor); print(time.perf_counter() - started)"
)


def seconds(call: Callable[[], object], repeats: int = 7) -> tuple[float, float, float]:
    """Median, least and most of a few calls; one before them is not counted."""
    times = []
    for _ in range(repeats + 1):
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    ordered = sorted(times[1:])
    return ordered[len(ordered) // 2], ordered[0], ordered[-1]


def answer(what: str, unit: str, median: float, ends: tuple[float, float], digits: int = 2) -> dict[str, Any]:
    """A figure with its least and most, told and as a record."""
    low, high = sorted(ends)
    print(f"{what}: {median:,.{digits}f} {unit} ({low:,.{digits}f} to {high:,.{digits}f})", flush=True)
    numbers = {"median": median, "low": low, "high": high}
    return {"what": what, "unit": unit, **{name: round(value, digits or None) for name, value in numbers.items()}}


def loading() -> dict[str, Any]:
    """Measure how long loading the included predictor takes, in separate processes."""
    loads = sorted(
        float(subprocess.run([sys.executable, "-c", _LOADING], capture_output=True, text=True, check=True,
                             env={"PYTHONPATH": str(ROOT / "python"), "PATH": "/usr/bin:/bin"}).stdout)
        for _ in range(5)
    )  # fmt: skip
    return answer("loading in a new process, imports included", "s", loads[2], (loads[0], loads[-1]))


def commands() -> list[dict[str, Any]]:
    """Whole processes of the command: with an empty cache folder, and again with what the first one left there."""
    line = [sys.executable, "-c", "from op_profiler.cli import main; main()", "predict", "resnet-18", "--quiet"]
    times: tuple[list[float], list[float]] = [], []
    for _ in range(5):
        with tempfile.TemporaryDirectory() as folder:
            own = {"PYTHONPATH": str(ROOT / "python"), "OP_PROFILER_CACHE": folder, "XDG_DATA_HOME": folder}
            for one in times:
                started = time.perf_counter()
                subprocess.run(line, stdout=subprocess.DEVNULL, check=True, env=os.environ | own)
                one.append(time.perf_counter() - started)
    cold, warm = map(sorted, times)
    return [
        answer("op-profiler predict resnet-18, cold", "s", cold[2], (cold[0], cold[-1])),
        answer("op-profiler predict resnet-18, warm", "s", warm[2], (warm[0], warm[-1])),
    ]


def searched(count: int) -> list[list[Any]]:
    """Layers of networks of inverted residuals, as mobilenet_v2 has them, of random widths and depths."""
    import random

    from op_profiler.operators.kinds.convolutions import Conv2d
    from op_profiler.operators.kinds.elementwise import Elementwise
    from op_profiler.operators.kinds.pooling import Pool2d
    from op_profiler.operators.kinds.products import Dense
    from op_profiler.operators.kinds.sizes import channel_block

    rng = random.Random(0)
    found = []
    for _ in range(count):
        size, channels = 112, 8 * rng.randint(2, 6)
        layers: list[Any] = [Conv2d(1, 3, 224, 224, channels, 3, 2, epilogue="bias_relu6")]
        for stage in range(1, 5):
            width = 8 * stage * rng.randint(2, 8)
            for block in range(rng.randint(1, 4)):
                inner, stride = 6 * channels, 1 if block else 2
                layers.append(Conv2d(1, channels, size, size, inner, 1, 1, epilogue="bias_relu6"))
                layers.append(Conv2d(1, inner, size, size, inner, 3, stride, inner, "bias_relu6"))
                size //= stride
                layers.append(Conv2d(1, inner, size, size, width, 1, 1, epilogue="bias"))
                lanes = channel_block(width)
                layers += [Elementwise("add", (1, width // lanes, size, size, lanes))] if block else []
                channels = width
        layers.append(Pool2d(1, channels, size, size, size, size, "global_avg"))
        found.append([*layers, Dense(1, channels, 1000, "bias")])
    return found


def thousand_networks(predictor: Any) -> dict[str, Any]:
    """What it takes from layers to totals, with nothing known from an earlier search."""
    from op_profiler.operators.kinds.described import described
    from op_profiler.prediction.latency import features, query
    from op_profiler.prediction.latency.network import Network, predict_networks

    layers = searched(1000)

    def search() -> None:
        for kept in (described, features.operator_features, query._words, query._form, query._work):
            kept.cache_clear()
        networks = [Network.of(str(n), [described(layer) for layer in one]) for n, one in enumerate(layers)]
        predict_networks(predictor, networks)

    middle, least, most = seconds(search, 3)
    return answer(f"1,000 described networks of {sum(map(len, layers)):,} layers", "s", middle, (least, most))


def reached(tables: Tables) -> bool | None:
    """Return whether the stored tables reach the goal, or None if a number that it needs is missing.

    Medians are compared; the lowered network is resnet-50, with its operators measured and with none of them.
    """

    def medians(what: str) -> list[float]:
        return [row["median"] for row in tables.get("answers", ()) if row["what"].startswith(what)]

    return every(
        [
            every(at_most(s, 4) for s in medians("op-profiler predict resnet-18, cold")),
            every(at_most(s, 1) for s in medians("op-profiler predict resnet-18, warm")),
            every(at_most(s, 10) for s in medians("1,000 described networks")),
            every(at_least(millions, 1) for millions in medians("exact look-ups")),
            every(at_most(ms, 2) for ms in medians("lowered resnet-50")),
        ]
    )


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    import dataclasses

    import numpy as np

    from op_profiler.compilers.relay.lower import optimize
    from op_profiler.compilers.tvm_build import load_tvm
    from op_profiler.frontends import FRONTENDS
    from op_profiler.frontends.frontend import ModelRequest
    from op_profiler.frontends.lowered_cache import load_cached
    from op_profiler.prediction.latency import predictor_files
    from op_profiler.prediction.latency.network import Network, predict_network
    from op_profiler.prediction.latency.open_predictor import examples_for, shipped_processor
    from op_profiler.prediction.latency.operator_predictor import MeasuredTimes, query_of
    from op_profiler.targets.target import resolve_target

    print(provenance())
    path = shipped_processor().predictor
    assert path is not None, "a predictor in results/ is missing"
    cold, warm = commands()
    answers = [loading()]
    predictor = predictor_files.load(path)
    known = query_of(examples_for(db=None, device=predictor.device.key))
    rng = np.random.default_rng(0)
    answered = np.flatnonzero(predictor.measured.find(known)[0])  # no predictor learns from runs of troubled machines
    batch = known.take(rng.choice(answered, _BATCH))
    middle, least, most = seconds(lambda: predictor.predict(batch), 3)
    millions = _BATCH / 1e6
    answers.append(answer("exact look-ups", "million a second", millions / middle, (millions / most, millions / least)))
    unseen = known.take(rng.integers(0, len(known), _REGRESSED))
    unseen = dataclasses.replace(unseen, keys=rng.integers(0, 2**63, _REGRESSED, dtype=np.uint64))
    middle, least, most = seconds(lambda: predictor.predict(unseen), 3)
    rates = _REGRESSED / middle, (_REGRESSED / most, _REGRESSED / least)
    answers.append(answer("not measured", "operators a second", *rates, digits=0))
    load_tvm()
    model = load_cached(FRONTENDS.get("local"), ModelRequest(source="local", name="resnet-50"))
    network = Network.of_occurrences("resnet-50", optimize(model, resolve_target("llvm")))
    strangers = dataclasses.replace(network.query, keys=network.query.keys ^ np.uint64(1))
    for label, one in (("measured", network), ("not measured", dataclasses.replace(network, query=strangers))):
        middle, least, most = seconds(lambda one=one: predict_network(predictor, one), 50)  # type: ignore[misc]
        what = f"lowered resnet-50, {len(one.operators)} distinct operators, {label}"
        answers.append(answer(what, "ms", middle * 1e3, (least * 1e3, most * 1e3)))
    answers += [thousand_networks(predictor), cold, warm]
    sizes = []
    for size in (10**3, 10**4, 10**5, 10**6):
        keys = rng.integers(0, 2**63, size, dtype=np.uint64)
        held = dataclasses.replace(known.take(rng.integers(0, len(known), size)), keys=keys)
        table = MeasuredTimes(np.sort(MeasuredTimes.mixed(held)), *np.ones((5, size)))
        asked = held.take(rng.integers(0, size, _BATCH))
        middle, _, _ = seconds(lambda t=table, a=asked: t.find(a), 3)  # type: ignore[misc]
        each = round(middle / _BATCH * 1e9)
        print(f"look-up in a table of {size:>9,} rows: {each} ns an operator")
        sizes.append({"rows": size, "ns_an_operator": each})
    headline = f"{answers[1]['median']} million look-ups and {answers[2]['median']:,} regressed operators a second"
    headline += f"; predict resnet-18 {cold['median']} s cold, {warm['median']} s warm"
    store(__file__, headline, {"answers": answers, "look_up_by_size": sizes}, whole=True)


if __name__ == "__main__":
    main()
