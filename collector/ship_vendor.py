#!/usr/bin/env python3
"""Create the included predictor of vendor kernels, results/cuda/vendor/kernels.zip, from public sets.

    python collector/ship_vendor.py SETS        folder with neusight and aiconfigurator, which the commands fetch that
                                                `op-profiler evaluate --set all` prints

`benchmarks/vendor_kernels.py` measures its error on sites that are held out. Five minutes.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "python"))

from op_profiler.prediction.latency import vendor  # noqa: E402
from op_profiler.prediction.sets import aiconfigurator, vendor_groups  # noqa: E402
from op_profiler.prediction.sets.kernel_problem import KernelPredictor  # noqa: E402
from op_profiler.prediction.sets.kernels import Processor  # noqa: E402

H200_BYTES_PER_US = 4.8e6
"""By NVIDIA's data sheet; the rest of an H200 is as of an H100. Nobody measured it in float32."""
_SEED = 0


def sheets(sets: Path) -> dict[str, dict[str, Processor]]:
    """Data sheets by GPU and data type."""
    single = {one.name: one for one in vendor_groups.single_processors(sets / "neusight")}
    gpus = {name: {"float32": single[full]} for name, full in vendor_groups.GPUS.items()}
    gpus["h200"] = {
        "float32": dataclasses.replace(gpus["h100"]["float32"], name="H200", bytes_per_us=H200_BYTES_PER_US)
    }
    for system in aiconfigurator.TABLES:
        processor = aiconfigurator.read_processors(sets / "aiconfigurator", system)[0]
        gpus.setdefault(system.split("_")[0], {})["float16"] = processor
    return dict(sorted(gpus.items()))


def of_other_operators(copies: KernelPredictor, known: KernelPredictor) -> KernelPredictor:
    """Give the float16 copies, which are of one operator, the interval of float32 ones on a GPU that was left out."""
    assert known.far is not None, "float32 kernels are of several GPUs"
    return dataclasses.replace(copies, near=known.far.spread, far=None)


def main() -> None:
    """Read the sets and write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", type=Path)
    parser.add_argument("--out", type=Path, default=ROOT / "results/cuda/vendor/kernels.zip")
    given = parser.parse_args()
    predictors, least = {}, {}
    for name, read in vendor_groups.readers(given.sets).items():
        group = read()
        predictors[name], least[name] = group.fit(_SEED), float(group.table.moved.min())
        print(f"{name}: {len(group.table)} rows, {predictors[name].near}, {predictors[name].far}", flush=True)
    predictors[vendor.HALF_COPY] = of_other_operators(predictors[vendor.HALF_COPY], predictors[vendor.ELEMENT_WISE])
    given.out.parent.mkdir(parents=True, exist_ok=True)
    vendor.save(given.out, sheets(given.sets), predictors, least)
    print(f"{given.out}: {given.out.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
