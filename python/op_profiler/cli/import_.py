"""``op-profiler import``."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Annotated

import typer

EXAMPLES = """Examples:

op-profiler import --format autotvm resnet-18.log

op-profiler import --format autotvm tuned.json --processor "Xeon Gold 6148" --db sqlite:///logs.db
"""
FORMATS = ("autotvm",)


def import_(
    file: Annotated[Path, typer.Argument(help="File to read.")],
    format: Annotated[str, typer.Option(help="autotvm: JSON lines of AutoTVM.")] = "autotvm",
    processor: Annotated[
        str | None, typer.Option(help="The device that was measured, where the format does not say it.")
    ] = None,
    db: Annotated[str, typer.Option(help="SQLAlchemy address of the dataset.")] = "sqlite:///results/op_profiler.db",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.")] = False,
) -> None:
    """Take measurements of others into the dataset; what cannot be read is counted, never dropped in silence."""
    from op_profiler.dataset import Dataset, import_autotvm
    from op_profiler.errors import OpProfilerError, UnknownNameError

    if format not in FORMATS:
        raise UnknownNameError("format", format, FORMATS)
    if not file.is_file():
        raise OpProfilerError(f"{file} does not exist or is no file")
    with Dataset.open(db) as dataset:
        done = import_autotvm(dataset, file, processor=processor)
    if as_json:
        print(json.dumps(dataclasses.asdict(done)))
    elif not quiet:
        print(f"{done.rows} measurements from {file}, {done.failed} of them failed trials")
        if done.unreadable:
            print(f"skipped: {done.unreadable} lines that are no AutoTVM records")
        for template, count in sorted(done.unknown.items()):
            print(f"skipped: {count} records of the template {template}, which is not known here")
    if not done.rows:
        raise OpProfilerError(f"nothing in {file} could be imported; is it a log of AutoTVM (JSON lines)?")
