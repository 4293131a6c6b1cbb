"""On a GPU: do the operators add up to the model, and do times and energy agree with those of other tools?

    python benchmarks/gpu.py [--db FILE] [--jobs 12] [--only REGEX]
    python benchmarks/gpu.py --read FILE [--beside FILE ...]   (without a GPU: from another machine's dataset, and
                                                                 from the output of `--one MODEL` there)

Models of TVM's zoo at batch 1, four at batches of 8 and 32, three in half precision and int8: the sum of their
operators and of the time that the GPU waits for launches, divided by the time of the whole model. Kernel times are
compared with those that CUPTI reports (torch's profiler) for the same launches, which needs torch with CUDA. The energy
that NVML counts is compared with NVML's mean power times the time.

`--db` stores the collected times, so that an interrupted run resumes. Several models are built at once, and measured in
turn. For a GPU that is available for minutes only, `--only` selects the cases whose names ("bert 1 float16") match, and
compares the models of these names with CUPTI. Stored results of cases and models that a run does not contain are kept.
Each table is of one method of the launch gap, so no table has ratios of two methods.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import sqlite3
import statistics
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from common import about_all, collect, in_own_process, measured_on, provenance, store, stored_tables, with_earlier

LARGER = ("resnet-50", "mobilenet", "squeezenet_v1.1", "bert")
PRECISIONS = ("resnet-18", "resnet-50", "bert")
PROFILED = ("resnet-18", "resnet-50", "mobilenet", "squeezenet_v1.1", "bert")
_TIMINGS = """
    SELECT name, batch_size, precision, median_us, sum_of_operators_us, energy_mj, foreign_load, details
    FROM model_timings JOIN models ON models.key = model_key
    WHERE complete AND median_us IS NOT NULL AND source != 'sample' AND json_extract(details, '$.ratio_per_round') > 0
      AND json_extract(details, '$.launch_gap_method') = ?
    ORDER BY measured_at
"""
_DEVICE = """
    SELECT processor, cores, driver, tvm_version, count(DISTINCT host_fingerprint), count(DISTINCT machine_id)
    FROM devices WHERE kind = 'cuda' GROUP BY processor, driver
