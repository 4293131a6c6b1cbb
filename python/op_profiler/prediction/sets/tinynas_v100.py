"""TinyNAS op_profiler: convolutions of a V100 in FP16 and INT8, whose sizes are held out in six ways"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import numpy as np

from op_profiler.dataset.formats.format import Convolutions
from op_profiler.dataset.formats.tinynas import read_library
from op_profiler.prediction.library import PREDICTORS
from op_profiler.prediction.library.library_predictor import LibraryPrediction, without_suspicious
from op_profiler.prediction.library.neighbours import TableRoofline
from op_profiler.prediction.library.splits import DESCRIPTIONS, SPLITS, held_out
from op_profiler.prediction.sets.public_set import PublicSet, Reading, Split, repository

FOLDER = Path("tinynas/latency/op_profiler/V100")
FP32 = "conv_data.out"
_LIBRARIES = {"FP16": "conv_data.out.fp16", "INT8": "conv_data.out.int8"}


def usable(path: Path, reading: Reading) -> Convolutions:
    """Return the rows of a file of convolutions that have a plausible time; count the skipped rows in `reading`."""
    read = read_library(path)
    table, findings = without_suspicious(read)
    reading.skipped["failed"] += read.failed
    reading.skipped["no row"] += read.unreadable
    reading.skipped["suspicious"] += len(findings)
    return table


def answers(train: Convolutions, test: Convolutions, seed: int) -> Callable[[str], LibraryPrediction]:
    """Return a function that, given the name of a method, returns its estimates for the rows of `test`.

    The method ``default`` is the predictor of convolution libraries, ``trees`` is its variant `xgboost`, and ``factor``
    is a roofline multiplied by one factor.
    """

    @functools.cache
    def fitted(name: str) -> LibraryPrediction:
        predictor = PREDICTORS.get(name)(seed)
        predictor.fit(train)
        return predictor.predict(test)

    def answer(method: str) -> LibraryPrediction:
        if method != "factor":
            return fitted({"default": "default", "trees": "xgboost"}[method])
        roofline = TableRoofline.of(train)
        factor = np.median(train.latency_us / roofline.latency_us(train))
        return LibraryPrediction.without_interval(roofline.latency_us(test) * factor)

    return answer


def _read(folder: Path, seed: int) -> Reading:
    reading = Reading()
    for precision, name in _LIBRARIES.items():
        table = usable(folder / FOLDER / name, reading)
        for split in SPLITS:
            mask = held_out(table, split, seed)
            train, test = table.where(~mask), table.where(mask)
            reading.splits.append(
                Split(
                    name=f"{precision}, {split}",
                    held_out=DESCRIPTIONS[split],
                    development="parts of the training rows with the same gap",
                    trained=len(train),
                    truth_us=test.latency_us,
                    answer=answers(train, test, seed),
                )
            )
    return reading


SET = PublicSet(
    about=__doc__,
    fetch=repository("alibaba/lightweight-neural-architecture-search", "tinynas"),
    licence="Apache-2.0",
    needs=tuple(str(FOLDER / name) for name in _LIBRARIES.values()),
    read=_read,
)
