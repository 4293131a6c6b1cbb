"""``op-profiler dataset``: prints the contents of a dataset, merges datasets and removes models."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from op_profiler import json_text
from op_profiler.addresses import without_password
from op_profiler.cli import options
from op_profiler.cli.help import Command
from op_profiler.dataset import DEFAULT_DB
from op_profiler.errors import UnknownNameError, UsageError
from op_profiler.option_values import parse_names, several
from op_profiler.report.shared import show_adopted
from op_profiler.report.status import Status

if TYPE_CHECKING:
    from op_profiler.dataset.maintain import Contents, ModelContents

EXAMPLES = """Examples:

op-profiler dataset                                            (models, devices, failures, size)

op-profiler dataset --failures --db sqlite:///results/op_profiler.db

op-profiler dataset --json

op-profiler dataset merge a.db postgresql://me@host/b --into all.db

op-profiler dataset merge a.parquet sqlite:///b.db --into all.parquet

op-profiler dataset merge sqlite:///a.db b.parquet --into times --partition-by device_key,anchor     (a folder)

op-profiler dataset adopt alice.parquet bob.parquet --into adopted.parquet       (files of calibrate --share)

op-profiler dataset remove resnet-18 01fb2f460b48bde7 --yes

op-profiler dataset allow rack --writes --db postgresql://me@host/times          (a role for workers)

op-profiler dataset allow guest --db postgresql://me@host/times                  (a role that can read)

Exit codes: 0 done; 2 wrong usage; 5 a problem of a database or a file; nothing was changed.
"""

app = typer.Typer(pretty_exceptions_enable=False, add_completion=False, epilog=EXAMPLES)


@app.callback(invoke_without_command=True)
def show(
    context: typer.Context,
    db: options.Db = DEFAULT_DB,
    failures: Annotated[
        bool,
        typer.Option("--failures", help="List every failure with its time, its error and the state of the machine."),
    ] = False,
    as_json: options.Json = False,
) -> None:
    """List the contents of a dataset: models, devices, failures, disturbed and unconverged times, size."""
    from op_profiler.dataset import Dataset

    if context.invoked_subcommand is not None:
        return
    from op_profiler.dataset.maintain import contents
    from op_profiler.report.dataset import show_contents, show_failures

    with Dataset.open(db, create=False, read_only=True) as dataset:
        if failures:
            found = dataset.failures()
            names = {model.key: model.name for model in dataset.models()}
            if as_json:
                print(json_text.dumps(found, indent=1))
            else:
                show_failures(found, names)
            return
        held = contents(dataset)
    if as_json:
        print(json_text.dumps(held, indent=1))
    else:
        show_contents(held)


@app.command(cls=Command, epilog=EXAMPLES)
def merge(
    sources: Annotated[
        list[str],
        typer.Argument(help="Datasets to read: files or addresses of databases, or Parquet files or folders."),
    ],
    into: Annotated[
        str,
        typer.Option(
            help="Dataset to write: file.db, an address, file.parquet, or a folder. It is created if it does not exist."
        ),
    ],
    partition_by: Annotated[
        str,
        typer.Option(
            help="Columns, separated by commas, by which a folder of Parquet files is partitioned. Default: those of "
            "the existing folder."
        ),
    ] = "",
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Merge datasets into one, in one transaction.

    No row is stored twice. Of two rows of the same measurement, the better one is kept: a time rather than a failure, a
    complete run rather than a checkpoint, a converged time without background load rather than others, then the newer
    one.
    """
    from op_profiler.dataset.formats.combined import combine

    columns = parse_names("--partition-by", partition_by) if partition_by else ()
    with Status(quiet=quiet or not sys.stderr.isatty()) as status:
        done = combine(sources, into, partition_by=columns, announce=status.step)
    if as_json:
        print(json_text.dumps({**done.written, "left_out": done.left_out}))
    elif not quiet:
        print(f"into {without_password(into)}: {_counted(done.written)}")
        if done.left_out:
            print(f"not written, since Parquet holds measurements only: {_counted(done.left_out)}")