"""
_WHEN = "SELECT max(measured_at), group_concat(DISTINCT project_revision) FROM model_timings WHERE model_key LIKE ?"
_SHORT_US = 10.0  # below, the begin and end of a kernel are a large part of it
_LARGE_US = 500.0
_WALKS, _ENERGY_SECONDS = 15, 1.5


class Case(NamedTuple):
    """One collection."""

    model: str
    batch: int = 1
    precision: str = "float32"

    def __str__(self) -> str:
        return " ".join(map(str, self))


def cases() -> list[Case]:
    """All of the first table, long ones first."""
    from op_profiler.frontends import FRONTENDS

    larger = [Case(model, batch) for batch in (32, 8) for model in LARGER]
    precise = [Case(model, 1, precision) for model in PRECISIONS for precision in ("float16", "int8")]
    return [*larger, *precise, Case("bert"), *(Case(name) for name in FRONTENDS.get("local").default_names())]


def collect_case(case: Case, db: Path) -> None:
    """Into the dataset; what it has already is not measured again."""
    source = "transformers" if case.model == "bert" else "local"
    told = ["--modelsource", source, "--modelname", case.model, "--batchsize", str(case.batch)]
    told += ["--precision", case.precision, "--target", "cuda", "--schedules", "none", "--energy", "model"]
    with tempfile.TemporaryDirectory() as folder:
        code, _ = collect([*told, "--db", f"sqlite:///{db}"], Path(folder))
    print(case, "collected" if code == 0 else f"exit code {code}", flush=True)


def additivity(db: Path) -> list[dict[str, Any]]:
    """Sum of operators and gaps over whole model, of every case that a dataset has by the method of this version."""
    from op_profiler.dataset.schema import parse_json
    from op_profiler.measure.measurement import LAUNCH_GAP_METHOD

    with contextlib.closing(sqlite3.connect(db)) as connection:
        found = connection.execute(_TIMINGS, (LAUNCH_GAP_METHOD,)).fetchall()
    latest = {Case(name, batch, precision): row for name, batch, precision, *row in found}
    rows = []
    for case in (case for case in cases() if case in latest):
        whole_us, total_us, energy_mj, foreign, text = latest[case]
        details = parse_json(text)
        windows = details.get("conditions_windows") or [{}]
        numbers = {
            "whole_model_us": round(whole_us, 1),
            "sum_of_operators_us": round(total_us, 1),
            "launch_gap_us": round(details["launch_gap_us"], 1),
            "ratio": round(details["ratio_per_round"], 4),
            "energy_mj": energy_mj and round(energy_mj, 2),
            "least_sm_clock_mhz": min(window.get("sm_clock_mhz_low", 0) for window in windows),
            "hottest_c": max(window.get("temperature_c_high", 0) for window in windows),
            "held_back": sum(bool(window.get("held_back_by")) for window in windows),
            "foreign_load": bool(foreign),
        }
        rows.append(case._asdict() | numbers)
    return rows


def measured_where(db: Path, *, here: bool, model_key: str = "%") -> dict[str, Any]:
    """Date, GPU, versions and commits of a dataset, or of one of its models: it may have been measured elsewhere."""
    with contextlib.closing(sqlite3.connect(db)) as connection:
        gpu, sms, driver, tvm, hosts, gpus = connection.execute(_DEVICE).fetchone()
        date, commits = connection.execute(_WHEN, (model_key,)).fetchone()
    return (
        measured_on()
        | {
            "date": date[:10],
            "machine": f"{gpus} GPUs of this kind in {hosts} kinds of hosts, driver {driver}",
            "processor": gpu,
            "cores": sms,
            "tvm": tvm,
            "commit": commits,
        }
        | ({} if here else {"python": "not kept"})
    )


def profiled(name: str) -> dict[str, Any]:
    """Kernel times of this project beside CUPTI's, of the same launches, and energies; one model, in this process."""
    import torch

    from op_profiler.building.prepared_model import PreparedModel
    from op_profiler.building.request import BuildRequest
    from op_profiler.frontends.frontend import ModelRequest

    source = "transformers" if name == "bert" else "local"
    request = BuildRequest(model=ModelRequest(source=source, name=name), target="cuda", schedules="none", threads=(0,))
    with PreparedModel(request) as job:
        job.load()
        compiled, machine = job.built.compiled, job.machine
        launches = [len(compiled.launches.get(call.label, ())) for call in compiled.calls]
        loaded: Any = machine.load(compiled, job.inputs)
        everything = [True] * len(loaded.labels)
        ours = np.median([loaded.walk("model", everything) for _ in range(_WALKS)], axis=0) - loaded.call_overhead_us()
        torch.zeros(1, device="cuda")
        theirs = [_by_cupti(torch, lambda: loaded.walk("model", everything), launches) for _ in range(3)]
        energies = _energies(machine, loaded)
    return {"model": name, **_compared(ours, np.median([one for one in theirs if one], axis=0)), **energies}


def _by_cupti(torch: Any, run: Any, launches: list[int]) -> list[float]:
    """From the begin of the first kernel of each operator to the end of its last; empty where kernels are missing.

    A walk that the GPU began too early is made again, which CUPTI sees too: the last one counts.
    """
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        run()
        torch.cuda.synchronize()
    found = [event.time_range for event in profile.events() if str(event.device_type).endswith("CUDA")]
    spans = sorted((span.start, span.end) for span in found)
    if len(spans) < sum(launches):
        return []
    spans = spans[-sum(launches) :]
    ends = np.cumsum(launches)
    return [spans[end - 1][1] - spans[end - count][0] for end, count in zip(ends, launches)]


