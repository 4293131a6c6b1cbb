"""``op-profiler import``."""

from __future__ import annotations

import dataclasses
import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from op_profiler import json_text
from op_profiler.cli import options
from op_profiler.dataset import DEFAULT_DB

if TYPE_CHECKING:
    from op_profiler.dataset.formats.format import Imported

EXAMPLES = """Examples:

op-profiler import --format autotvm resnet-18.log

op-profiler import --format autotvm tuned.json --device "Xeon Gold 6148" --db sqlite:///logs.db

op-profiler import --format tinynas conv_data.out --device V100

op-profiler import operators.parquet                    (the name tells the format)
"""
_NARROW = re.compile(r"(?:^|[^a-z0-9])(u?int8|i8|fp16|float16|f16|half)(?![a-z0-9])")
"""Precisions other than float32, as names of files have them."""
_SILENT_SECONDS = 2.0
_EVERY_SECONDS = 0.5


def import_(
    file: Annotated[Path, typer.Argument(help="File to read.")],
    format: Annotated[
        str | None,
        typer.Option(help="Of the file: {formats}. Left out: of .parquet, .csv and .jsonl its own; otherwise autotvm."),
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="Name of the device that was measured, where the format does not say it.")
    ] = None,
    precision: Annotated[
        str | None,
        typer.Option(
            help="float32, float16 or int8, where the format does not say it. Left out: float32, unless the name of a "
            "file has another one, as in table.int8.txt; then it has to be given."
        ),
    ] = None,
    db: options.Db = DEFAULT_DB,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Take measurements of others into the dataset; what cannot be read or looks wrong is counted, never dropped."""
    from typing import cast, get_args

    from op_profiler.dataset import Dataset
    from op_profiler.dataset.formats import FORMATS, SUFFIXES, importing
    from op_profiler.errors import OpProfilerError, UnknownNameError, UsageError
    from op_profiler.measure.measurement import Precision

    format = format or SUFFIXES.get(file.suffix.lower(), "autotvm")
    chosen = FORMATS.get(format)
    if precision is not None and precision not in get_args(Precision):
        raise UnknownNameError("precision", precision, get_args(Precision))
    dtype = cast("Precision", precision or "float32")
    if device is not None and not chosen.takes_device:
        raise UsageError(f"--device does not go with {format}: every row says where it was measured")
    if dtype != "float32" and not chosen.takes_precision:
        raise UsageError(f"--precision does not go with {format}, which says it itself")
    if precision is None and chosen.takes_precision and (word := _NARROW.search(file.name.lower())):
        likely = "int8" if word[1].endswith("8") else "float16"
        raise UsageError(
            f"the name {file.name} has {word[1]} in it, and {format} does not say the precision of its times; "
            f"give --precision {likely}, or --precision float32 if they are of float32"
        )
    if not file.is_file():
        raise OpProfilerError(f"{file} does not exist or is no file; give the path of a table")
    with Dataset.open(db) as dataset, _Counting(quiet=quiet) as counting:
        done = importing.import_table(
            dataset, file, format=format, device=device, precision=dtype, progress=counting.show
        )
    if as_json:
        print(json_text.dumps(dataclasses.asdict(done)))
    elif not quiet:
        _print(done, file, format)
    importing.refuse_nothing(done, file, format)


def _print(done: Imported, file: Path, format: str) -> None:
    print(f"{done.rows} measurements from {file}, {done.failed} of them failed trials")
    if done.known:
        print(f"left as they were: {done.known} that the dataset has already")
    if done.merged:
        print(f"merged: {done.merged} rows that measure the same as another became further samples of it")
    if done.failed_beside:
        print(f"left out: {done.failed_beside} failed rows of what another row tells")
    if done.unreadable:
        what = "AutoTVM records" if format == "autotvm" else f"rows of the format {format}"
        print(f"skipped: {done.unreadable} lines that are no {what}")
    for line in done.problems:
        print(f"  {line}")
    for kind, count in sorted(done.unknown.items()):
        what = "template" if format == "autotvm" else "operator"
        print(f"skipped: {count} records of the {what} {kind}, which is not known here")
    for reason, count in sorted(done.rejected.items()):
        print(f"rejected: {count} records of {reason}")
    if done.suspicious:
        counts = ", ".join(f"{count} {kind}" for kind, count in sorted(done.suspicious.items()))
        print(f"suspicious, stored all the same: {counts}; the first:")
    for line in done.examples:
        print(f"  {line}")


class _Counting:
    """How far work of more than two seconds has come, in one line on stderr; with `quiet`, nothing."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._next = time.monotonic() + _SILENT_SECONDS
        self._width = 0

    def __enter__(self) -> _Counting:
        return self

    def __exit__(self, *_: object) -> None:
        if self._width:
            print(" " * self._width, end="\r", file=sys.stderr, flush=True)

    def show(self, done: int, total: int) -> None:
        """`done` of `total` are ready; drawn at most twice a second."""
        now = time.monotonic()
        if self._quiet or now < self._next:
            return
        self._next = now + _EVERY_SECONDS
        text = f"{done:,} of {total:,} rows stored ({done / max(total, 1):.0%})"
        self._width = max(self._width, len(text))
        print(text, end="\r", file=sys.stderr, flush=True)
