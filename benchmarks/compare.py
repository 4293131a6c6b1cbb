"""Does a comparison of runs raise false alarms, and does it find a slow-down of 5 %? Equal runs, and planted schedules.

    python benchmarks/compare.py [NAME ...] [--keep FILE]     (1 hour; with --keep it goes on where it was stopped)

A model is collected five times without a change (``equal:MODEL``), each time into the same dataset under another label,
which gives ten pairs. Each pair is compared by the stored times and measured again in turns. Any reported change of an
operator or of the whole model, at one or two threads, is a false alarm.

A planted slow-down (``planted:NUMBER``) is another schedule of the heaviest operator of a small network. One schedule
is drawn at random, and others that differ from it in one factor (a tile, a split, an order, an unrolled loop). The two
whose times differ by nearest to 5 % are planted. Their true difference is measured in turns first; a second
measurement in turns, at one thread, then has to find it.

Goal: 20 pairs of equal collections raise a false alarm in at most one; of 10 slow-downs of 5 % 9 are found in turns.
"""

from __future__ import annotations

import itertools
import random
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from common import collect, every, run_of, store

if TYPE_CHECKING:
    from common import Records, Tables

    from op_profiler.building.request import BuildRequest
    from op_profiler.comparison.result import Comparison, RowComparison
    from op_profiler.frontends.frontend import ModelRequest
    from op_profiler.schedules.records import Record

MODELS = ("mlp", "squeezenet_v1.1")
_EQUAL, _PLANTED = 5, 12  # runs of each model; slow-downs, of which some turn out not to be near 5 %
NAMES = [f"equal:{m}" for m in MODELS]
NAMES += [f"planted:{i}" for i in range(_PLANTED)]
_SHAPES = (64, 28), (96, 28), (128, 14), (48, 56), (192, 14)
"""Channels, and rows and columns, of the convolutions of a network that a slow-down is planted in."""
_DRAWN = 7
_WANTED = 0.05
_NEAR_PERCENT = 3  # from here on a slow-down counts as one of 5 %
_LEAST_PERCENT = 0.5
_ROUNDS = 60
_COPIES = 6


def measure(name: str) -> dict[str, Any]:
    """All pairs of a model, or one slow-down."""
    kind, which = name.split(":")
    with tempfile.TemporaryDirectory() as folder:
        return equal(which, Path(folder)) if kind == "equal" else planted(int(which), Path(folder))


def equal(model: str, folder: Path) -> dict[str, Any]:
    """False alarms between collections of the same."""
    from op_profiler.frontends.frontend import ModelRequest

    labels = [f"run{number}" for number in range(_EQUAL)]
    for label in labels:
        _collect(folder, ModelRequest(source="local", name=model), label, "--schedules", "none", "--threads", "1,2")
    return {
        "pairs": [
            {"runs": f"{before} {after}", "method": method, **_alarms(_compare(folder, before, after, rerun=rerun))}
            for before, after in itertools.combinations(labels, 2)
            for method, rerun in (("in turns", True), ("stored", False))
        ]
    }


def _alarms(comparison: Comparison) -> dict[str, Any]:
    """Of a comparison of equals."""
    rows = [row.change for _, row in comparison.rows if row.change is not None]
    widths = [(row.high - row.low) / 2 for row in rows if row.low is not None and row.high is not None]
    return {
        "compared": comparison.judged,
        "false_alarms": sum(row.real is True for row in rows),
        "largest_change_percent": round(100 * max(abs(row.change) for row in rows), 1),
        "half_width_percent": round(100 * float(np.median(widths)), 2) if widths else None,
    }


def planted(number: int, folder: Path) -> dict[str, Any]:
    """Whether a planted slow-down is found."""
    model = _network(*_SHAPES[number % len(_SHAPES)], folder)
    operator, records = _drawn(model, number)
    fast, slow = _nearest(model, operator, records, folder)
    for label, record in (("before", fast), ("after", slow)):
        schedules = str(_kept(model, record, folder / label))
        _collect(folder, model, label, "--schedules", schedules, "--threads", "1")
    sides = ["before", "after"]
    truth = _row_of(_compare(folder, rerun=True), operator).change
    assert truth is not None
    if truth.change < 0:  # those that were drawn lay otherwise in memory when they were timed first
        sides.reverse()
        truth = _row_of(_compare(folder, *sides, rerun=True), operator).change
        assert truth is not None
    comparison = _compare(folder, *sides, rerun=True)
    found = _row_of(comparison, operator)
    others = [row for _, row in comparison.rows if row.name is not None and operator not in row.keys]
    assert found.change is not None
    return {
        "planted_percent": _percent(truth.change),
        "between_percent": [_percent(truth.low), _percent(truth.high)],
        "found_percent": _percent(found.change.change),
        "found_between_percent": [_percent(found.change.low), _percent(found.change.high)],
        "found": found.change.slower,
        "other_operators": len(others),
        "others_called_real": sum(row.change is not None and row.change.real is True for row in others),
        "schedules": " -> ".join(found.schedules),
    }


