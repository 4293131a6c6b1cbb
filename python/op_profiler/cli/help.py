"""`Command`, the base class of all commands: handles Ctrl-C, removed options, and registry names in help texts.

``{tuners}`` in a help text stands for the names of the registry of tuners. The names are filled in when the help is
shown. Finding the names that other packages add requires a scan of all installed packages, which only the help needs.
"""

from __future__ import annotations

import re
import sys
from typing import Any, ClassVar

import typer
from typer.core import TyperCommand

from op_profiler.errors import EXIT_INTERRUPTED, UsageError
from op_profiler.registry import REGISTRIES, registry_of

_KIND = re.compile(rf"\{{({'|'.join(REGISTRIES)})\}}")

_REMOVED = {
    (
        "predict",
        "--adapt",
    ): "run op-profiler calibrate on the new device; predict then reports times of that device",
    ("worker", "--builds"): "workers no longer build for other machines; leave it out",
    ("worker", "--only-builds"): "workers no longer build for other machines; start workers that measure",
}
"""What to use instead of a removed option, by command and option."""


class Command(TyperCommand):
    """Base class of commands; in their help texts, placeholders such as ``{tuners}`` stand for the names in a
    registry."""

    interrupted: ClassVar[str] = "interrupted"

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments; raise UsageError with the substitute for an option that was removed."""
        for option in (argument.partition("=")[0] for argument in args):
            if substitute := _REMOVED.get((self.name or "", option)):
                raise UsageError(f"{option} was removed: {substitute}")
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the command; on Ctrl-C print `interrupted` to stderr and exit with `EXIT_INTERRUPTED`."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:  # Typer would end without a word
            print(f"\n{self.interrupted}", file=sys.stderr)
            raise typer.Exit(EXIT_INTERRUPTED) from None

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help text; placeholders such as ``{tuners}`` are replaced by the names in the registry."""
        for parameter in self.params:
            parameter.help = filled(parameter.help or "")  # type: ignore[attr-defined]  # of options and arguments
        self.epilog = filled(self.epilog or "")
        super().format_help(ctx, formatter)


class MeasuringCommand(Command):
    """A command that stores each measurement as soon as it is complete; after Ctrl-C, the same command resumes."""

    interrupted = "interrupted; stored measurements are kept, the same command resumes"


def filled(text: str) -> str:
    """Return a text in which placeholders such as ``{tuners}`` are replaced by the names in the registry."""
    return _KIND.sub(lambda kind: ", ".join(registry_of(kind[1])), text)
