"""``op-profiler export``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

EXAMPLES = """Examples:

op-profiler export --format parquet --output operators.parquet

op-profiler export --format csv --output convs.csv --where "anchor LIKE 'nn.%conv2d%' AND threads = 1"
"""


def export(
    output: Annotated[Path | None, typer.Option(help="File to write.")] = None,
    format: Annotated[str, typer.Option(help="parquet, csv or jsonl.")] = "parquet",
    where: Annotated[str, typer.Option(help="SQL condition over the columns; see --columns.")] = "",
    db: Annotated[str, typer.Option(help="SQLAlchemy address of the dataset.")] = "sqlite:///results/op_profiler.db",
    columns: Annotated[bool, typer.Option("--columns", help="List the columns with their meaning, and stop.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.")] = False,
) -> None:
    """Write the dataset as one flat table: one row a measurement."""
    from op_profiler.dataset import COLUMNS, Dataset, export_table
    from op_profiler.errors import UsageError

    if columns:
        for column in COLUMNS:
            print(f"{column.name:24} {column.type:14} {column.description}")
        return
    if output is None:
        raise UsageError("--output is missing; name the file to write, such as operators.parquet")
    with Dataset.open(db, create=False, read_only=True) as dataset:
        rows = export_table(dataset, output, format=format, where=where or None)
    if not quiet:
        print(f"{rows} rows written to {output}")
