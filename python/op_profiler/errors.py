"""Errors that a user can resolve: the problem, the next step, and the exit code of the command."""

from __future__ import annotations

import contextlib
import difflib
import importlib.util
from collections.abc import Collection, Iterable, Iterator

EXIT_OK = 0
EXIT_FAILURES_RECORDED = 1
EXIT_USAGE = 2
EXIT_MISSING_PACKAGE = 3
EXIT_MODEL = 4
EXIT_ENVIRONMENT = 5
EXIT_INTERRUPTED = 130


def first_line(error: BaseException) -> str:
    """Return the first line of another library's error; the name of its class if it has no text."""
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip()


class OpProfilerError(Exception):
    """Base class of the errors that end a command with a message and without a traceback."""

    exit_code = EXIT_ENVIRONMENT


class UsageError(OpProfilerError):
    """Raised for an invalid command line: an unknown name, a value out of range, options that exclude each other."""

    exit_code = EXIT_USAGE


_NAMED = 5


class UnknownNameError(UsageError):
    """Raised for an unknown name (of a model, target, tuner, ...); the message lists similar or known names."""

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


def check_known(kind: str, name: str, known: Collection[str], hint: str = "") -> None:
    """Raise an UnknownNameError if `name` is not one of the known names."""
    if name not in known:
        raise UnknownNameError(kind, name, known, hint)


class MissingPackageError(OpProfilerError):
    """Raised if an optional package is missing; the message names the package and the command that installs it.

    Args:
        package: name of the package.
        needed_for: what needs the package, for the message.
        extra: argument of ``env_var.sh`` that installs the package.
        build: the required build of the package, and how to install it, if the package is installed as another build.
    """

    exit_code = EXIT_MISSING_PACKAGE

    def __init__(self, package: str, needed_for: str, extra: str = "models", *, build: str | None = None) -> None:
        any_build = (
            f"the package {package!r}, which is not installed. "
            f"Install it with: source ./env_var.sh {extra}   (or: pip install '{package}')"
        )
        super().__init__(f"{needed_for} needs {any_build if build is None else build}")


def require(package: str, needed_for: str, extra: str = "models") -> None:
    """Check that a package is installed, without importing it.

    Args:
        needed_for, extra: as for `MissingPackageError`.

    Raises:
        MissingPackageError: it is not installed.
    """
    if importlib.util.find_spec(package) is None:
        raise MissingPackageError(package, needed_for, extra)


@contextlib.contextmanager
def needing(package: str, needed_for: str, extra: str = "models") -> Iterator[None]:
    """Turn an `ImportError` of the block, which imports `package`, into a `MissingPackageError`."""
    try:
        yield
    except ImportError as error:
        raise MissingPackageError(package, needed_for, extra) from error


class ModelError(OpProfilerError):
    """Raised if a model cannot be read or lowered; the message names the file or operator that causes the error."""

    exit_code = EXIT_MODEL


class MeasureError(OpProfilerError):
    """Raised if measuring cannot start or continue on this device."""


class BoardLostError(MeasureError):
    """Raised if a machine behind RPC no longer answers; requesting the machine again may help."""


class DatasetError(OpProfilerError):
    """Raised if the dataset cannot be opened, read or written."""
