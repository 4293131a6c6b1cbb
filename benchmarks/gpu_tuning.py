"""What tuning brings on a GPU: trials a minute beside stock AutoTVM, and default and the vendor's kernels over tuned.

    python benchmarks/gpu_tuning.py [--trials 64] [--models resnet-18 mobilenet bert] [--db FILE] [--keep FOLDER]
    python benchmarks/gpu_tuning.py --read FOLDER         (where there is no GPU: what a run before has kept)

The collector tunes, with several kernels being built while one is timed; then it compares default and tuned builds of
the model in turns, and the ops alone with cuDNN and cuBLAS (through torch). Stock AutoTVM searches some of the same
spaces with the same tuner: LocalBuilder on all cores, nvcc, LocalRunner.

Goals: three times the valid trials a minute; default over tuned 1.5.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import tempfile
from pathlib import Path
from typing import Any

from common import collect, in_own_process, measured_on, store
from tuned_speedup import MODELS, SOURCES, mean_of
from tuning_throughput import stock

_STOCK_MODEL, _STOCK_TASKS = "resnet-18", 3


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
    for variable, first in (("PYTHONPATH", [str(Path(tvm.__file__).parents[1])]), ("LD_LIBRARY_PATH", libraries)):
        os.environ[variable] = os.pathsep.join([*first, *filter(None, [os.environ.get(variable)])])  # of its processes
    logging.getLogger("autotvm").setLevel(logging.ERROR)
    target = resolve_target("cuda")
    model = FRONTENDS.get("local").load(ModelRequest(source="local", name=_STOCK_MODEL))
    conv2d = (tvm.relay.op.get("nn.conv2d"),)
    tasks = tvm.autotvm.task.extract_from_program(model.mod["main"], target=target, params=model.params, ops=conv2d)
    found = [stock(task, trials, usable_cores())[:2] for task in tasks[:count]]
    return {"tasks": len(found), "valid": sum(v for v, _ in found), "seconds": sum(s for _, s in found)}


def row_of(entry: dict[str, Any]) -> dict[str, Any]:
    """What one summary says."""
    tuned = entry["tuning"]
    valid = sum(one["trials"] - one["failed"] for one in tuned)
    seconds = entry["stage_seconds"]["tuning"]
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
        "valid_per_minute": round(valid / seconds * 60),
        **{f"whole_{name}": round(whole[name], 3) for name in ("speedup", "speedup_low", "speedup_high") if whole},
        "heavy_ops_in_it": mean_of(inside),
        "ops_alone": mean_of(alone),
        "vendor_over_tuned": mean_of(vendor),
        "at_least_level": f"{sum(v >= 1 for v in vendor)} of {len(vendor)}",
    }


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
            if arguments.stock_tasks:
                words = ["--one", "stock", "--trials", str(arguments.trials)]
                words += ["--stock-tasks", str(arguments.stock_tasks)]
                (folder / "stock.json").write_text(json.dumps(in_own_process(__file__, words)))
            for model in arguments.models:
                tune(model, arguments, folder)
        report(folder)


def report(folder: Path) -> None:
    """The figures of what a folder has."""
    about = json.loads((folder / "about.json").read_text())
    rows = [row_of(json.loads(path.read_text())) for model in MODELS if (path := folder / f"{model}.json").exists()]
    stock = json.loads((folder / "stock.json").read_text()) if (folder / "stock.json").exists() else None
    tables = {"models": rows}
    print(json.dumps(rows, indent=1))
    told = ", ".join(f"{row['model']} {row.get('whole_speedup', 'failed')}" for row in rows)
    headline = f"default over tuned, whole models: {told}"
    if stock:
        rate = stock["valid"] / stock["seconds"] * 60
        ours = sum(row["valid"] for row in rows) / sum(row["seconds"] for row in rows) * 60
        tables["stock"] = [stock | {"seconds": round(stock["seconds"], 1), "valid_per_minute": round(rate)}]
        headline += f"; {ours / rate:.1f} times the valid trials a minute of stock AutoTVM"
    print(headline)
    store(__file__, headline, tables, whole=bool(rows), provenance=about)


if __name__ == "__main__":
    main()