def _percent(share: float | None) -> float | None:
    return None if share is None else round(100 * share, 2)


def _network(channels: int, size: int, folder: Path) -> ModelRequest:
    """Convolutions of which the middle one takes most of the time, as an ONNX file."""
    from op_profiler.frontends.frontend import ModelRequest
    from op_profiler.frontends.importers.torch import load_torch
    from op_profiler.lean_imports import quiet

    torch = load_torch()
    first, middle, last = (
        torch.nn.Conv2d(i, o, k) for i, o, k in ((16, channels, 1), (channels,) * 2 + (3,), (channels, 16, 1))
    )
    layers = [first, torch.nn.ReLU(), middle, torch.nn.ReLU(), last]
    path = folder / "network.onnx"
    with quiet():
        torch.onnx.export(torch.nn.Sequential(*layers), (torch.randn(1, 16, size, size),), str(path), dynamo=False)
    return ModelRequest(source="file", name=str(path))


def _collect(folder: Path, model: ModelRequest, label: str, *options: str) -> None:
    arguments = ["--modelsource", model.source, "--modelname", model.name, "--label", label, *options]
    code, _ = collect([*arguments, "--db", f"sqlite:///{folder}/runs.db"], folder)
    assert code == 0, f"the collection of {model.name} ended with {code}"


def _compare(folder: Path, before: str = "before", after: str = "after", *, rerun: bool) -> Comparison:
    from op_profiler.comparison.compare import compare_runs
    from op_profiler.comparison.request import CompareRequest

    request = CompareRequest(before=before, after=after, db=f"sqlite:///{folder}/runs.db", rerun=rerun)
    return compare_runs(request, lambda step: print(step, flush=True))


def _row_of(comparison: Comparison, operator: str) -> RowComparison:
    (row,) = [row for _, row in comparison.rows if operator in row.keys]
    return row


def _request(model: ModelRequest, schedules: str = "none") -> BuildRequest:
    from op_profiler.building.request import BuildRequest

    return BuildRequest(model=model, schedules=schedules)


def _drawn(model: ModelRequest, number: int) -> tuple[str, list[Record]]:
    """Workload key of the heaviest operator, and schedules of it that are one factor apart."""
    from op_profiler.building.requested_model import load_model
    from op_profiler.compilers.compiler import compiler_in_use
    from op_profiler.schedules.records import Conditions, Record

    relay_model, _, target = load_model(_request(model))
    items, _ = compiler_in_use().tunables(relay_model, target, None)
    item = max(items, key=lambda one: one.anchor.flops)
    (task, *_) = item.tasks
    space = compiler_in_use().task(task, target)
    draw = random.Random(number)
    base = next(i for i in iter(lambda: draw.randrange(space.size), None) if space.is_valid(i))
    knobs = space.schedule(base).knobs
    near = [space.point(knobs | {name: value}) for name, values in space.knobs.items() for value in values]
    drawn = draw.sample(sorted({point for point in near if point is not None} - {base}), _DRAWN - 1)
    configs = [space.config(point) for point in (base, *drawn)]
    return item.operators[0], [
        Record(str(target), task.template, task.arguments, config, (1e-5,), conditions=Conditions(1))
        for config in configs
    ]


def _kept(model: ModelRequest, record: Record, folder: Path) -> Path:
    """A folder of schedule records that holds this one."""
    from op_profiler.schedules.record_files import keep

    file = _request(model, str(folder)).record_file()
    assert file is not None
    if not file.exists():
        keep(file, record)
    return folder


