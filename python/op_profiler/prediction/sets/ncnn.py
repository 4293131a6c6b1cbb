"""ncnn: 35 networks on 91 processors with up to 224 threads, of which ten networks are measured on a new processor"""

from __future__ import annotations

import collections
import re
from pathlib import Path

import numpy as np

from op_profiler.prediction.sets.public_set import PublicSet, Published, Reading, repository
from op_profiler.prediction.sets.transfer import TransferProblem

_README = "benchmark/README.md"
_SAMPLES = 10
_SETTING = re.compile(r"^(num_threads|powersave|gpu_device) = (-?\d+)")
_ROW = re.compile(r"^\s*([\w.-]+)\s+min =\s*([\d.]+)\s+max =\s*([\d.]+)\s+avg =\s*([\d.]+)")
_PUBLISHED = Published(27.0, "MAPE", "one factor from ten networks, the best of three choices")
_PARTS = 5
_LEAST_SHARE = 0.2
_MS = 1e3  # microseconds


def read_table(text: str, reading: Reading) -> dict[tuple[str, ...], dict[str, float]]:
    """Return the minimum time of each network in microseconds, by run and network; runs on GPUs are skipped.

    Args:
        text: the README of ncnn's benchmark.
        reading: counts the skipped rows.

    Returns:
        by run (processor, number of threads, power mode; each is a text), the times by the name of the network.
    """
    found: dict[tuple[str, ...], dict[str, float]] = {}
    processor = ""
    settings: dict[str, str] = {}
    for line in text.splitlines():
        if line.startswith("#"):
            processor, settings = line.strip("# "), {}
        elif setting := _SETTING.match(line):
            settings[setting[1]] = setting[2]
        elif row := _ROW.match(line):
            if settings.get("gpu_device", "-1") != "-1":
                reading.skipped["on a GPU"] += 1
            elif float(row[2]) <= 0:
                reading.skipped["no time"] += 1
            else:
                run = (processor, settings.get("num_threads", ""), settings.get("powersave", ""))
                networks = found.setdefault(run, {})
                if row[1] in networks:
                    reading.skipped["measured again, the shorter is used"] += 1
                networks[row[1]] = min(float(row[2]) * _MS, networks.get(row[1], np.inf))
    return found


def _read(folder: Path, seed: int) -> Reading:
    reading = Reading()
    found = read_table((folder / _README).read_text(encoding="utf-8"), reading)
    counts = collections.Counter(network for run in found.values() for network in run)
    networks = sorted(network for network, count in counts.items() if count > _LEAST_SHARE * len(found))
    reading.skipped[f"of a network in fewer than {_LEAST_SHARE:.0%} of the runs"] += counts.total() - sum(
        counts[network] for network in networks
    )
    few = [run for run, times in found.items() if len(times) < 2 * _SAMPLES]
    reading.skipped[f"of a run with fewer than {2 * _SAMPLES} networks"] += sum(len(found.pop(run)) for run in few)
    times = {run: np.array([each.get(network, np.nan) for network in networks]) for run, each in found.items()}
    processors = sorted({run[0] for run in times})
    for part in range(_PARTS):
        new = set(np.random.default_rng(seed).permutation(processors)[part::_PARTS])
        known: dict[str, list[np.ndarray]] = {}
        for run, each in times.items():
            if run[0] not in new:
                known.setdefault(run[0], []).append(each)
        asked = [each for run, each in times.items() if run[0] in new]
        task = TransferProblem(known, _SAMPLES, np.eye(len(networks)), seed)
        name, of = (
            f"fifth {part + 1} of the processors",
            f"{len(new)} processors but for {_SAMPLES} networks of each run",
        )
        reading.splits.append(task.split(name, asked, of, _PUBLISHED))
    return reading


SET = PublicSet(
    about=__doc__,
    fetch=repository("Tencent/ncnn", "ncnn"),
    licence="BSD-3-Clause",
    needs=(_README,),
    read=_read,
)
