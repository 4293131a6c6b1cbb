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
    """The command line is not valid: an unknown name, a value out of range, or options that exclude each other."""

    exit_code = EXIT_USAGE


_NAMED = 5


class UnknownNameError(UsageError):
    """There is no such model, source, target or tuner; the message lists the most similar names, or some names."""

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
    """An optional package is missing; the message names the package and the command that installs it.

    Args:
        build: the required build of the package, and how to install it, if the package is installed as another build.
    """

    exit_code = EXIT_MISSING_PACKAGE

    def __init__(self, package: str, needed_for: str, extra: str = "models", *, build: str | None = None) -> None:
        any_build = (
            f"the package {package!r}, which is not installed. "
            f"Install it with: source ./env_var.sh {extra}   (or: pip install '{package}')"
        )
        super().__init__(f"{needed_for} needs {any_build if build is None else build}")


class ModelError(OpProfilerError):
    """A model cannot be read or lowered; the message names the file or the operator that causes the error."""

    exit_code = EXIT_MODEL


class MeasureError(OpProfilerError):
    """Measuring cannot start or continue on this device."""


class BoardLostError(MeasureError):
    """A machine behind RPC no longer answers; requesting it again may help."""


class DatasetError(OpProfilerError):
    """The dataset cannot be opened, read or written."""
