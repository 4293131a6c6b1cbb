"""What does tuning gain on a GPU? Trials a minute next to stock AutoTVM, default and the vendor's kernels over tuned.

    python benchmarks/gpu_tuning.py [--trials 64] [--models resnet-18 mobilenet bert] [--db FILE] [--keep FOLDER]
    python benchmarks/gpu_tuning.py --read FOLDER --db FILE       (without a GPU: from the files of an earlier run)

The table `searches` is read from the dataset. For each operator in isolation, with the caches as in its search, it
lists the trial of the compiler's default schedule and the best of the finalists, which were measured in turns. An
interrupted search has trials and no best.

The collector tunes: it builds several kernels while it times one. It then compares the default and the tuned build of
the model in turns, and the ops in isolation with cuDNN and cuBLAS (through torch). Stock AutoTVM searches some of the
same spaces with its own boosted trees on knobs: LocalBuilder on all cores, nvcc, LocalRunner.

Goal: three times the valid trials a minute; default over tuned 1.5.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import itertools
import json
import logging
import os
import sqlite3
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common import about_all, at_least, collect, every, in_own_process, measured_on, store, with_earlier
from tuned_speedup import MODELS, SOURCES, mean_of
from tuning_throughput import stock

if TYPE_CHECKING:
    from common import Records, Tables

_STOCK_MODEL, _STOCK_TASKS = "resnet-18", 3
_TRIALS = """
    SELECT operator_key, d.machine_id, origin, median_us, knobs, template, measured_at, o.name, outputs, cache
    FROM measurements m JOIN schedules s ON s.key = schedule_key JOIN operators o ON o.key = operator_key
    JOIN devices d ON d.key = device_key JOIN settings t ON t.key = settings_key
    WHERE origin IN ('trial', 'tuned') ORDER BY operator_key, d.machine_id, measured_at
"""

_MEASURED_BEFORE = "SELECT max(measured_at) FROM model_timings WHERE measured_at < ?"


def tune(model: str, arguments: argparse.Namespace, folder: Path) -> None:
    """The collector's summary of one model, in a file."""
    told = ["--modelsource", SOURCES.get(model, "local"), "--modelname", model, "--target", "cuda", "--energy", "none"]
    told += ["--iftune", "true", "--trials", str(arguments.trials), "--ifcompare", "true", "--vendor", "true"]
    told += ["--schedules", str(arguments.schedules or folder / "schedules"), "--db", f"sqlite:///{arguments.db}"]
    with tempfile.TemporaryDirectory() as scratch:
        code, entries = collect(told, Path(scratch))
    print(f"{model}: exit code {code}", flush=True)
    if entries:
        (folder / f"{model}.json").write_text(json.dumps(entries[0]))


def stock_rates(trials: int, count: int) -> dict[str, Any]:
    """AutoTVM's own tuning of the first convolutions, on this GPU."""
    from op_profiler.compilers.tvm_build import load_tvm
    from op_profiler.cores import usable_cores
    from op_profiler.frontends import FRONTENDS
    from op_profiler.frontends.frontend import ModelRequest
    from op_profiler.targets.cuda import tvm_build
    from op_profiler.targets.target import resolve_target, use_build_for

    use_build_for("cuda")
    tvm = load_tvm()
    from tvm.contrib import nvcc

    tvm._ffi.register_func("tvm_callback_cuda_compile", nvcc.tvm_callback_cuda_compile, override=True)
    libraries = [str(path.parent) for path in tvm_build.libraries().values() if path is not None]
    for variable, first in (("PYTHONPATH", [str(Path(str(tvm.__file__)).parents[1])]), ("LD_LIBRARY_PATH", libraries)):
        os.environ[variable] = os.pathsep.join([*first, *filter(None, [os.environ.get(variable)])])  # of its processes
    logging.getLogger("autotvm").setLevel(logging.ERROR)
    target = resolve_target("cuda")
    model = FRONTENDS.get("local").load(ModelRequest(source="local", name=_STOCK_MODEL))
    conv2d = (tvm.relay.op.get("nn.conv2d"),)
    tasks = tvm.autotvm.task.extract_from_program(model.mod["main"], target=target, params=model.params, ops=conv2d)
    found = [stock(task, trials, usable_cores())[:2] for task in tasks[:count]]
    return {"tasks": len(found), "valid": sum(v for v, _ in found), "seconds": sum(s for _, s in found)}