@app.command(cls=Command, epilog=EXAMPLES)
def adopt(
    files: Annotated[
        list[Path], typer.Argument(help="Files of 'op-profiler calibrate --share'; the command only reads them.")
    ],
    into: Annotated[
        Path | None,
        typer.Option(help="Parquet file to create or to add all rows to. Default: only check the files."),
    ] = None,
    db: Annotated[
        str | None, typer.Option(help="Instead of --into: a dataset to create or to add all rows to.")
    ] = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Check calibrations that others shared, and merge them.

    The command checks columns, types, ranges, keys, duplicates and sizes. If one file is refused, nothing is written.
    The run_id of a row is the first 16 digits of the SHA-256 of its file; run_label also contains the file's name.
    """
    from op_profiler.dataset.formats.adopting import adopt as adopted

    if into is not None and db is not None:
        raise UsageError("give --into or --db, not both")
    if into is not None and into.suffix != ".parquet":
        raise UsageError(
            f"--into {into} is no Parquet file; give a name that ends with .parquet, or a dataset with --db"
        )
    with Status(quiet=quiet or not sys.stderr.isatty()) as status:
        done = adopted(files, str(into) if into is not None else db, status.step)
    if as_json:
        print(json_text.dumps(done, indent=1))
    elif not quiet:
        show_adopted(done)
        unwritten = "nothing was written; --into or --db writes them"
        print(unwritten if done.into is None else f"into {done.into}: {done.new} new measurements")


def _counted(rows: dict[str, int]) -> str:
    return ", ".join(several(n, name.replace("_", " ").removesuffix("s")) for name, n in rows.items())


@app.command(cls=Command, epilog=EXAMPLES)
def remove(
    models: Annotated[
        list[str],
        typer.Argument(help="Models to remove: name, source:name or key, as 'op-profiler dataset' lists them."),
    ],
    db: options.Db = DEFAULT_DB,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    as_json: options.Json = False,
) -> None:
    """Remove models with the times measured inside them; times in isolation (hot, cold, trials) are kept."""
    from op_profiler.dataset import Dataset
    from op_profiler.dataset.maintain import contents, remove_models

    with Dataset.open(db, create=False) as dataset:
        chosen = _chosen(contents(dataset), models)
        for model in chosen:
            print(f"{model.key} {model.source}:{model.name}, {model.measured} measurements", file=sys.stderr)
        if not yes:
            if not sys.stdin.isatty():
                raise UsageError("no terminal to confirm the removal; --yes removes the models without confirmation")
            if not typer.confirm(f"remove {several(len(chosen), 'model')} from {without_password(db)}?", err=True):
                raise typer.Exit(2)
        removed = remove_models(dataset, [model.key for model in chosen])
    if as_json:
        print(json_text.dumps(removed))
    else:
        print("removed: " + ", ".join(f"{n} {name.replace('_', ' ')}" for name, n in removed.items() if n))


@app.command(cls=Command, epilog=EXAMPLES)
def allow(
    role: Annotated[str, typer.Argument(help="Name of a PostgreSQL role. It is created if it does not exist.")],
    writes: Annotated[
        bool, typer.Option("--writes/--reads", help="Whether the role may also write, or only read.")
    ] = False,
    db: options.Db = DEFAULT_DB,
    as_json: options.Json = False,
) -> None:
    """Give a role access to a dataset in PostgreSQL, and print the address to use, with the password of a new role.

    Only the role that created the tables can upgrade them to a newer version. After an upgrade, run this command again.
    """
    from op_profiler.dataset.roles import allow as allow_role

    address = allow_role(db, role, writes=writes)
    if as_json:
        print(json_text.dumps({"role": role, "writes": writes, "address": address}))
    else:
        print(f"{role} may {'write' if writes else 'read'}: --db {address}")


def _chosen(held: Contents, words: list[str]) -> list[ModelContents]:
    """Return the models with these names or keys, each once; raise UnknownNameError for any other word."""
    found: dict[str, ModelContents] = {}
    for word in words:
        these = [m for m in held.models if word in (m.key, m.name, f"{m.source}:{m.name}")]
        if not these:
            raise UnknownNameError("model in this dataset", word, {m.name for m in held.models})
        found |= {model.key: model for model in these}
    return list(found.values())
