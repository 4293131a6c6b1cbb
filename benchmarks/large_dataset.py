"""How does a dataset of ten million measurements behave: opening, looking up, exporting, its summary, and memory?

    python benchmarks/large_dataset.py [sqlite | postgresql | memory ...] [--keep FILE]    (40 minutes, 10 GB; goes on)

The included measurements are copied, with the samples of their first three rounds only, to save disk space. Each copy
has its own device and setting: 50 devices have as many copies of every model. To copy faster, indices are created
afterwards, and PostgreSQL neither logs these two tables nor checks references. PostgreSQL has its default settings.

Times of look-ups are medians over keys from all parts of the tables. Two times of opening are reported, because the
first one in a process includes imports; PostgreSQL also connects at each opening, and the time of a connection is
reported next to it. Every other operation runs in a separate process, whose peak memory is reported: exports of some
devices, as one file and as a partitioned folder; reading for a fit and for `evaluate`, a tenth of the rows and all
exported rows; merging datasets. The summary is what `op-profiler dataset` reads, the first time in a process.

`memory` is about one machine whose dataset grows to three times its size: copies of all included models and trials, in
SQLite. The operations that need most memory are measured at both sizes; their memory should not grow.

Goal: open and look-up under 1 ms; a million rows exported in 30 s and under 1 GB; the summary in 2 s.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common import ROOT, at_most, every, run_of, store
from dataset_common import DEVICES, fill, imported, say
from fleet_common import SHARE, postgresql_server

if TYPE_CHECKING:
    from common import Tables
    from sqlalchemy import Table

    from op_profiler.dataset import Dataset

_ROWS = int(10_000_000 * SHARE)
_MERGED_ROWS = int(1_000_000 * SHARE)
_LOOKED_UP = 200
_OPENED = 50
_BARE_CONNECTION = "of that a bare connection"
_EXPORTED_DEVICES = 5  # a tenth
_GROWING = [int(rows * SHARE) for rows in (1_000_000, 3_000_000)]  # both beyond what is drawn

Row = dict[str, Any]


def measure(name: str) -> dict[str, Any]:
    """One kind of database, or how much memory a growing one takes."""
    if name == "memory":
        return {"look_ups": [], "work": growing()}
    with tempfile.TemporaryDirectory() as temporary, _address(name, Path(temporary)) as url:
        folder = Path(temporary)
        say(f"{name}: {_ROWS:,} rows are made")
        started = time.monotonic()
        rows = fill(url, imported(folder), _ROWS)
        say(f"{name}: {rows:,} rows in {time.monotonic() - started:.0f} s")
        asked, _, _ = _apart(looked_up, url)
        worked = [_worked("summary", *_apart(summed_up, url))]
        exported = folder / "exported.parquet"
        for words, devices, path, parts in (
            ("export of one device", 1, folder / "one.parquet", []),
            ("export", _EXPORTED_DEVICES, exported, []),
            ("export in parts", _EXPORTED_DEVICES, folder / "parts", ["device_key", "threads"]),
        ):
            worked.append(_worked(words, *_apart(export, url, str(path), devices, parts)))
        if name == "sqlite":  # what is read of a file is the same with either
            for words, path in (("one device read for a fit", folder / "one.parquet"), ("read for a fit", exported)):
                worked.append(_worked(words, *_apart(read_for_a_fit, str(path))))
            worked.append(_worked("merging", *_apart(merge, str(folder))))
        head = {"database": name, "rows": rows}
        return {"look_ups": [head | row for row in asked], "work": [head | row for row in worked]}


def growing() -> list[Row]:
    """What takes the most memory, at two sizes of a dataset."""
    found = []
    with tempfile.TemporaryDirectory() as temporary:
        shipped = imported(Path(temporary), trials=True)
        for size in _GROWING:
            url = f"sqlite:///{temporary}/{size}.db"
            rows = fill(url, shipped, size, one_machine=True)
            say(f"one machine: {rows:,} rows")
            for words, function in (
                ("report of a model", report),
                ("analyze", analyzed),
                ("trials for explain and schedule", read_trials),
                ("a fit", fitted),
                ("compare with itself", compared),
            ):
                found.append({"database": "sqlite", "rows": rows} | _worked(words, *_apart(function, url)))
    return found


@contextlib.contextmanager
def _address(name: str, folder: Path) -> Iterator[str]:
    if name == "postgresql":
        with postgresql_server() as server:
            yield server.url
    else:
        yield f"sqlite:///{folder}/large.db"


def _apart(function: Callable[..., Any], *arguments: Any) -> tuple[Any, float, int]:
    """What a function of this file finds in a process of its own, how long that took, and its most memory in MiB."""
    script = (
        "import json, pathlib, sys, large_dataset\n"
        "found = getattr(large_dataset, sys.argv[1])(*json.loads(sys.argv[2]))\n"
        # Not of resource.getrusage, which counts the process that this one was forked from.
        "(peak,) = [s for s in pathlib.Path('/proc/self/status').read_text().splitlines() if s.startswith('VmHWM')]\n"
        "print(json.dumps([found, int(peak.split()[1]) // 1024]))"
    )
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", script, function.__name__, json.dumps(arguments)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (ROOT / "python", ROOT / "benchmarks")))},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    seconds = time.monotonic() - started
    found, peak = json.loads(done.stdout.splitlines()[-1])
    say(f"{function.__name__} {arguments[0]}: {found} in {seconds:.1f} s, {peak} MiB")
    return found, seconds, peak


def _worked(what: str, found: Any, seconds: float, peak: int) -> Row:
    return {"what": what, "of_rows": found["rows"], "seconds": round(found.get("s", seconds), 2), "peak_mib": peak}


def looked_up(url: str) -> list[Row]:
    """Milliseconds, medians."""
    from sqlalchemy import select

    from op_profiler.dataset import Dataset, schema

    def opened() -> None:
        Dataset.open(url, read_only=True).close()

    started = time.perf_counter()
    opened()
    first = time.perf_counter() - started
    with Dataset.open(url, read_only=True) as dataset:
        copies = [f"x{device:04x}y{setting:04x}" for device in range(DEVICES) for setting in range(4)]
        measurements, operators = _drawn(dataset, schema.measurements, copies), _drawn(dataset, schema.operators)
        named = select(schema.models.c.key).where(schema.models.c.name == "resnet-18")
        models = [row["key"] for row in dataset.rows(named)]
        of_key = schema.measurements.c.key
        count = len(dataset.model_operators(models[0]))
        found = {
            "first opening in a process": round(first * 1e3, 3),
            "opening": _milliseconds(lambda _: opened(), range(_OPENED)),
            **_bare(url),
            "a measurement by its key": _milliseconds(
                lambda key: dataset.rows(select(schema.measurements).where(of_key == key)), measurements
            ),
            "an operator by its key": _milliseconds(dataset.find_operator, operators),
            f"{count} operators of a model": _milliseconds(dataset.model_operators, models[:50]),
        }
    return [{"what": what, "ms": ms} for what, ms in found.items()]


def _bare(url: str) -> dict[str, float]:
    """What a connection takes that asks nothing, where a server makes it."""
    if not url.startswith("postgresql"):
        return {}
    import psycopg

    return {_BARE_CONNECTION: _milliseconds(lambda _: psycopg.connect(url).close(), range(_OPENED))}


def _drawn(dataset: Dataset, table: Table, prefixes: Sequence[str] = ("",)) -> list[str]:
    """Keys from all over a table, so that no look-up finds what the one before it read."""
    from sqlalchemy import select

    drawn, key = random.Random(0), table.c.key
    found: list[str] = []
    for _ in range(_LOOKED_UP):
        least = f"{drawn.choice(prefixes)}{drawn.getrandbits(32):08x}"
        found += [row["key"] for row in dataset.rows(select(key).where(key >= least).order_by(key).limit(1))]
    return found


def _milliseconds(call: Callable[[Any], object], arguments: Iterable[Any]) -> float:
    first, *others = arguments
    call(first)
    found = []
    for argument in others:
        started = time.perf_counter()
        call(argument)
        found.append(time.perf_counter() - started)
    return round(statistics.median(found) * 1e3, 3)


def export(url: str, path: str, devices: int, parts: list[str]) -> Row:
    """The rows of some devices to Parquet."""
    from sqlalchemy import select

    from op_profiler.dataset import Dataset, export_table, schema

    with Dataset.open(url, read_only=True) as dataset:
        keys = sorted(row["key"] for row in dataset.rows(select(schema.devices.c.key)) if row["key"].startswith("x"))
        where = f"device_key IN ({', '.join(repr(key) for key in keys[:devices])})"
        return {"rows": export_table(dataset, path, format="parquet", where=where, partition_by=parts).rows}


def summed_up(url: str) -> Row:
    """What ``op-profiler dataset`` reads, the first time in a process."""
    from op_profiler.dataset import Dataset
    from op_profiler.dataset.maintain import contents

    with Dataset.open(url, read_only=True) as dataset:
        times = []
        for _ in range(2):
            started = time.monotonic()
            held = contents(dataset)
            times.append(time.monotonic() - started)
        say(f"{held.size_bytes / 2**30:.1f} GiB, {len(held.models)} models, {times[1]:.2f} s again")
        return {"rows": sum(device["rows"] for device in held.devices), "s": times[0]}


def read_for_a_fit(path: str) -> Row:
    """What fitting and ``evaluate`` read."""
    from op_profiler.prediction.latency.examples import load_examples

    found = load_examples(file=Path(path))
    return {"rows": len(found) + sum(found.left_out.values())}


def report(url: str) -> Row:
    """The page of a model, and which other models there are to choose from."""
    from op_profiler.dataset import Dataset
    from op_profiler.report.page.report import write_model_report

    with Dataset.open(url, read_only=True) as dataset, tempfile.TemporaryDirectory() as folder:
        written = write_model_report(Path(folder, "report.html"), dataset, ["resnet-18"])
        assert written.models[0].operators
        return {"rows": dataset.counts()["measurements"]}


def analyzed(url: str) -> Row:
    """What ``op-profiler analyze`` finds of a few factors."""
    from op_profiler.analysis.correlations import correlations
    from op_profiler.analysis.table import factor_table, load_rows
    from op_profiler.analysis.turnaround import turnarounds

    table = factor_table(load_rows(url, None))
    assert correlations(table, ["flops", "threads"])
    assert turnarounds(table, "threads")
    return {"rows": len(table.frame) + table.not_drawn + sum(table.left_out.values())}


def read_trials(url: str) -> Row:
    """What ``op-profiler explain`` and ``schedule`` read."""
    from op_profiler.analysis.explain.other_times import KnownSchedules
    from op_profiler.dataset import Dataset
    from op_profiler.prediction.schedules.ranking import examples
    from op_profiler.prediction.schedules.suggestions import load_trials

    assert KnownSchedules.read(url, shipped=False, threads=2).best
    assert examples(load_trials(url, None, say))
    with Dataset.open(url, read_only=True) as dataset:
        return {"rows": dataset.counts()["measurements"]}


def fitted(url: str) -> Row:
    """The default predictor, with two folds in place of five, which take the same memory one after the other."""
    from op_profiler.prediction.latency.fit import fit
    from op_profiler.prediction.latency.open_predictor import examples_for

    examples = examples_for(db=url, device=None, note=say)
    fit(examples, folds=2)
    return {"rows": len(examples) + sum(examples.left_out.values())}


def compared(url: str) -> Row:
    """All models of the dataset beside the same ones; of each the newest run."""
    from op_profiler.comparison.compare import compare_runs
    from op_profiler.comparison.request import CompareRequest
    from op_profiler.dataset import Dataset

    found = compare_runs(CompareRequest(before=url, after=url, db=url), lambda step: None)
    assert found.runs
    with Dataset.open(url, read_only=True) as dataset:
        return {"rows": dataset.counts()["measurements"]}


def merge(folder: str) -> Row:
    """A dataset into an empty one."""
    from op_profiler.dataset.formats.combined import combine

    source = f"sqlite:///{folder}/source.db"
    rows = fill(source, f"sqlite:///{folder}/shipped.db", _MERGED_ROWS)
    started = time.monotonic()
    written = combine([source], f"sqlite:///{folder}/merged.db").written
    assert written["measurements"] == rows
    return {"rows": rows, "s": time.monotonic() - started}


def reached(tables: Tables) -> bool | None:
    """Return whether the stored tables reach the goal, or None if a number that it needs is missing.

    Every row of look-ups has to be under 1 ms, the first opening in a process too, but for the bare connection.
    """
    times = [row["ms"] for row in tables.get("look_ups", ()) if row["what"] != _BARE_CONNECTION]
    work = tables.get("work", ())
    exports = [row for row in work if row["what"].startswith("export") and row["of_rows"] >= 1_000_000]
    return every(
        [
            every(ms < 1 for ms in times),
            every(row["seconds"] <= 30 and row["peak_mib"] * 2**20 < 1e9 for row in exports),
            every(at_most(row["seconds"], 2) for row in work if row["what"] == "summary"),
        ]
    )


def main() -> None:
    run = run_of(__file__, __doc__, measure, ["sqlite", "postgresql", "memory"])
    tables: dict[str, list[Row]] = {"look_ups": [], "work": []}
    for found in run.found:
        for name, rows in found.result.items():
            tables[name] += rows
            for row in rows:
                print(row, flush=True)
    told = "; ".join(
        f"{r['database']}: {r['what']} of {r['of_rows']:,} rows in {r['seconds']} s"
        for r in tables["work"]
        if r["what"] in ("export", "summary")
    )
    whole = run.whole and SHARE == 1 and len(tables["look_ups"]) == 11
    store(__file__, f"{tables['work'][0]['rows']:,} rows: {told}", tables, whole=whole)


if __name__ == "__main__":
    main()
