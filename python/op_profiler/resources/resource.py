"""The contract of a resource: its range, its present value, and how to set it temporarily."""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from op_profiler.errors import MeasureError, UsageError
from op_profiler.registry import registry_of

SYSFS = Path("/sys")


class ResourceError(MeasureError):
    """A resource that is not there, or that this process may not read or set; says why."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class State:
    """What there is to know about a resource, as plain JSON values.

    Attributes:
        range: a list of the values that it can have, or the ``least`` and the ``most``; None where there are none.
        value: what it is now; None where it cannot be read, or is as the operating system decides.
        reason: why it cannot be set, or not even read; None where it can.
    """

    name: str
    description: str
    range: list[Any] | dict[str, int] | None
    value: Any
    readable: bool
    settable: bool
    reason: str | None


class Resource(abc.ABC):
    """One resource of this machine. Looking at it changes nothing; it is looked at anew by every call.

    Args:
        root: where sysfs is mounted.

    Attributes:
        name: also the field of `Settings` that holds the value asked for.
        of_gpu: True where only code for a GPU can notice it.
    """

    name: ClassVar[str]
    of_gpu: ClassVar[bool] = False

    def __init__(self, root: Path = SYSFS) -> None:
        self.root = root

    @abc.abstractmethod
    def range(self) -> list[Any] | dict[str, int]:
        """See `State`; raises ResourceError where the machine does not have it."""

    @abc.abstractmethod
    def read(self) -> Any:
        """What this process, and whatever it starts, has of it now.

        Raises:
            ResourceError: it is not there, or may not be read.
        """

    @abc.abstractmethod
    def check_settable(self) -> None:
        """Raises ResourceError where `applied` could not work, with the reason."""

    @abc.abstractmethod
    def applied(self, value: Any) -> contextlib.AbstractContextManager[None]:
        """Give it a value for the block and for the processes that are started there; then what was before is restored.

        What became of the value, `read` tells. A process that is killed restores nothing.

        Raises:
            ResourceError: it cannot be set.
        """

    def parse(self, text: str) -> Any:
        """A value of the range, as written on the command line.

        Raises:
            UsageError: it is none; names the range.
        """
        values = self.range()
        if isinstance(values, list):
            by_text = {str(value): value for value in values}
            if text in by_text:
                return by_text[text]
            raise UsageError(f"--sweep {self.name}: {text!r} is none of {', '.join(by_text)}")
        if text.isdecimal() and values["least"] <= int(text) <= values["most"]:
            return int(text)
        raise UsageError(f"--sweep {self.name}: {text!r} is not a number from {values['least']} to {values['most']}")

    def state(self) -> State:
        """What there is to know about it here."""
        found: dict[str, Any] = {"range": None, "value": None, "readable": False, "settable": False, "reason": None}
        try:
            found["range"] = self.range()
            found["value"] = self.read()
            found["readable"] = True
            self.check_settable()
            found["settable"] = True
        except ResourceError as error:
            found["reason"] = str(error)
        return State(name=self.name, description=registry_of("resources").help(self.name), **found)


class PoolResource(Resource):
    """A resource that the thread pool of the measuring process takes from its order: nothing of the machine is set."""

    def check_settable(self) -> None:
        """Accept: setting it needs no permission."""
        return

    def applied(self, value: Any) -> contextlib.AbstractContextManager[None]:
        """Change nothing: the measuring process sets its own thread pool."""
        return contextlib.nullcontext()


def read_text(path: Path) -> str:
    """The stripped text of one of the kernel's files; raises ResourceError with the reason."""
    try:
        return path.read_text().strip()
    except OSError as error:
        raise ResourceError(f"{path} cannot be read: {error.strerror}") from error


def write_text(path: Path, text: str) -> None:
    """Hand a value to the kernel; raises ResourceError with the reason."""
    try:
        path.write_text(text + "\n")
    except OSError as error:
        raise ResourceError(f"{path} refuses {text!r}: {error.strerror}") from error


def check_writable(path: Path) -> None:
    """Raises ResourceError where this process may not write to one of the kernel's files. Nothing is written."""
    try:
        os.close(os.open(path, os.O_WRONLY))
    except OSError as error:
        raise ResourceError(f"{path} cannot be written: {error.strerror}") from error


@contextlib.contextmanager
def restored(before: dict[Path, str]) -> Iterator[None]:
    """Write the old texts back at the end of the block, whatever happens inside."""
    with contextlib.ExitStack() as stack:
        for path, text in before.items():
            stack.callback(write_text, path, text)
        yield
