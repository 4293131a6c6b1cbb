"""The commands. Each is thin: it reads its options, calls one function of the package, and prints what that returns."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Annotated

import typer

from op_profiler.errors import EXIT_ENVIRONMENT, EXIT_INTERRUPTED, OpProfilerError

_CONTEXT = {"help_option_names": ["-h", "--help"]}


def application() -> typer.Typer:
    from op_profiler.cli import (
        analyze,
        cache,
        calibrate,
        collect,
        compare,
        corun,
        dataset,
        devices,
        evaluate,
        explain,
        export,
        fleet,
        import_,
        models,
        predict,
        report,
        sample,
        schedule,
    )
    from op_profiler.cli.help import Command, MeasuringCommand

    app = typer.Typer(
        name="op-profiler",
        help="Measure the operators of deep learning models as the compiler emits them, and keep what was measured.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        add_completion=False,
        context_settings=_CONTEXT,
    )
    commands: dict[Callable[..., None], str] = {
        collect.collect: collect.EXAMPLES,
        compare.compare: compare.EXAMPLES,
        models.models: models.EXAMPLES,
        export.export: export.EXAMPLES,
        import_.import_: import_.EXAMPLES,
        predict.predict: predict.EXAMPLES,
        sample.sample: sample.EXAMPLES,
        calibrate.calibrate: calibrate.EXAMPLES,
        schedule.schedule: schedule.EXAMPLES,
        evaluate.evaluate: evaluate.EXAMPLES,
        analyze.analyze: analyze.EXAMPLES,
        report.report: report.EXAMPLES,
        explain.explain: explain.EXAMPLES,
        corun.corun: corun.EXAMPLES,
        cache.cache: cache.EXAMPLES,
        devices.devices: devices.EXAMPLES,
        fleet.scheduler: fleet.EXAMPLES,
        fleet.worker: fleet.EXAMPLES,
        fleet.fleet: fleet.EXAMPLES,
        fleet.certificates: fleet.EXAMPLES,
    }
    measuring = (collect.collect, sample.sample, calibrate.calibrate)
    for command, examples in commands.items():
        kind = MeasuringCommand if command in measuring else Command
        app.command(command.__name__.rstrip("_"), cls=kind, epilog=examples)(command)
    app.add_typer(dataset.app, name="dataset", epilog=dataset.EXAMPLES)
    app.callback()(_options)
    return app


def _tell_version(wanted: bool) -> None:
    import op_profiler
    from op_profiler.collection.revisions import project_revision

    if wanted:
        version, revision = op_profiler.__version__, project_revision()
        print(f"op-profiler {version}" + (f" ({revision})" if revision != version else ""))
        raise typer.Exit


def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_tell_version, is_eager=True, help="Print the version, and the commit."),
    ] = False,
) -> None:
    """What holds for every command; its text stands in `application`."""


def _collector() -> typer.Typer:
    from op_profiler.cli import collect
    from op_profiler.cli.help import MeasuringCommand

    app = typer.Typer(pretty_exceptions_enable=False, add_completion=False, context_settings=_CONTEXT)
    app.command("op_performance_collector.py", cls=MeasuringCommand, epilog=collect.EXAMPLES)(collect.collect)
    return app


def _run(application: Callable[[], typer.Typer]) -> None:
    """Run a command; an error that a user can act on is one sentence on stderr and an exit code, never a traceback."""
    try:
        application()()
    except OpProfilerError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:  # before a command has begun
        print("\ninterrupted", file=sys.stderr)
        sys.exit(EXIT_INTERRUPTED)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:  # names that are too long, folders that may not be read, a disk that is full
        about = f": {error.filename}" if error.filename is not None else ""
        print(f"error: the operating system refuses: {error.strerror or error}{about}", file=sys.stderr)
        sys.exit(EXIT_ENVIRONMENT)


def main() -> None:
    """Entry point of ``op-profiler``."""
    _run(application)


def collector_main() -> None:
    """Entry point of ``op_performance_collector.py``: the same as ``op-profiler collect``."""
    _run(_collector)