def searches(db: Path) -> list[dict[str, Any]]:
    """One row a search, by its first trial."""
    with contextlib.closing(sqlite3.connect(db)) as connection:
        found = connection.execute(_TRIALS).fetchall()
    rows = []
    for (key, machine), mine in itertools.groupby(found, key=lambda row: row[:2]):
        trials = [row[2:] for row in mine]
        tried = [trial for trial in trials if trial[0] == "trial"]
        default = [us for _, us, knobs, *_ in tried if us and _is_default(json.loads(knobs))]
        best = min(((us, template) for origin, us, _, template, *_ in trials if origin == "tuned"), default=None)
        rows.append(
            {
                "operator": f"{tried[0][5]} to {json.loads(tried[0][6])[0]['shape']}",
                "key": key[:8],
                "machine": machine[:12],
                "caches": tried[0][7],
                "templates": len({template for _, _, _, template, *_ in tried}),
                "trials": len(tried),
                "valid": sum(us is not None for _, us, *_ in tried),
                "began": tried[0][4][:19],
                "ended": trials[-1][4][:19],
                "default_us": round(default[0], 1) if default else None,
                "best_us": round(best[0], 1) if best else None,
                "best_template": best[1] if best else None,
                "default_over_best": round(default[0] / best[0], 2) if default and best else None,
            }
        )
    return sorted(rows, key=lambda row: row["began"])


def _is_default(knobs: dict[str, Any]) -> bool:
    """A space tells the outermost part of its splits as -1, and a default as a number."""
    splits = [value for value in knobs.values() if isinstance(value, list)]
    return bool(splits) and all(value[0] != -1 for value in splits)


def row_of(entry: dict[str, Any]) -> dict[str, Any]:
    """What one summary says."""
    tuned = entry["tuning"]
    valid = sum(one["trials"] - one["failed"] for one in tuned)
    seconds = entry["stage_seconds"].get("tuning", 0.0)  # 0 where the dataset had all trials
    alone = [v["default_us"] / v["tuned_us"] for v in entry["vendor"] if v["default_us"] and v["tuned_us"]]
    vendor = [v["vendor_us"] / v["tuned_us"] for v in entry["vendor"] if v["vendor_us"] and v["tuned_us"]]
    keys = {key for one in tuned for key in one["operators"]}
    whole = (entry["comparison"] or [{}])[0]
    inside = [o["default_us"] / o["tuned_us"] for o in whole.get("operators", ()) if o["default_key"] in keys]
    return {
        "model": entry["model"],
        "searches": len(tuned),
        "trials": sum(one["trials"] for one in tuned),
        "valid": valid,
        "seconds": round(seconds, 1),
        "valid_per_minute": round(valid / seconds * 60) if seconds else None,
        **{f"whole_{name}": round(whole[name], 3) for name in ("speedup", "speedup_low", "speedup_high") if whole},
        "heavy_ops_in_it": mean_of(inside),
        "ops_alone": mean_of(alone),
        "vendor_over_tuned": mean_of(vendor),
        "at_least_level": f"{sum(v >= 1 for v in vendor)} of {len(vendor)}",
    }


