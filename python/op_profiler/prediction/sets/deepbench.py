"""DeepBench: convolutions of speech and vision on a V100, by a predictor fitted to TinyNAS's V100"""

from __future__ import annotations

import dataclasses
import re
import zipfile
from pathlib import Path
from xml.etree import ElementTree

import numpy as np

from op_profiler.dataset.formats.format import Convolutions
from op_profiler.errors import DatasetError
from op_profiler.prediction.library.library_predictor import LibraryPrediction
from op_profiler.prediction.sets import tinynas_v100
from op_profiler.prediction.sets.public_set import PublicSet, Published, Reading, Split, repository

_BOOK = "results/train/DeepBench_NV_V100.xlsx"
_SHEET = "xl/worksheets/sheet1.xml"  # FP32
_SPACE = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
_COLUMNS = ("C", "D", "E", "F", "G", "H", "I", "J", "K", "L", "M", "N")
"""Width, height, input channels, batch, output channels, filter width and height, padding and stride of both axes, and
milliseconds of the forward pass."""
_SAMPLES = 10
_PUBLISHED = "plain trees, all 94 convolutions"
_MS = 1e3  # microseconds


def rows_of(path: Path) -> list[dict[str, str]]:
    """Return the rows of the first sheet of a workbook, each as the texts of its cells by the letter of the column.

    Raises:
        DatasetError: the file cannot be read, or is not a workbook.
    """
    try:
        with zipfile.ZipFile(path) as book:
            shared = [
                "".join(text.text or "" for text in item.iter(f"{_SPACE}t"))
                for item in ElementTree.fromstring(book.read("xl/sharedStrings.xml"))
            ]
            sheet = ElementTree.fromstring(book.read(_SHEET))
    except (OSError, KeyError, zipfile.BadZipFile, ElementTree.ParseError) as error:
        raise DatasetError(f"{path} is no workbook of DeepBench: {error}") from error
    rows = []
    for row in sheet.iter(f"{_SPACE}row"):
        cells = {}
        for cell in row:
            value = cell.findtext(f"{_SPACE}v")
            if value is not None:
                cells[re.sub(r"\d", "", cell.get("r", ""))] = shared[int(value)] if cell.get("t") == "s" else value
        rows.append(cells)
    return rows


def convolutions(rows: list[dict[str, str]], reading: Reading) -> Convolutions:
    """Return the convolutions that the predictor supports: square, with padding that keeps the size.

    Args:
        rows: result of `rows_of`.
        reading: counts the other convolutions.
    """
    found, times, inside = [], [], False
    for cells in rows:
        if "A" in cells:
            inside = cells["A"].strip() == "Convolution"
        if not inside or not all(re.fullmatch(r"[\d.E-]+", cells.get(column, "")) for column in _COLUMNS):
            continue
        width, height, inputs, batch, outputs, wide, high, pad_w, pad_h, across, down = (
            int(float(cells[column])) for column in _COLUMNS[:-1]
        )
        if width != height or wide != high or across != down:
            reading.skipped["a convolution that is not square"] += 1
        elif (pad_w, pad_h) != (wide // 2, high // 2):
            reading.skipped["a convolution whose padding does not keep the size"] += 1
        else:
            found.append((0, batch, inputs, width, outputs, wide, across, 0))
            times.append(float(cells["N"]) * _MS)
    return Convolutions.of(found, times)


def _read(folder: Path, seed: int) -> Reading:
    reading, unused = Reading(), Reading()
    library = folder.parent / "tinynas" / tinynas_v100.FOLDER / tinynas_v100.FP32
    if not library.is_file():
        raise DatasetError(f"deepbench needs the set tinynas, which is absent; {tinynas_v100.SET.fetch}")
    table, train = convolutions(rows_of(folder / _BOOK), reading), tinynas_v100.usable(library, unused)
    answer = tinynas_v100.answers(train, table, seed)
    sampled = np.random.default_rng(seed).permutation(len(table))[:_SAMPLES]
    rest = np.setdiff1d(np.arange(len(table)), sampled)

    def scaled(method: str) -> LibraryPrediction:
        given = answer(method)
        factor = np.median(table.latency_us[sampled] / given.latency_us[sampled])
        return LibraryPrediction(*(each[rest] * factor for each in (given.latency_us, given.low_us, given.high_us)))

    whole = Split(
        name="FP32 convolutions",
        held_out="all convolutions of DeepBench",
        development="parts of TinyNAS's table with the same gap",
        trained=len(train),
        truth_us=table.latency_us,
        answer=answer,
        published=Published(19.9, "MAPE", _PUBLISHED),
    )
    factor = dataclasses.replace(
        whole,
        name=f"{whole.name}, one factor",
        held_out=f"{whole.held_out} but for {_SAMPLES}, which give a factor",
        truth_us=table.latency_us[rest],
        answer=scaled,
        published=Published(15.6, "MAPE", _PUBLISHED),
    )
    reading.splits = [whole, factor]
    return reading


SET = PublicSet(
    about=__doc__,
    fetch=repository("baidu-research/DeepBench", "deepbench"),
    licence="Apache-2.0",
    needs=(_BOOK,),
    read=_read,
)
