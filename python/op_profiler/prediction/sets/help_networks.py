"""HELP: networks of three search spaces on up to 28 devices, of which ten networks are measured on a new one"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from op_profiler.errors import needing
from op_profiler.prediction.sets.public_set import PublicSet, Published, Reading, repository
from op_profiler.prediction.sets.transfer import TransferProblem

_SAMPLES = 10
_KNOWN = (
    *("1080ti_1", "1080ti_32", "silver_4114", "silver_4210r", "samsung_a50", "pixel3", "essential_ph_1"),
    *("samsung_s7", "titanx_1", "titanx_32", "gold_6240"),
)
_SPACES: dict[str, tuple[tuple[str, ...], tuple[str, ...], Published | None]] = {
    "nasbench201": (
        (*_KNOWN, "1080ti_256", "titanx_256"),
        ("titan_rtx_256", "gold_6226", "pixel2", "raspi4", "eyeriss", "fpga"),
        Published(0.932, "Spearman"),
    ),
    "fbnet": ((*_KNOWN, "1080ti_64", "titanx_64"), ("fpga", "raspi4", "eyeriss"), Published(0.910, "Spearman")),
    "ofa": (
        tuple(f"{gpu}_{batch}" for gpu in ("2080ti", "titan_xp", "v100") for batch in (1, 32, 64)),
        tuple(f"titan_rtx_{batch}" for batch in (1, 32, 64)),
        None,
    ),
}
"""By search space: known devices (HELP's devices for training and validation), new devices, and HELP's result on the
new devices."""
_BATCH = re.compile(r"_(1|32|64|256)$")  # at the end of the name of a device
_MS = 1e3  # microseconds


def _load(path: Path) -> object:
    with needing("torch", "reading the set help", extra="torch"):
        import torch
    return torch.load(path, weights_only=True)


def _read(folder: Path, seed: int) -> Reading:
    reading = Reading()
    for space, (known, new, published) in _SPACES.items():
        times = {
            name: np.asarray(_load(folder / f"data/{space}/latency/{name}.pt"), dtype=np.float64).ravel() * _MS
            for name in (*known, *new)
        }
        reading.skipped["no positive time"] += int(sum((each <= 0).sum() for each in times.values()))
        times = {name: np.where(each > 0, each, np.nan) for name, each in times.items()}
        items = _items(folder, space, len(times[known[0]]))
        settings: dict[str, list[np.ndarray]] = {}
        for name in known:
            settings.setdefault(_BATCH.sub("", name), []).append(times[name])
        task = TransferProblem(settings, _SAMPLES, items, seed)
        devices = f"the new devices but for {_SAMPLES} networks each"
        reading.splits.append(task.split(f"{space}, all", [times[name] for name in new], devices, published))
        reading.splits += [task.split(f"{space}, {name}", [times[name]], f"{name} but for {_SAMPLES}") for name in new]
    return reading


def _items(folder: Path, space: str, count: int) -> np.ndarray:
    """Return the features of each network, shape (networks, columns).

    A column is 1 for the networks that have a certain operation at a certain position, otherwise 0. For the space
    ``ofa``, whose file of networks contains code and is not loaded, there is a single column of zeros.
    """
    if space == "fbnet":
        places = np.array(_load(folder / "data/fbnet/arch.pt"))
    elif space == "nasbench201":
        names = _load(folder / "data/nasbench201/str_arch2idx.pt")
        assert isinstance(names, dict)
        places = np.array([re.findall(r"(\w+)~\d", text) for text in sorted(names, key=lambda text: int(names[text]))])
    else:
        return np.zeros((count, 1))
    return np.column_stack([column[:, None] == np.unique(column) for column in places.T]).astype(np.float64)


SET = PublicSet(
    about=__doc__,
    fetch=repository("HayeonLee/HELP", "help"),
    licence="MIT",
    needs=("data/nasbench201/latency/fpga.pt", "data/fbnet/latency/fpga.pt", "data/ofa/latency/v100_1.pt"),
    read=_read,
)
