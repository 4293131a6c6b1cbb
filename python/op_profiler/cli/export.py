"""``op-profiler export``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from op_profiler import json_text
from op_profiler.cli import options
from op_profiler.dataset.formats.request import ExportRequest
from op_profiler.errors import UsageError
from op_profiler.option_values import several

EXAMPLES = """Examples:

op-profiler export --format parquet --output operators.parquet

op-profiler export --format csv --output convs.csv --where "anchor LIKE 'nn.%conv2d%' AND threads = 1"

op-profiler export --table coruns --format csv --output coruns.csv --where "slowdown > 1.1"

op-profiler export --output times --partition-by device_key,anchor          (a folder of Parquet files)

op-profiler export --format chrome_trace trace.json --where "model_name = 'resnet-18'"    (opens in Perfetto)

op-profiler export --format tinynas conv_data.out --threads 1 --device "AMD EPYC 9R14"
"""


def export(
    request: ExportRequest,
    file: Annotated[Path | None, typer.Argument(help="File to write; the same as --output.")] = None,
    output: Annotated[Path | None, typer.Option(help="File to write.")] = None,
    columns: Annotated[
        bool, typer.Option("--columns", help="List the columns with their meaning; write nothing.")
    ] = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Write the dataset as one flat table with a row for each measurement, or in a format of another project."""
    from op_profiler.dataset.flat import flat_table
    from op_profiler.dataset.formats import exporting

    there = flat_table(request.table).columns if columns else ()
    if columns and as_json:
        names = ("name", "type", "description")
        print(json_text.dumps([{n: getattr(column, n) for n in names} for column in there], indent=1))
        return
    if columns:
        for column in there:
            print(f"{column.name:26} {column.type:14} {column.description}")
        return
    if (output is None) == (file is None):
        given = "--output is missing" if output is None else "the file is given twice"
        raise UsageError(f"{given}; name the file to write once, such as operators.parquet")
    path = Path(file or output or "")
    done = request.write(path)
    if as_json:
        print(json_text.dumps(done))
    elif not quiet:
        print(f"{several(done.rows, 'row')} written to {path}")
    if not quiet and not as_json:
        for line in exporting.describe(done):
            print(line, file=sys.stderr)
