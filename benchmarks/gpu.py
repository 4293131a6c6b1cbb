"""On a GPU: do the operators add up to the model, and do their times agree with a profiler that reads the device?

    python benchmarks/gpu.py [--models resnet-18 resnet-50 mobilenet squeezenet_v1.1 bert] [--batch 1 8]

The second figure compares the kernel times of `--cache hot` with those that torch's profiler (CUPTI) reports for the
same launches, in the same process; it needs torch with CUDA beside the driver, and is left out, which is said, without.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from common import collect, provenance, store

SOURCES = {"bert": "transformers"}


def additivity(model: str, batch: int, folder: Path) -> dict[str, Any] | None:
    """Sum of operators over whole model, from one collection."""
    arguments = ["--modelsource", SOURCES.get(model, "local"), "--modelname", model, "--batchsize", str(batch)]
    db = f"sqlite:///{folder / 'gpu.db'}"
    _, entries = collect([*arguments, "--target", "cuda", "--schedules", "none", "--db", db], folder)
    if not entries or entries[0]["ratio"] is None:
        print(f"{model:18}{batch:6}  failed: {entries[0]['error'] if entries else 'no summary'}", flush=True)
        return None
    entry = entries[0]
    energy = "-" if entry["energy_mj"] is None else f"{entry['energy_mj']:.1f}"
    print(f"{model:18}{batch:6}{entry['whole_model_us']:12.1f}{entry['ratio']:8.3f}{energy:>12}", flush=True)
    return {
        "model": model,
        "batch": batch,
        "whole_model_us": round(entry["whole_model_us"], 1),
        "ratio": round(entry["ratio"], 3),
        "energy_mj": entry["energy_mj"] and round(entry["energy_mj"], 1),
    }


def against_profiler(model: str) -> dict[str, Any] | None:
    """Kernel times of this project beside CUPTI's, kernel by kernel in order; None where it cannot be asked."""
    import torch

    if not torch.cuda.is_available():
        print("torch here has no CUDA, so its profiler cannot be asked: kernel times are not compared")
        return None
    from op_profiler.targets.target import resolve_target, use_build_for

    use_build_for("cuda")
    from op_profiler.building.requested_model import random_inputs
    from op_profiler.compilers.relay.lower import compile_model
    from op_profiler.frontends import FRONTENDS
    from op_profiler.frontends.frontend import ModelRequest
    from op_profiler.targets.open_machine import open_machine

    target = resolve_target("cuda")
    lowered = FRONTENDS.get("local").load(ModelRequest(source="local", name=model))
    machine = open_machine("cuda", target, None)
    loaded: Any = machine.load(compile_model(lowered, target), random_inputs(list(lowered.inputs)))
    ours = [loaded.walk("hot", [True] * len(loaded.labels)) for _ in range(15)]
    medians = [statistics.median(times) for times in zip(*ours)]
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        loaded.run_model()
    theirs = [event.device_time for event in profile.events() if event.device_time > 0]
    ours_us, theirs_us, ratio = sum(medians), sum(theirs), sum(medians) / sum(theirs)
    print(f"{model}: sum of kernels {ours_us:.1f} us, by CUPTI {theirs_us:.1f} us: {ratio:.3f}")
    return {
        "model": model,
        "sum_of_kernels_us": round(ours_us, 1),
        "by_cupti_us": round(theirs_us, 1),
        "ratio": round(ratio, 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--models", nargs="+", default=["resnet-18", "resnet-50", "mobilenet", "squeezenet_v1.1", "bert"]
    )
    parser.add_argument("--batch", nargs="+", type=int, default=[1, 8])
    arguments = parser.parse_args()
    print(provenance())
    from op_profiler.targets.cuda import tvm_build

    lacking = tvm_build.missing() + tvm_build.missing_gpu()
    if lacking:
        sys.exit(f"this needs a GPU; this machine lacks {'; '.join(lacking)}")
    print(f"# {tvm_build.device_name()}")
    print(f"{'model':18}{'batch':>6}{'whole us':>12}{'ratio':>8}{'energy mJ':>12}")
    with tempfile.TemporaryDirectory() as name:
        found = [additivity(model, batch, Path(name)) for model in arguments.models for batch in arguments.batch]
    tables = {"models": [row for row in found if row is not None]}
    profiled = against_profiler(arguments.models[0]) if importlib.util.find_spec("torch") is not None else None
    if profiled is not None:
        tables["against_a_profiler"] = [profiled]
    if tables["models"]:
        distances = [abs(row["ratio"] - 1) for row in tables["models"]]
        headline = f"distance from 1: median {statistics.median(distances):.1%}, worst {max(distances):.1%}"
        print(headline)
        tables["device"] = [{"gpu": tvm_build.device_name()}]
        store(__file__, headline, tables, whole=len(sys.argv) == 1)


if __name__ == "__main__":
    main()
