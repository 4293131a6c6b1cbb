"""NeuSight: operators of networks in PyTorch on eight GPUs, three of them unseen (H100, L4, A100 with 80 GB)"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from op_profiler.prediction.sets.kernel_problem import KernelProblem
from op_profiler.prediction.sets.kernels import Kernels, Processor
from op_profiler.prediction.sets.public_set import PublicSet, Published, Reading, Split, read_csv, repository

_DATA = Path("scripts/asplos/data")
_UNSEEN = {"H100": "NVIDIA H100 80GB HBM3", "L4": "NVIDIA L4", "A100-80": "NVIDIA A100 80GB PCIe"}
_ELEMENT_WISE = ("add", "addu", "mul", "mulu", "pow", "powu", "div", "divu", "relu", "gelu", "tanh")
_NAMES = tuple(sorted((*_ELEMENT_WISE, "bmm", "linear", "ln", "softmax")))
_TWO_INPUTS = ("add", "mul", "div", "pow")
_NORM_FLOPS = {"softmax": 5, "ln": 6}
OPERATORS = {
    "linear": (("linear",), "linear", 13.9),
    "batched product": (("bmm",), "bmm", 13.8),
    "softmax": (("softmax",), "softmax", 13.9),
    "element-wise": (_ELEMENT_WISE, "elem", 19.3),
    "layer norm": (("ln",), "ln", 56.7),
}
"""By operator: folders of the training rows, file of the test rows, and the published error (MAPE in per cent)."""
_MOST_FLOPS = 1e6  # in units of 1e9; one file pools the tensor cores of several GPUs
_GB, _MB, _MS = 1e3, 1e6, 1e3  # bytes in a microsecond at 1 GB/s; bytes; microseconds


def processors_of(folder: Path) -> list[Processor]:
    """Return the data sheets of NeuSight's GPUs, with the peak of float32."""
    found = [json.loads(path.read_text()) for path in sorted((folder / _DATA / "device_configs").glob("*.json"))]
    found = [about for about in found if about.get("SingleFLOPs", np.inf) < _MOST_FLOPS]
    return [
        Processor(one["Device"], one["SingleFLOPs"] * _GB, one["Mem_Bw"] * _GB, one["Num_Sm"], one["L2Cache"] * _MB)
        for one in found
    ]


def kernels(rows: list[dict[str, str]], processors: list[Processor]) -> Kernels:
    """Return operators from the columns OPName, Device, Latency (milliseconds), B, and M, N, K or H."""
    index = {processor.name: number for number, processor in enumerate(processors)}
    sizes, work = [], []
    for row in rows:
        name, batch = row["OPName"], float(row["B"])
        if "M" in row:
            high, wide, depth = (float(row[key]) for key in "MNK")
            weights = wide * depth * (batch if name == "bmm" else 1)
            sizes.append((batch, high, wide, depth))
            work.append((2 * batch * high * wide * depth, 4 * (batch * high * (depth + wide) + weights)))
        else:
            count = batch * float(row["H"])
            sizes.append((1.0, batch, float(row["H"]), 1.0))
            work.append((_NORM_FLOPS.get(name, 1) * count, 4 * count * (3 if name in _TWO_INPUTS else 2)))
    flops, moved = np.array(work, dtype=np.float64).T
    return Kernels(
        sizes=np.array(sizes),
        flops=flops,
        moved=moved,
        kind=np.array([_NAMES.index(row["OPName"]) for row in rows]),
        processor=np.array([index[row["Device"]] for row in rows]),
        processors=processors,
        time_us=np.array([float(row["Latency"]) for row in rows]) * _MS,
        more=np.zeros((len(rows), 0)),
    )


def rows_of(folder: Path, names: Sequence[str], file: str) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """Return the training rows in the folders `names`, and the test rows in the file `file`."""
    folders = [folder / _DATA / f"dataset/train/collect/{name}/p2.1.0" for name in names]
    learned = [row for each in folders for path in sorted(each.glob("*.csv")) for row in read_csv(path)]
    return learned, read_csv(folder / _DATA / f"dataset/test/{file}.csv")


def _read(folder: Path, seed: int) -> Reading:
    reading = Reading()
    processors = processors_of(folder)
    for operator, (names, file, published) in OPERATORS.items():
        train, test = (kernels(reading.timed(rows, "Latency"), processors) for rows in rows_of(folder, names, file))
        task = KernelProblem(train, seed)
        reading.splits += list(_splits(task, operator, test, published))
    return reading


def _splits(task: KernelProblem, operator: str, test: Kernels, published: float) -> Iterator[Split]:
    on = np.array([processor.name for processor in test.processors])[test.processor]
    error = Published(published, "MAPE", "its three unseen GPUs together")
    for short, name in _UNSEEN.items():
        if (on == name).any():
            yield task.split(f"{operator}, {short}", test.where(on == name), f"{short} was never measured", error)
    seen = ~np.isin(on, list(_UNSEEN.values()))
    yield task.split(f"{operator}, seen GPUs", test.where(seen), "other sizes on the five GPUs of the training rows")


SET = PublicSet(
    about=__doc__,
    fetch=repository("sitar-lab/NeuSight", "neusight"),
    licence="MIT",
    needs=(str(_DATA / "dataset/test/linear.csv"),),
    read=_read,
)
