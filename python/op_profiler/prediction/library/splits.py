"""Splits of a table of convolutions into training entries and held-out entries."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from op_profiler.dataset.formats.format import Convolutions
from op_profiler.errors import DatasetError, UnknownNameError

_OUT_CHANNELS = (96, 192, 768, 1536, 2176)
_RATIOS = (0.5, 2.0)
_BATCH = 64


_SPLITS: dict[str, Callable[[Convolutions, int], np.ndarray]] = {
    "random": lambda table, seed: np.random.default_rng(seed).random(len(table)) < 0.2,
    "h": lambda table, _: np.isin(table.column("size"), np.unique(table.column("size"))[1::2]),
    "oc": lambda table, _: np.isin(table.column("out_channels"), _OUT_CHANNELS),
    "ratio": lambda table, _: np.isin(table.ratio, _RATIOS),
    "batch": lambda table, _: table.column("batch") == _BATCH,
    "largest": lambda table, _: np.isin(table.column("size"), np.unique(table.column("size"))[-2:]),
}
SPLITS = tuple(_SPLITS)
DESCRIPTIONS = {
    "random": "a random fifth",
    "h": "every other size",
    "oc": f"output channels {', '.join(map(str, _OUT_CHANNELS))}",
    "ratio": "ratios of input to output channels 0.5 and 2",
    "batch": f"batch {_BATCH}",
    "largest": "the two largest sizes",
}


def held_out(table: Convolutions, split: str, seed: int = 0) -> np.ndarray:
    """Return the mask of the entries that a split holds out, shape (entries,).

    Raises:
        UnknownNameError: `split` is not one of `SPLITS`.
        DatasetError: the split holds out no entry of the table, or all entries.
    """
    if split not in _SPLITS:
        raise UnknownNameError("split", split, SPLITS)
    mask = _SPLITS[split](table, seed)
    if not mask.any() or mask.all():
        raise DatasetError(f"split {split} ({DESCRIPTIONS[split]}) holds out {mask.sum()} of {len(table)} rows")
    return mask
