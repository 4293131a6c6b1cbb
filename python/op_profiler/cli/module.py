"""``op-profiler collect --module``: a ready-made function of the user's, timed on a board."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from op_profiler import json_text
from op_profiler.errors import UsageError

if TYPE_CHECKING:
    from op_profiler.targets.machine import Place


def refuse_beside_module(*, modelname: str | None, label: str, report: Path | None, on_cluster: bool) -> None:
    """Raises UsageError for options that are of models, or of many machines."""
    if modelname is not None:
        raise UsageError("--module and --entry time a function in place of a model; leave out --modelname")
    if label:
        raise UsageError("--label names a run of a model; leave it out beside --module and --entry")
    if report is not None:
        raise UsageError("--report is of models; leave it out beside --module and --entry")
    if on_cluster:
        raise UsageError("--module and --entry time a function on one board; leave out --cluster, --each and --needs")


def time_module(
    path: Path | None,
    entry: str | None,
    target: str,
    compiler: str,
    place: Place | None,
    shapes: str,
    db: str,
    summary_json: Path | None,
    *,
    quiet: bool,
) -> None:
    """Time the function, store it and tell.

    Raises:
        UsageError: an option that it needs is missing.
        typer.Exit: with code 1 where it failed.
    """
    from op_profiler.cli import values
    from op_profiler.collection.user_module import measure_module
    from op_profiler.files import write_whole

    if path is None or entry is None or place is None or not shapes:
        raise UsageError(
            "--module takes --entry NAME, --inputshape (of every tensor, the outputs last), --host and --port"
        )
    tensors = values.parse_tensors("--inputshape", shapes)
    found = measure_module(path, entry, target, compiler, place, tensors, db)
    if summary_json is not None:
        write_whole(summary_json, json_text.dumps([found], indent=1) + "\n")
    if not quiet:
        time = f"{found['median_us']:.1f} us" if found["error"] is None else f"failed: {found['error']}"
        print(f"{found['operator']} on {found['processor']} at {found['address']}: {time}")
    if found["error"] is not None:
        raise typer.Exit(1)