def _compared(ours: np.ndarray, theirs: np.ndarray) -> dict[str, Any]:
    if theirs.ndim == 0:
        return {"kernels": len(ours), "sum_us": round(float(ours.sum()), 1), "by_cupti_us": None}
    long = theirs > _SHORT_US
    off = np.abs(ours / theirs - 1)[long] * 100
    return {
        "kernels": len(ours),
        "sum_us": round(float(ours.sum()), 1),
        "by_cupti_us": round(float(theirs.sum()), 1),
        "over_10_us": int(long.sum()),
        "median_off_percent": round(float(np.median(off)), 2) if long.any() else None,
        "within_3_percent": round(float((off <= 3).mean()) * 100, 1) if long.any() else None,
        "worst_off_percent": round(float(off.max()), 2) if long.any() else None,
        "shorter_off_us": round(float(np.median(np.abs(ours - theirs)[~long])), 2) if (~long).any() else None,
    }


def _energies(machine: Any, loaded: Any) -> dict[str, Any]:
    """Energy of one run by NVML's counter, and by its power."""
    if machine.energy_mj() is None:
        return {"counter_mj": None, "power_mj": None}
    watts, runs, started, before = [], 0, time.perf_counter(), machine.energy_mj()
    while (seconds := time.perf_counter() - started) < _ENERGY_SECONDS:
        for _ in range(20):
            loaded.run_model()
        runs += 20
        watts.append((machine.conditions() or {}).get("power_w", float("nan")))
    counter_mj = (machine.energy_mj() - before) / runs
    power_mj = statistics.mean(watts[len(watts) // 4 :]) * seconds * 1e3 / runs  # its mean is over a second or less
    return {"counter_mj": round(counter_mj, 3), "power_mj": round(power_mj, 3)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--db", type=Path, help="dataset that is gone on from")
    parser.add_argument("--jobs", type=int, default=12, help="models that are built at once")
    parser.add_argument("--only", default="", metavar="REGEX", help="in the names of cases")
    parser.add_argument("--read", type=Path, metavar="FILE", help="measure nothing: the figures of this dataset")
    parser.add_argument("--beside", type=Path, nargs="*", default=[], help="files with kernel times beside CUPTI's")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(profiled(arguments.one)))
        return
    if arguments.read:
        beside = [json.loads(path.read_text().strip().splitlines()[-1]) for path in arguments.beside]
        _report(arguments.read, beside, here=False)
        return
    print(provenance())
    from op_profiler.targets.cuda import tvm_build

    lacking = tvm_build.missing() + tvm_build.missing_gpu()
    if lacking:
        sys.exit(f"this needs a GPU; this machine lacks {'; '.join(lacking)}")
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(arguments.jobs) as pool:
        db = (arguments.db or Path(folder, "gpu.db")).resolve()
        wanted = [case for case in cases() if re.search(arguments.only, str(case))]
        list(pool.map(lambda case: collect_case(case, db), wanted))
        compared = [name for name in PROFILED if re.search(arguments.only, name)]
        beside = list(pool.map(lambda name: in_own_process(__file__, ["--one", name]), compared))
        _report(db, [row for row in beside if row is not None], here=True)


def _report(db: Path, beside: list[dict[str, Any]], *, here: bool) -> None:
    from op_profiler.measure.measurement import LAUNCH_GAP_METHOD

    name = f"models, {LAUNCH_GAP_METHOD}"
    rows = with_earlier(__file__, name, additivity(db), Case._fields)
    beside = with_earlier(__file__, "against_a_profiler", beside, ["model"])
    if not rows:
        sys.exit(f"{db} has no timing whose launch gap is of {LAUNCH_GAP_METHOD!r}: collect with --remeasure all")
    tables = stored_tables(__file__) | {name: rows} | ({"against_a_profiler": beside} if beside else {})
    print(json.dumps(tables, indent=1))
    distances = [abs(row["ratio"] - 1) for row in rows]
    large = [abs(row["ratio"] - 1) for row in rows if row["whole_model_us"] >= _LARGE_US] or [float("nan")]
    headline = (
        f"sum of operators and waits for launches over the whole, {len(rows)} of {len(cases())} models: median off "
        f"{statistics.median(distances):.1%}, worst {max(distances):.1%}; of {_LARGE_US:.0f} us and more "
        f"{statistics.median(large):.1%} and {max(large):.1%}"
    )
    print(headline)
    store(__file__, headline, tables, whole=True, provenance=about_all(__file__, measured_where(db, here=here)))


if __name__ == "__main__":
    main()
