"""Counters of the kernels that a program runs on a GPU, read by NVIDIA's Nsight Compute (``ncu``).

``ncu`` runs each kernel several times, at the GPU's base clock and with flushed caches, because it cannot read all
counters at once. The values are therefore those of cold caches, and the times are not used for the dataset. The driver
has to permit profiling.
"""

from __future__ import annotations

import csv
import os
import shutil
import subprocess
from collections.abc import Sequence
from itertools import dropwhile

import numpy as np

from op_profiler.child_processes import python_path
from op_profiler.errors import MeasureError
from op_profiler.measure.counters import GPU_SHARE_NAMES, Counts

_TIME = "gpu__time_duration.sum"
_METRICS = (
    "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "sm__warps_active.avg.pct_of_peak_sustained_active",
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
)
_ERROR = "==ERROR=="
_NO_PERMISSION = "ERR_NVGPUCTRPERM"
_LIMIT_SECONDS = 600

Kernel = dict[str, float]
"""Values of ncu's metrics, the time in nanoseconds; metrics that this GPU does not have are left out."""


def count_kernels(program: Sequence[str]) -> list[Kernel]:
    """Run a program, and read the counters of each kernel that it launches.

    Args:
        program: command of a program that can import this package.

    Returns:
        Values of each kernel, in the order of the launches.

    Raises:
        MeasureError: ncu is not on PATH, the driver forbids profiling, or the program failed.
    """
    ncu = shutil.which("ncu")
    if ncu is None:
        raise MeasureError("ncu (NVIDIA Nsight Compute, part of the CUDA toolkit) is not on PATH")
    options = ["--csv", "--print-units", "base", "--target-processes", "application-only"]
    options += ["--metrics", ",".join((_TIME, *_METRICS))]
    environment = os.environ | {"PYTHONPATH": python_path()}
    try:
        done = subprocess.run(
            [ncu, *options, *program],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_LIMIT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise MeasureError(f"ncu did not end within {_LIMIT_SECONDS} s") from error
    problem = _problem(done.stdout + done.stderr)
    if problem or done.returncode:
        raise MeasureError(problem or f"ncu ended with {done.returncode}: {done.stderr.strip()[-300:]}")
    return read_kernels(done.stdout)


def read_kernels(output: str) -> list[Kernel]:
    """Parse the output of ``ncu --csv``, which may contain lines of the program."""
    kernels: dict[int, Kernel] = {}
    table = dropwhile(lambda line: not line.startswith('"ID"'), output.splitlines())
    for row in csv.DictReader(line for line in table if line.startswith('"')):
        kernel = kernels.setdefault(int(row["ID"]), {})
        text = row["Metric Value"].replace(",", "")
        if text not in ("", "n/a", "nan"):
            kernel[row["Metric Name"]] = float(text)
    return [kernels[number] for number in sorted(kernels)]


def shares_of(kernels: Sequence[Kernel]) -> Counts:
    """Return the mean of each metric over kernels, weighted by their times; for each missing metric, the reason."""
    if not kernels:
        return Counts({}, dict.fromkeys(GPU_SHARE_NAMES, "it launches no kernel"))
    weights = [kernel.get(_TIME, 0.0) for kernel in kernels]
    values, missing = {}, {}
    for name, metric in zip(GPU_SHARE_NAMES, _METRICS):
        found = [kernel[metric] for kernel in kernels if metric in kernel]
        if len(found) == len(kernels) and sum(weights) > 0:
            values[name] = float(np.average(found, weights=weights))
        else:
            missing[name] = f"ncu reports no {metric} here"
    return Counts(values, missing)


def _problem(output: str) -> str:
    """Return the first error that ncu prints; empty if ncu prints no error."""
    if _NO_PERMISSION in output:
        return (
            f"the driver forbids it ({_NO_PERMISSION}): its option NVreg_RestrictProfilingToAdminUsers=0, or the "
            "capability CAP_SYS_ADMIN, allows it"
        )
    errors = (line.removeprefix(_ERROR).strip() for line in output.splitlines() if line.startswith(_ERROR))
    return next(errors, "")
