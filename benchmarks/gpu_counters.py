"""What the counters of a GPU say of the operators that take most of a network: is it memory, or the SMs?

    python benchmarks/gpu_counters.py [--model resnet-50] [--keep FOLDER]
    python benchmarks/gpu_counters.py --read FOLDER         (where there is no GPU: what a run before has kept)

NVIDIA's Nsight Compute (`ncu`) runs the model once with every kernel several times, under its own clocks. It needs the
driver's permission.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from common import ROOT, measured_on, store

METRICS = {
    "gpu__time_duration.sum": "us",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed": "dram_percent",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": "sm_percent",
    "sm__warps_active.avg.pct_of_peak_sustained_active": "occupancy_percent",
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active": "tensor_cores_percent",
}
_MOST = 10


def run_once(model: str, order: Path) -> None:
    """The model, once; which operator launches how many kernels goes to `order`."""
    from op_profiler.building.build import build_model
    from op_profiler.building.request import BuildRequest
    from op_profiler.building.requested_model import load_model, random_inputs
    from op_profiler.compilers.compiler import compiler_in_use
    from op_profiler.compilers.tvm_build import runtime_device
    from op_profiler.frontends.frontend import ModelRequest
    from op_profiler.measure.turns import measuring
    from op_profiler.targets import TARGETS

    request = BuildRequest(
        model=ModelRequest(source="local", name=model), target="cuda", schedules="none", threads=(0,)
    )
    imported, _, target = load_model(request)
    compiled = build_model(request, imported, target).compiled
    told = []
    for call in compiled.calls:
        operator = compiled.by_label[call.label].operator
        launches = len(compiled.launches.get(call.label, ()))
        told.append([call.name, call.label, launches, operator.key, operator.name])
    order.write_text(json.dumps(told))
    with measuring([TARGETS.get("cuda").lock() or ""]):
        compiler_in_use().load(compiled, runtime_device(target), random_inputs(list(imported.inputs)))
        runtime_device(target).sync()


def counted(folder: Path) -> list[dict[str, Any]]:
    """The operators that take most, the longest first; counters are means over a call's kernels, by their time."""
    lines = [line for line in (folder / "counters.csv").read_text().splitlines() if line.startswith('"')]
    kernels: dict[int, dict[str, float]] = {}
    for row in csv.DictReader(lines):
        unit = {"ns": 1e-3, "ms": 1e3}.get(row["Metric Unit"], 1.0)
        value = float(row["Metric Value"].replace(",", "")) * unit
        kernels.setdefault(int(row["ID"]), {})[METRICS[row["Metric Name"]]] = value
    order = json.loads((folder / "order.json").read_text())
    if sum(launches for _, _, launches, _, _ in order) != len(kernels):
        sys.exit(f"{len(kernels)} kernels were counted, and the model launches others")
    found: dict[str, list[dict[str, float]]] = {}
    names, place = {}, 0
    for _, _, launches, key, name in order:
        found.setdefault(key, []).extend(kernels[place + number] for number in range(launches))
        names[key] = name
        place += launches
    rows = []
    for key, mine in found.items():
        total_us = sum(kernel["us"] for kernel in mine)
        rates = {
            column: round(sum(kernel[column] * kernel["us"] for kernel in mine) / total_us, 1)
            for column in METRICS.values()
            if column != "us"
        }
        rows.append({"operator": names[key], "kernels": len(mine), "all_us": round(total_us, 1)} | rates)
    return sorted(rows, key=lambda row: -row["all_us"])[:_MOST]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="resnet-50")
    parser.add_argument("--keep", type=Path, help="folder for what ncu tells")
    parser.add_argument("--read", type=Path, help="folder that --keep has filled; nothing is run")
    parser.add_argument("--once", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.once:
        run_once(arguments.model, arguments.once)
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.read or arguments.keep or Path(scratch)
        if not arguments.read:
            if shutil.which("ncu") is None:
                sys.exit("this needs ncu (Nsight Compute) on PATH, and a GPU; --read takes what a run has kept")
            folder.mkdir(parents=True, exist_ok=True)
            command = ["ncu", "--target-processes", "application-only", "--csv", "--metrics", ",".join(METRICS)]
            command += [sys.executable, __file__, "--model", arguments.model, "--once", str(folder / "order.json")]
            environment = os.environ | {
                "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT / "python"), os.environ.get("PYTHONPATH")]))
            }
            with (folder / "counters.csv").open("w") as file:
                subprocess.run(command, env=environment, stdout=file, check=True)
            (folder / "about.json").write_text(json.dumps(measured_on()))
        about = json.loads((folder / "about.json").read_text())
        rows = counted(folder)
    print(json.dumps(rows, indent=1))
    low = sum(row["dram_percent"] < 50 and row["sm_percent"] < 50 for row in rows)
    headline = (
        f"{arguments.model}: {low} of the {len(rows)} heaviest operators use neither half of the memory nor of the SMs"
    )
    print(headline)
    store(__file__, headline, {"operators": rows}, whole=arguments.model == "resnet-50", provenance=about)


if __name__ == "__main__":
    main()
