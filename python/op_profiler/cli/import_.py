"""``op-profiler import``."""

from __future__ import annotations

import contextlib
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from op_profiler import json_text
from op_profiler.cli import options
from op_profiler.dataset.formats.request import ImportRequest
from op_profiler.option_values import several

if TYPE_CHECKING:
    from op_profiler.dataset.formats.format import Imported

EXAMPLES = """Examples:

op-profiler import --format autotvm resnet-18.log

op-profiler import --format autotvm tuned.json --device "Xeon Gold 6148" --db sqlite:///logs.db

op-profiler import --format tinynas conv_data.out --device V100

op-profiler import operators.parquet                    (the extension selects the format)
"""
_SILENT_SECONDS = 2.0
_EVERY_SECONDS = 0.5


def import_(
    file: Annotated[Path, typer.Argument(help="File to read.")],
    request: ImportRequest,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Add measurements from a file to the dataset; rows that cannot be read or look wrong are counted and reported."""
    from op_profiler.dataset.formats.importing import refuse_nothing

    with _Counting(quiet=quiet) as counting:
        done = request.read(file, counting.show)
    if as_json:
        print(json_text.dumps(done))
    elif not quiet:
        _print(done, file, request.format_of(file))
    refuse_nothing(done, file, request.format_of(file))


def _print(done: Imported, file: Path, format: str) -> None:
    print(f"{several(done.rows, 'measurement')} from {file}, {done.failed} of them failed trials")
    if done.known:
        print(f"left as they were: {done.known} that the dataset has already")
    if done.merged:
        print(
            f"merged: {several(done.merged, 'row')} of measurements that another row also has; samples were added to it"
        )
    if done.failed_beside:
        print(f"left out: {several(done.failed_beside, 'failed row')} of operators for which another row has a time")
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


class _Counting(contextlib.AbstractContextManager["_Counting"]):
    """Displays the progress of an import that takes more than two seconds, in one line on stderr; not with `quiet`."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._next = time.monotonic() + _SILENT_SECONDS
        self._width = 0

    def __exit__(self, *_: object) -> None:
        if self._width:
            print(" " * self._width, end="\r", file=sys.stderr, flush=True)

    def show(self, done: int, total: int) -> None:
        """Show that `done` of `total` rows are stored; the line is updated at most twice a second."""
        now = time.monotonic()
        if self._quiet or now < self._next:
            return
        self._next = now + _EVERY_SECONDS
        text = f"{done:,} of {total:,} rows stored ({done / max(total, 1):.0%})"
        self._width = max(self._width, len(text))
        print(text, end="\r", file=sys.stderr, flush=True)
