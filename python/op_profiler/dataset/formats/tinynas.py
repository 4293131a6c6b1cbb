"""The convolution library of TinyNAS's op_profiler: text, milliseconds for the whole batch, -1 for a failure.

{Regular,128,3,480,480,192,7,2,1} 30.9881      {Conv_type,Batch,In_C,In_H,In_W,Out_C,Kernel,Stride,ElmtFused}
"""

from __future__ import annotations

import csv
import re
from pathlib import Path

from op_profiler.dataset.formats._base import Convolutions
from op_profiler.errors import DatasetError

_ROW = re.compile(r"^\{(Regular|Depthwise),([\d,]+)\}\s+(\S+)$")
_KINDS = {"Regular": 0, "Depthwise": 1}
_TUPLE = ("Conv_type", "Stride", "ElmtFused", "Kernel", "Batch", "In_C", "In_H", "Out_C")


def read_library(path: Path) -> Convolutions:
    """The rows of a library that have a time.

    Raises:
        DatasetError: it cannot be read, or no line of it is a row.
    """
    rows, times = [], []
    failed = unreadable = 0
    for line in _lines(path):
        found = _ROW.match(line)
        numbers = [int(n) for n in found[2].split(",")] if found else []
        if found is None or len(numbers) != 8 or numbers[2] != numbers[3]:  # every public table has H = W
            unreadable += 1
            continue
        batch, in_channels, size, _, out_channels, kernel, stride, fused = numbers
        milliseconds = _number(found[3])
        if milliseconds is None or milliseconds <= 0:
            failed += 1
            continue
        rows.append((_KINDS[found[1]], batch, in_channels, size, out_channels, kernel, stride, fused))
        times.append(milliseconds * 1e3)
    if not rows:
        raise DatasetError(f"{path} holds no rows such as {{Regular,128,3,480,480,192,7,2,1}} 30.9881")
    return Convolutions.of(rows, times, failed=failed, unreadable=unreadable)


def write_library(table: Convolutions, path: Path) -> None:
    """The same format; a time that is not known is written as -1."""
    names = {number: name for name, number in _KINDS.items()}
    with path.open("w") as file:
        for row, time in zip(table.matrix, table.latency_us):
            kind, batch, in_channels, size, out_channels, kernel, stride, fused = (int(v) for v in row)
            shape = f"{names[kind]},{batch},{in_channels},{size},{size},{out_channels},{kernel},{stride},{fused}"
            file.write(f"{{{shape}}} {time / 1e3:.6g}\n" if time > 0 else f"{{{shape}}} -1\n")


def read_tuples(path: Path) -> Convolutions:
    """A CSV of predictor tuples, with their names in the first line.

    Raises:
        DatasetError: it cannot be read, or columns are missing.
    """
    rows = list(csv.DictReader(_lines(path)))
    if not rows or not set(_TUPLE) <= set(rows[0]):
        raise DatasetError(f"{path} is no table with the columns {', '.join(_TUPLE)}")
    return Convolutions.of(
        [
            (
                _KINDS[row["Conv_type"]],
                *(int(row[name]) for name in ("Batch", "In_C", "In_H", "Out_C", "Kernel", "Stride", "ElmtFused")),
            )
            for row in rows
        ]
    )


def _lines(path: Path) -> list[str]:
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise DatasetError(f"{path} cannot be read: {error}") from error
    return [stripped for line in text.splitlines() if (stripped := line.strip()) and not stripped.startswith("#")]


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
