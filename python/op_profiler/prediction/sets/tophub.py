"""TopHub: 220 operators tuned on five ARM processors, of which twenty are measured on a new processor"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from op_profiler.prediction.sets.public_set import PublicSet, Published, Reading, repository
from op_profiler.prediction.sets.transfer import TransferProblem
from op_profiler.schedules.record_files import numbered_records
from op_profiler.schedules.records import Record

_LOG = "tophub/arm_cpu_v0.08.log"
_SAMPLES = 20
_ONE_FACTOR = "one factor from rk3399"
_PUBLISHED = {"pynq": 11.6, "snapdragon835": 12.8, "bcm2837": 13.8, "kirin970": 17.2}
_FEWEST = 200  # operators of a processor that is one of the five
_MODEL = re.compile(r"-model=(\S+)")
_US = 1e6  # microseconds in a second


def fastest(records: list[Record], reading: Reading) -> dict[str, dict[str, float]]:
    """Return the time of the fastest record of each task in microseconds, by processor and task."""
    found: dict[str, dict[str, float]] = {}
    for record in records:
        model = _MODEL.search(record.target)
        if model is None or not record.seconds:
            reading.skipped["no model of the processor" if model is None else "failed"] += 1
            continue
        tasks = found.setdefault(model[1], {})
        reading.skipped["slower than another record of its task"] += record.task in tasks
        tasks[record.task] = min(record.mean_seconds * _US, tasks.get(record.task, np.inf))
    return found


def _read(folder: Path, seed: int) -> Reading:
    reading = Reading()
    records, unreadable = numbered_records(folder / _LOG)
    reading.skipped["no record"] += unreadable
    found = fastest(list(records.values()), reading)
    few = [name for name, tasks in found.items() if len(tasks) < _FEWEST]
    reading.skipped[f"of a processor with fewer than {_FEWEST} operators"] += sum(len(found.pop(name)) for name in few)
    tasks = sorted(set.intersection(*(set(times) for times in found.values())))
    reading.skipped["not on all five processors"] += sum(len(set(times) - set(tasks)) for times in found.values())
    items = np.array([sizes_of(next(one for one in records.values() if one.task == task)) for task in tasks])
    times = {name: np.array([each[task] for task in tasks]) for name, each in found.items()}
    for name in times:
        task = TransferProblem({other: [times[other]] for other in times if other != name}, _SAMPLES, items, seed)
        error = Published(_PUBLISHED[name], "MAPE", _ONE_FACTOR) if name in _PUBLISHED else None
        of = f"{name} but for {_SAMPLES} operators"
        reading.splits.append(task.split(name, [times[name]], of, error))
    return reading


def sizes_of(record: Record, count: int = 12) -> list[float]:
    """Return features of a record: logarithms of its first `count` integer arguments, and its kind of template.

    Returns:
        log2(1 + |n|) of each integer n, filled with 0 to `count` entries, then 1 or 0 for a Winograd template and for
        a depthwise template.
    """
    numbers: list[float] = []

    def walk(value: object) -> None:
        if isinstance(value, (list, tuple)):
            for each in value:
                walk(each)
        elif isinstance(value, int) and not isinstance(value, bool):
            numbers.append(float(np.log2(1 + abs(value))))

    walk(record.arguments)
    templates = [float(word in record.template) for word in ("winograd", "depthwise")]
    return [*(numbers + [0.0] * count)[:count], *templates]


SET = PublicSet(
    about=__doc__,
    fetch=repository("tlc-pack/tophub", "tophub"),
    licence="none stated: evaluate only",
    needs=(_LOG,),
    read=_read,
)
