"""The commands. Each command reads its options, calls one function of the package, and prints the result."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Callable
from typing import Annotated

import typer

import op_profiler
from op_profiler.cli.command import command
from op_profiler.cli.help import Command, MeasuringCommand
from op_profiler.cli.output import native_output_in_log, output_failure, protect_streams
from op_profiler.errors import EXIT_ENVIRONMENT, EXIT_INTERRUPTED, OpProfilerError

_CONTEXT = {"help_option_names": ["-h", "--help"]}


_MODULES = (
    *(
        "collect",
        "compare",
        "models",
        "export",
        "import_",
        "predict",
        "check",
        "sample",
        "calibrate",
        "schedule",
        "evaluate",
    ),
    *("analyze", "report", "explain", "corun", "cache", "devices"),
)
"""Modules of commands in the order of the help; a command has the name of its module, except for those of a cluster."""
_OF_CLUSTERS = ("scheduler", "worker", "fleet", "certificates")
"""Commands of a cluster; their processes inherit the terminal and print to it themselves."""
_COMMANDS = {
    **{name.rstrip("_"): (name, name) for name in _MODULES},
    **{name: ("fleet", name) for name in _OF_CLUSTERS},
}
"""Module and function of each command."""
_MEASURING = ("collect", "sample", "calibrate")


def application(command: str = "") -> typer.Typer:
    """Return the command-line application.

    Args:
        command: name of the called command; only this command is then built, because building all commands takes 0.2 s.
            For any other text, all commands are built.
    """
    app = typer.Typer(
        name="op-profiler",
        help="Measure the operators of deep-learning models as the compiler emits them; explain and predict times.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        add_completion=False,
        context_settings=_CONTEXT,
    )
    for name, (place, function) in _COMMANDS.items():
        if name == command or command not in (*_COMMANDS, "dataset"):
            module = importlib.import_module(f"op_profiler.cli.{place}")
            _add(app, getattr(module, function), name, module.EXAMPLES)
    if command not in _COMMANDS:
        from op_profiler.cli import dataset

        app.add_typer(dataset.app, name="dataset", epilog=dataset.EXAMPLES)
    app.callback()(_options)
    return app


def _add(app: typer.Typer, function: Callable[..., None], name: str, examples: str) -> None:
    kind = MeasuringCommand if function.__name__ in _MEASURING else Command
    app.command(name, cls=kind, epilog=examples)(command(function))


def _print_version(wanted: bool) -> None:
    from op_profiler.collection.revisions import project_revision

    if wanted:
        version, revision = op_profiler.__version__, project_revision()
        print(f"op-profiler {version}" + (f" ({revision})" if revision != version else ""))
        raise typer.Exit


def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version, and the commit."),
    ] = False,
) -> None:
    """Define the options of every command; `application` contains the help text."""


def _collector() -> typer.Typer:
    from op_profiler.cli import collect

    app = typer.Typer(pretty_exceptions_enable=False, add_completion=False, context_settings=_CONTEXT)
    _add(app, collect.collect, "op_performance_collector.py", collect.EXAMPLES)
    return app


def _run(application: Callable[[], typer.Typer]) -> None:
    """Run a command; for an error that a user can resolve, print one sentence to stderr and return its exit code."""
    protect_streams()
    of_cluster = sys.argv[1:2] in [[name] for name in _OF_CLUSTERS]
    with contextlib.nullcontext() if of_cluster else native_output_in_log():
        code = _exit_code(application)
    failure = output_failure()
    if failure is not None:
        print(f"error: standard output cannot be written: {failure.strerror}", file=sys.stderr)
        code = EXIT_ENVIRONMENT
    sys.exit(code)


def _exit_code(application: Callable[[], typer.Typer]) -> str | int | None:
    try:
        application()()
    except SystemExit as end:
        return end.code
    except OpProfilerError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:  # before a command has begun
        print("\ninterrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except OSError as error:  # names that are too long, folders that may not be read, a disk that is full
        about = f": {error.filename}" if error.filename is not None else ""
        print(f"error: the operating system refuses: {error.strerror or error}{about}", file=sys.stderr)
        return EXIT_ENVIRONMENT
    return None


def main() -> None:
    """Run ``op-profiler``."""
    _run(lambda: application(*sys.argv[1:2]))


def collector_main() -> None:
    """Run ``op_performance_collector.py``, which is the same as ``op-profiler collect``."""
    _run(_collector)