def reached(tables: Tables) -> bool | None:
    """Return whether the stored tables reach the goal, or None if a number that it needs is missing.

    The rate of stock AutoTVM is in the table `stock`, ours for the same model in `models`. Both missing rates and a
    search of the last run without a time of its default count as unknown.
    """
    ours = [row["valid_per_minute"] for row in tables.get("models", ()) if row["model"] == _STOCK_MODEL]
    stock = tables.get("stock", ())
    ended = _of_last_run(tables.get("searches", ()))
    ratios = [row["default_over_best"] for row in ended]
    return every(
        [
            every(at_least(rate, 3 * row["valid_per_minute"]) for row in stock for rate in ours),
            at_least(mean_of(ratios), 1.5) if all(ratios) else None,
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--models", nargs="*", default=list(MODELS))
    parser.add_argument("--db", type=Path, help="dataset; trials that it has are not made again")
    parser.add_argument("--schedules", type=Path, help="folder for the records")
    parser.add_argument("--stock-tasks", type=int, default=_STOCK_TASKS, help="that stock AutoTVM tunes; 0: none")
    parser.add_argument("--keep", type=Path, help="folder for what was found")
    parser.add_argument("--read", type=Path, help="folder that --keep has filled; nothing is run")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        with contextlib.redirect_stdout(None):
            found = stock_rates(arguments.trials, arguments.stock_tasks)
        print(json.dumps(found))
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.read or arguments.keep or Path(scratch)
        if not arguments.read:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "about.json").write_text(json.dumps(measured_on()))
            arguments.db = (arguments.db or folder / "trials.db").resolve()
            for model in arguments.models:
                tune(model, arguments, folder)
            if arguments.stock_tasks:
                words = ["--one", "stock", "--trials", str(arguments.trials)]
                words += ["--stock-tasks", str(arguments.stock_tasks)]
                (folder / "stock.json").write_text(json.dumps(in_own_process(__file__, words)))
        report(folder, arguments.db)


def report(folder: Path, db: Path) -> None:
    """The figures of what a folder and a dataset have."""
    about = json.loads((folder / "about.json").read_text())
    rows = [row_of(json.loads(path.read_text())) for model in MODELS if (path := folder / f"{model}.json").exists()]
    file = folder / "stock.json"
    stock = json.loads(file.read_text()) if file.exists() else None
    found = searches(db)
    if not found:
        sys.exit("no trial was stored: there is nothing to tell")
    rows = with_earlier(__file__, "models", rows, ["model"])
    tables = {"searches": with_earlier(__file__, "searches", found, ["key", "machine"])}
    tables |= {"models": rows} if rows else {}
    ended = _of_last_run(found)
    ratios = [row["default_over_best"] for row in ended if row["default_over_best"]]
    rate = _rate(db, ended or found)
    headline = (
        f"default over best {mean_of(ratios)}, ops in isolation ({len(ratios)} of the {len(ended)} searches that "
        f"ended have a time of the default); {rate:.0f} valid trials a minute"
    )
    if rows:
        told = ", ".join(f"{row['model']} {row.get('whole_speedup', 'failed')}" for row in rows)
        headline += f"; whole models: {told}"
    if stock:
        theirs = stock["valid"] / stock["seconds"] * 60
        tables["stock"] = [stock | {"seconds": round(stock["seconds"], 1), "valid_per_minute": round(theirs)}]
        headline += f"; {rate / theirs:.1f} times those of stock AutoTVM"
    print(json.dumps(tables, indent=1))
    print(headline)
    if measured_stock := with_earlier(__file__, "stock", tables.get("stock", []), ["tasks"]):
        tables["stock"] = measured_stock
    store(__file__, headline, tables, whole=True, provenance=about_all(__file__, about))


def _of_last_run(found: Records) -> list[Mapping[str, Any]]:
    """The searches that ended, on the machine that was the last to end one; none where all were interrupted."""
    ended = [row for row in found if row["best_us"]]
    if not ended:
        return []
    last = max(ended, key=lambda row: row["ended"])
    return [row for row in ended if row["machine"] == last["machine"]]


def _rate(db: Path, found: Records) -> float:
    """Valid trials a minute of searches that shared the cores, since the model was measured, which comes before: trials
    are stored some at a time, so the time of the first ones does not tell when their search began."""
    first = min(row["began"] for row in found)
    with contextlib.closing(sqlite3.connect(db)) as connection:
        (before,) = connection.execute(_MEASURED_BEFORE, (first,)).fetchone()
    began = datetime.datetime.fromisoformat(before[:19])
    ended = max(datetime.datetime.fromisoformat(row["ended"]) for row in found)
    return sum(row["valid"] for row in found) / (ended - began).total_seconds() * 60


if __name__ == "__main__":
    main()
