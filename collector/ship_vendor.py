#!/usr/bin/env python3
"""Make the predictor of vendor kernels that ships: results/cuda/vendor/kernels.zip, from public sets.

    python collector/ship_vendor.py SETS        folder with neusight and aiconfigurator, which the commands fetch that
                                                `op-profiler evaluate --set all` prints

First prints the error and the coverage on GEMM sites that were held out, then fits to the rows. Four minutes.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "python"))

from op_profiler.prediction.latency import vendor  # noqa: E402
from op_profiler.prediction.sets import aiconfigurator, neusight  # noqa: E402
from op_profiler.prediction.sets.kernel_problem import KernelPredictor  # noqa: E402
from op_profiler.prediction.sets.kernels import Kernels, Processor  # noqa: E402
from op_profiler.prediction.sets.public_set import Reading  # noqa: E402

MEASURED = {
    "a100": "NVIDIA A100 80GB PCIe",
    "h100": "NVIDIA H100 80GB HBM3",
    "l4": "NVIDIA L4",
    "v100": "Tesla V100-PCIE-32GB",
}
"""NeuSight's names of GPUs. P4, P100 and T4 are left out: a fit that leaves each GPU out in turn would take long, and
training and test rows of the P4 are of different states."""
H200_BYTES_PER_US = 4.8e6
"""By NVIDIA's data sheet; the rest of an H200 is as of an H100. Nobody measured it in float32."""
GROUPS = {
    "float32 product": ("linear", "batched product"),
    "float32 softmax": ("softmax",),
    "float32 element-wise": ("element-wise",),
    "float32 norm": ("layer norm",),
}
_SEED, _MOST_ROWS = 0, 10_000


def single_products(folder: Path) -> Kernels:
    """Products in bfloat16 on all systems of aiconfigurator."""
    tables = []
    for number, system in enumerate(aiconfigurator.TABLES):
        table = aiconfigurator.read_table(folder, system, Reading())
        table = table.where(table.kind == 0)
        tables.append(dataclasses.replace(table, processor=np.full(len(table), number)))
    joined = {
        name: np.concatenate([getattr(table, name) for table in tables])
        for name in ("sizes", "flops", "moved", "kind", "processor", "time_us", "more")
    }
    return Kernels(**joined, processors=[table.processors[0] for table in tables])


def rows_of(folder: Path, operators: tuple[str, ...], processors: list[Processor]) -> Kernels:
    """Training and test rows of NeuSight's operators, at most `_MOST_ROWS`."""
    rows = []
    for operator in operators:
        names, file, _ = neusight.OPERATORS[operator]
        for part in neusight.rows_of(folder, names, file):
            rows += Reading().timed(part, "Latency")
    rows = [
        row if "M" in row else {name: row[name] for name in ("OPName", "Device", "Latency", "B", "H")} for row in rows
    ]
    used = {one.name for one in processors}
    table = neusight.kernels([row for row in rows if row["Device"] in used], processors)
    drawn = np.random.default_rng(_SEED).permutation(len(table))[:_MOST_ROWS]
    return table.where(np.sort(drawn))


def score(table: Kernels) -> None:
    """Print how far off GEMM sites are that were held out."""
    hidden = aiconfigurator.held_out_sites(table, _SEED)
    test = table.where(hidden)
    found = KernelPredictor.fit(table.where(~hidden), _SEED, own=False).predict(test)
    error = np.abs(found.latency_us / test.time_us - 1)
    inside = (found.low_us <= test.time_us) & (test.time_us <= found.high_us)
    for number, processor in enumerate(table.processors):
        here = test.processor == number
        print(
            f"{processor.name}: {here.sum()} rows of held-out sites, median error {np.median(error[here]):.2%}, "
            f"90th percentile {np.quantile(error[here], 0.9):.1%}, inside the interval {inside[here].mean():.1%}",
            flush=True,
        )


def main() -> None:
    """Read the sets and write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", type=Path)
    parser.add_argument("--out", type=Path, default=ROOT / "results/cuda/vendor/kernels.zip")
    given = parser.parse_args()
    half = single_products(given.sets / "aiconfigurator")
    score(half)
    used = {*MEASURED.values(), "NVIDIA A100-PCIE-40GB"}
    processors = [one for one in neusight.processors_of(given.sets / "neusight") if one.name in used]
    predictors = {vendor.HALF_PRODUCT: KernelPredictor.fit(half, _SEED, own=False)}
    least = {vendor.HALF_PRODUCT: float(half.moved.min())}
    for group, operators in GROUPS.items():
        table = rows_of(given.sets / "neusight", operators, processors)
        predictors[group] = KernelPredictor.fit(table, _SEED, own=False)
        least[group] = float(table.moved.min())
        print(f"{group}: {len(table)} rows, {predictors[group].near}, {predictors[group].far}", flush=True)
    sheets = {one.name: one for one in processors}
    gpus = {name: {"float32": sheets[full]} for name, full in MEASURED.items()}
    gpus["h200"] = {
        "float32": dataclasses.replace(gpus["h100"]["float32"], name="H200", bytes_per_us=H200_BYTES_PER_US)
    }
    for processor in half.processors:
        gpus.setdefault(processor.name.split("_")[0], {})["float16"] = processor
    given.out.parent.mkdir(parents=True, exist_ok=True)
    vendor.save(given.out, dict(sorted(gpus.items())), predictors, least)
    print(f"{given.out}: {given.out.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
