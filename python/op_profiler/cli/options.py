"""Options of output that several commands share, each declared once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from op_profiler.options import OUTPUT, DbOption

Report = Annotated[
    Path | None,
    typer.Option(
        help="Also write the results to this file as an HTML page, which opens offline.", rich_help_panel=OUTPUT
    ),
]
Trace = Annotated[Path | None, typer.Option(help="Write a timeline for Perfetto to this file.", rich_help_panel=OUTPUT)]
Db = Annotated[str, typer.Option(help=DbOption.__metadata__[0].help, rich_help_panel=OUTPUT)]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON value instead of text.", rich_help_panel=OUTPUT)]
Quiet = Annotated[
    bool,
    typer.Option(
        "--quiet", help="Print no progress and no tables, only errors and at most a few lines.", rich_help_panel=OUTPUT
    ),
]
