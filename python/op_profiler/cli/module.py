"""``op-profiler collect --module``: times a compiled function of the user on a board."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from op_profiler import json_text
from op_profiler.cli import values
from op_profiler.errors import UsageError
from op_profiler.files import write_whole
from op_profiler.option_values import parse_tensors

if TYPE_CHECKING:
    from op_profiler.collection.request import CollectRequest


_TAKEN = {
    "module",
    "entry",
    "target",
    "compiler",
    "input_shapes",
    "host",
    "port",
    "device_key",
    "db",
    "summary_json",
    "quiet",
}
"""Parameters of ``collect`` that apply to timing a function; the others apply to models or to several machines."""


def refuse_beside_module(context: typer.Context) -> None:
    """Raise UsageError if options without effect next to ``--module`` have other values than their defaults."""
    others = [one for one in context.command.params if one.name is not None and one.name not in _TAKEN]
    given = [
        one.opts[0]
        for one in others
        if values.is_given(context, str(one.name)) and context.params[str(one.name)] != one.default
    ]
    if given:
        raise UsageError(
            "--module and --entry time a function on one board, in place of a model; "
            f"leave out {' and '.join(given)} beside them"
        )


def time_module(
    path: Path | None,
    entry: str | None,
    request: CollectRequest,
    shapes: str,
    summary_json: Path | None,
    *,
    quiet: bool,
) -> None:
    """Time a compiled function on a board, store the result, and print it.

    Args:
        path, entry: file with the function, and name of the function; None if the user did not give them.
        shapes: text of ``--inputshape``: the shapes of all tensors, outputs last.
        summary_json: file for the result as JSON; None to write no file.

    Raises:
        UsageError: a required option is missing.
        typer.Exit: the function failed; the exit code is 1.
    """
    from op_profiler.collection.user_module import measure_module

    build = request.build
    if path is None or entry is None or build.place is None or not shapes:
        raise UsageError(
            "--module takes --entry NAME, --inputshape (of every tensor, the outputs last), --host and --port"
        )
    tensors = parse_tensors("--inputshape", shapes)
    found = measure_module(path, entry, build.target, build.compiler, build.place, tensors, request.db)
    if summary_json is not None:
        write_whole(summary_json, json_text.dumps([found], indent=1) + "\n")
    if not quiet:
        time = f"{found['median_us']:.1f} us" if found["error"] is None else f"failed: {found['error']}"
        print(f"{found['operator']} on {found['processor']} at {found['address']}: {time}")
    if found["error"] is not None:
        raise typer.Exit(1)
