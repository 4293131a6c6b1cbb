"""TLCBench: schedules of BERT's operators that AutoTVM tried on a Xeon 8124M and on a T4"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from op_profiler.dataset.formats.autotvm_templates import TaskArguments
from op_profiler.prediction.sets.kernel_problem import KernelProblem
from op_profiler.prediction.sets.kernels import Kernels, Processor
from op_profiler.prediction.sets.public_set import PublicSet, Reading, repository
from op_profiler.schedules.record_files import numbered_records
from op_profiler.schedules.records import Record

_LOGS = "saved_logs/2020_01_11/autotvm"
_PROCESSORS = {
    "platinum-8124m": Processor("Xeon Platinum 8124M", 1.7e6, 1.2e5, 18, 25e6),
    "t4": Processor("Tesla T4", 8.1e6, 3.2e5, 40, 4e6),
}
_KNOBS, _FACTORS = 14, 4  # columns: values of knobs, and factors of each
_PRODUCTS = ("dense", "batch_matmul")
_SHARE = 0.2
_US = 1e6  # microseconds in a second


def kernels(records: Sequence[Record], processor: Processor) -> Kernels:
    """Return one kernel per record, a matrix product with its schedule; every record must have a time."""
    sizes = []
    for record in records:
        data, weight = (tensor.shape for tensor in TaskArguments.of(record.arguments, windows=0).tensors[:2])
        batch = math.prod(data[:-2])
        sizes.append((float(batch), float(data[-2]), float(weight[-2]), float(data[-1])))
    templates = sorted({record.template for record in records})
    return Kernels.of_products(
        np.array(sizes),
        [processor],
        np.array([record.mean_seconds * _US for record in records]),
        (4, 4, 4),
        kind=np.array([templates.index(record.template) for record in records]),
        more=np.array([_knobs(record) for record in records]),
    )


def _knobs(record: Record) -> list[float]:
    """Return log2(|value| + 1) of the numbers of all knobs, in the order of the knobs' names.

    A value that is not a number becomes -1. The list is cut, or filled with -2, to `_KNOBS` entries.
    """
    values: list[float] = []
    for _, value in sorted(record.knobs.items()):
        factors = list(value)[:_FACTORS] if isinstance(value, (list, tuple)) else [value]
        values += [math.log2(abs(float(one)) + 1) if isinstance(one, (int, float)) else -1.0 for one in factors]
    return (values + [-2.0] * _KNOBS)[:_KNOBS]


def _read(folder: Path, seed: int) -> Reading:
    reading = Reading()
    for name, processor in _PROCESSORS.items():
        records: list[Record] = []
        for path in sorted((folder / _LOGS / name).glob("*.kernel.log")):
            numbered, unreadable = numbered_records(path)
            reading.skipped["no record"] += unreadable
            records += numbered.values()
        timed = [record for record in records if record.seconds]
        reading.skipped["failed"] += len(records) - len(timed)
        products = [record for record in timed if record.template.startswith(_PRODUCTS)]
        reading.skipped["no product of matrices"] += len(timed) - len(products)
        table = kernels(products, processor)
        hidden = np.random.default_rng(seed).random(len(table)) < _SHARE
        task = KernelProblem(table.where(~hidden), seed)
        test, of = table.where(hidden), "a random fifth of the schedules"
        reading.splits.append(task.split(f"schedules, {processor.name}", test, of))
    return reading


SET = PublicSet(
    about=__doc__,
    fetch=repository("tlc-pack/TLCBench", "tlcbench"),
    licence="none stated: evaluate only",
    needs=tuple(f"{_LOGS}/{name}/bert-B1-float32.kernel.log" for name in _PROCESSORS),
    read=_read,
)
