"""Errors that a user can resolve: the problem, the next step, and the exit code of the command."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

EXIT_OK = 0
EXIT_FAILURES_RECORDED = 1
EXIT_USAGE = 2
EXIT_MISSING_PACKAGE = 3
EXIT_MODEL = 4
EXIT_ENVIRONMENT = 5
EXIT_INTERRUPTED = 130


class OpProfilerError(Exception):
    """Base of all errors that end a command with a sentence and no traceback."""

    exit_code = EXIT_ENVIRONMENT


class UsageError(OpProfilerError):
    """The command's words are off: unknown name, value out of range, options that do not fit together."""

    exit_code = EXIT_USAGE


_NAMED = 5


class UnknownNameError(UsageError):
    """A model, source, target or tuner that does not exist; names the nearest ones that do, else some that do."""

    def __init__(self, kind: str, name: str, known: Iterable[str], hint: str = "") -> None:
        known = list(known)
        near = difflib.get_close_matches(name, known, n=_NAMED, cutoff=0.4)
        text = f"unknown {kind} {name!r}"
        if near:
            text += f"; the nearest known: {', '.join(near)}"
        elif known:
            more = f" and {len(known) - _NAMED} more" if len(known) > _NAMED else ""
            text += f"; known: {', '.join(sorted(known)[:_NAMED])}{more}"
        super().__init__(f"{text}. {hint}" if hint else text)


class MissingPackageError(OpProfilerError):
    """An optional package is missing; the message names it and the command that installs it.

    Args:
        build: where it is, but not the build that is needed: which one that is, and how to install it.
    """

    exit_code = EXIT_MISSING_PACKAGE

    def __init__(self, package: str, needed_for: str, extra: str = "models", *, build: str | None = None) -> None:
        any_build = (
            f"the package {package!r}, which is not installed. "
            f"Install it with: source ./env_var.sh {extra}   (or: pip install '{package}')"
        )
        super().__init__(f"{needed_for} needs {any_build if build is None else build}")


class ModelError(OpProfilerError):
    """A model cannot be read or lowered; names the file or the operator that stands in the way."""

    exit_code = EXIT_MODEL


class MeasureError(OpProfilerError):
    """Measuring cannot start or go on on this device."""


class BoardLostError(MeasureError):
    """A machine behind RPC does not answer any more; asking for it again may help."""


class DatasetError(OpProfilerError):
    """The dataset cannot be opened, read or written."""