def _nearest(model: ModelRequest, operator: str, records: list[Record], folder: Path) -> tuple[Record, Record]:
    """Those two whose times in the model differ by nearest to 5 %, the faster one first; timed in turns."""
    from op_profiler.building.build import build_model
    from op_profiler.building.requested_inputs import random_inputs
    from op_profiler.building.requested_model import load_model
    from op_profiler.targets.open_machine import open_machine

    relay_model, _, target = load_model(_request(model))
    machine = open_machine("llvm", target, None)
    machine.threads.use(1)
    ways = []
    for number, record in enumerate(records):
        request = _request(model, str(_kept(model, record, folder / f"drawn{number}")))
        compiled = build_model(request, relay_model, target).compiled
        loaded = machine.load(compiled, random_inputs(list(relay_model.inputs)), _COPIES)
        at = [i for i, label in enumerate(loaded.labels) if compiled.by_label[label].operator.key == operator]
        ways.append((loaded, at))
    times: list[list[float]] = [[] for _ in ways]
    for _ in range(_ROUNDS):
        for (loaded, at), found in zip(ways, times):
            copy = loaded.moved()
            copy.run_model()
            found.append(float(np.mean(np.array(copy.walk("model", [True] * len(loaded.labels)))[at])))
    medians = [float(np.median(found)) for found in times]
    pairs = list(itertools.permutations(range(len(records)), 2))
    fast, slow = min(pairs, key=lambda pair: abs(medians[pair[1]] / medians[pair[0]] - 1 - _WANTED))
    print(f"{medians[fast]:.2f} us and {medians[slow]:.2f} us of {[round(m, 2) for m in medians]}", flush=True)
    return records[fast], records[slow]


def claim(tables: Tables) -> str:
    """Return the sentence of the README, with its number from the stored tables."""
    alarms = list(judged_pairs(tables["equal"], ("in turns",)).values())
    return f"With `--rerun`, {sum(alarms)} of {len(alarms)} pairs of runs without a change raise a false alarm."


def reached(tables: Tables) -> bool | None:
    """Return whether the stored tables reach the goal, or None if a number that it needs is missing.

    Slow-downs of `_NEAR_PERCENT` to 8 % count as slow-downs of 5 %, and pairs count if a method can judge them. Fewer
    than 20 pairs or 10 slow-downs count as unknown.
    """
    judged = judged_pairs(tables.get("equal", ()), ("in turns", "stored"))
    near = planted_from(tables.get("planted", ()), _NEAR_PERCENT)
    quiet, found = [not alarm for alarm in judged.values()], [row["found"] for row in near]
    return every([_all_but_one(quiet, 20), _all_but_one(found, 10)])


def _all_but_one(right: Sequence[bool], needed: int) -> bool | None:
    """Return whether at most one in so many is wrong, or None if no more are wrong but fewer were measured."""
    if len(right) - sum(right) > max(1, len(right) // needed):
        return False
    return True if len(right) >= needed else None


def judged_pairs(equals: Records, methods: Sequence[str]) -> dict[tuple[str, str], bool]:
    """Return the pairs of equal collections that a method can judge, and whether a method raises a false alarm."""
    pairs: dict[tuple[str, str], bool] = {}
    for row in equals:
        if row["method"] in methods and row["compared"]:
            pair = row["model"], row["runs"]
            pairs[pair] = pairs.get(pair, False) or row["false_alarms"] > 0
    return pairs


def planted_from(plants: Records, least: float) -> list[Mapping[str, Any]]:
    """Return the planted slow-downs of `least` to 8 %."""
    return [row for row in plants if least <= row["planted_percent"] <= 8]


def headline_of(tables: Tables) -> str:
    """Return false alarms of both methods, and the share of the planted slow-downs that was found."""
    parts = []
    for method, how in (("in turns", "with `--rerun`"), ("stored", "with stored times")):
        alarms = list(judged_pairs(tables["equal"], (method,)).values())
        parts.append(
            f"{how}, {sum(alarms)} of {len(alarms)} "
            "pairs of runs without a change raise a false alarm (pairs that cannot be compared are left out)"
        )
    all_found, near_found = (
        [row["found"] for row in planted_from(tables["planted"], least)] for least in (_LEAST_PERCENT, _NEAR_PERCENT)
    )
    parts.append(
        f"with `--rerun`, {sum(all_found)} of {len(all_found)} planted slow-downs of {_LEAST_PERCENT:g} to 8 % are "
        f"found, and of those of at least {_NEAR_PERCENT:g} %, {sum(near_found)} of {len(near_found)}"
    )
    return "; ".join(parts)


def main() -> None:
    run = run_of(__file__, __doc__, measure, NAMES)
    equals: list[dict[str, Any]] = []
    plants: list[dict[str, Any]] = []
    for name, result in run.found:
        if name.startswith("equal"):
            equals += [{"model": name.split(":")[1], **pair} for pair in result["pairs"]]
        else:
            plants.append({"number": name.split(":")[1], **result})
        print(name, result, flush=True)
    tables = {"equal": equals, "planted": plants}
    print(headline_of(tables))
    store(__file__, headline_of(tables), tables, whole=run.whole)


if __name__ == "__main__":
    main()
