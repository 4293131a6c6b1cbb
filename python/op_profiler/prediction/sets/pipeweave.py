"""PipeWeave (SynPerf): FP8 products of matrices on H20 and H800, and on H100 and H200, which are unseen"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from op_profiler.prediction.sets.kernel_problem import KernelProblem
from op_profiler.prediction.sets.kernels import Kernels, Processor
from op_profiler.prediction.sets.public_set import PublicSet, Published, Reading, read_csv, repository

_TRAIN, _TEST = "dataset/gemm_fp8_train.csv", "dataset/gemm_fp8_test.csv"
_PUBLISHED = {"NVIDIA H100": 4.24, "NVIDIA H200": 5.23}
_IN_ALL = 3.89
_FP8_FLOPS = 4.0  # a multiply-add of FP8 for each of BF16, two operations each
_CACHE_BYTES = 50e6  # of the second level, which all four have


def kernels(rows: list[dict[str, str]], processors: dict[str, Processor]) -> Kernels:
    """Return matrix products from the columns M, N, K, avg_duration (microseconds) and the data sheet in each row.

    Args:
        processors: data sheets by name; the function adds the data sheets of the rows.
    """
    for row in rows:
        if row["hardware"] not in processors:
            units, mhz = int(row["num_sms"]), float(row["sm_freq"])
            processors[row["hardware"]] = Processor(
                row["hardware"],
                _FP8_FLOPS * float(row["tc_bf16"]) * units * mhz,
                float(row["mem_bandwidth"]) * 1e3,
                units,
                _CACHE_BYTES,
            )
    names = list(processors)
    return Kernels.of_products(
        np.array([[1.0, *(float(row[key]) for key in "MNK")] for row in rows]),
        list(processors.values()),
        np.array([float(row["avg_duration"]) for row in rows]),
        (1, 1, 2),
        processor=np.array([names.index(row["hardware"]) for row in rows]),
    )


def _read(folder: Path, seed: int) -> Reading:
    reading = Reading()
    processors: dict[str, Processor] = {}
    learned, asked = (reading.timed(read_csv(folder / name), "avg_duration") for name in (_TRAIN, _TEST))
    train = kernels(learned, processors)
    seen = set(processors)
    test = kernels(asked, processors)
    task = KernelProblem(train, seed)
    for number, name in enumerate(processors):
        if name not in seen:
            rows, short = test.where(test.processor == number), name.removeprefix("NVIDIA ")
            error = Published(_PUBLISHED[name], "MAPE") if name in _PUBLISHED else None
            reading.splits.append(task.split(f"fp8 GEMM, {short}", rows, f"{short} was never measured", error))
    whole = Published(_IN_ALL, "MAPE")
    reading.splits.append(task.split("fp8 GEMM, all", test, "other sizes; H100 and H200 were never measured", whole))
    return reading


SET = PublicSet(
    about=__doc__,
    fetch=repository("zksainx/pipeweave", "pipeweave"),
    licence="Apache-2.0",
    needs=(_TRAIN, _TEST),
    read=_read,
)
