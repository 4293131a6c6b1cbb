"""``op-profiler export``."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Annotated

import typer

from op_profiler import json_text
from op_profiler.cli import options
from op_profiler.dataset import DEFAULT_DB

EXAMPLES = """Examples:

op-profiler export --format parquet --output operators.parquet

op-profiler export --format csv --output convs.csv --where "anchor LIKE 'nn.%conv2d%' AND threads = 1"

op-profiler export --table coruns --format csv --output coruns.csv --where "slowdown > 1.1"

op-profiler export --output times --partition-by device_key,anchor          (a folder of Parquet files)

op-profiler export --format tinynas conv_data.out --threads 1 --device "AMD EPYC 9R14"
"""


def export(
    file: Annotated[Path | None, typer.Argument(help="File to write; the same as --output.")] = None,
    output: Annotated[Path | None, typer.Option(help="File to write.")] = None,
    format: Annotated[
        str | None,
        typer.Option(
            help="Of the file: {formats}. Left out: what its name ends with, .parquet, .csv or .jsonl; parquet where "
            "it has no end."
        ),
    ] = None,
    table: Annotated[
        str, typer.Option(help="measurements, or coruns: operators that ran side by side, beside themselves alone.")
    ] = "measurements",
    where: Annotated[str, typer.Option(help="SQL condition over the columns; see --columns.")] = "",
    partition_by: Annotated[
        str,
        typer.Option(help="Columns, by commas: a folder of Parquet files, parted by their values as DuckDB reads it."),
    ] = "",
    threads: Annotated[int | None, typer.Option(help="Only what was measured with this many threads.")] = None,
    device: Annotated[str | None, typer.Option(help="Only this processor (its name) or device (its key).")] = None,
    db: options.Db = DEFAULT_DB,
    columns: Annotated[bool, typer.Option("--columns", help="List the columns with their meaning, and stop.")] = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Write the dataset as one flat table, one row a measurement; or what of it fits into a format of others."""
    from op_profiler.cli import values
    from op_profiler.dataset import Dataset
    from op_profiler.dataset.flat import flat_table
    from op_profiler.dataset.formats import SUFFIXES, exporting
    from op_profiler.errors import UsageError
    from op_profiler.files import check_folder, check_writable

    if columns and as_json:
        names = ("name", "type", "description")
        print(json_text.dumps([{n: getattr(one, n) for n in names} for one in flat_table(table).columns], indent=1))
        return
    if columns:
        for column in flat_table(table).columns:
            print(f"{column.name:26} {column.type:14} {column.description}")
        return
    if (output is None) == (file is None):
        given = "--output is missing" if output is None else "the file is given twice"
        raise UsageError(f"{given}; name the file to write once, such as operators.parquet")
    if threads is not None and threads < 0:
        raise UsageError(f"--threads {threads} is out of range; give 1 or more, or 0 for what ran on a GPU")
    path = Path(file or output or "")
    if partition_by and SUFFIXES.get(path.suffix.lower(), "parquet") != "parquet":
        raise UsageError(f"--partition-by makes a folder of Parquet files, not {path}; give a name without that end")
    if partition_by:
        format = format or "parquet"
        check_folder("--output", path.absolute().parent)
    else:
        format = format or _format_of(path)
        check_writable({"--output": path})
    with Dataset.open(db, create=False, read_only=True) as dataset:
        done = exporting.export_table(
            dataset,
            path,
            format=format,
            where=where or None,
            threads=threads,
            device=device,
            table=table,
            partition_by=values.parse_names("--partition-by", partition_by) if partition_by else (),
        )
    if as_json:
        print(json_text.dumps(dataclasses.asdict(done)))
    elif not quiet:
        print(f"{done.rows} rows written to {path}")
    if not quiet and not as_json:
        for line in exporting.describe(done):
            print(line, file=sys.stderr)


def _format_of(path: Path) -> str:
    """By the end of a file's name.

    Raises:
        UsageError: it is of no format that is known by it.
    """
    from op_profiler.dataset.formats import SUFFIXES
    from op_profiler.errors import UsageError

    suffix = path.suffix.lower()
    if suffix and suffix not in SUFFIXES:
        raise UsageError(f"{path}: the end {suffix} tells no format; give --format, or one of {', '.join(SUFFIXES)}")
    return SUFFIXES.get(suffix, "parquet")
