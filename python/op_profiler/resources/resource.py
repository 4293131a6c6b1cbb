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
    """The machine does not have a resource, or this process may not read or set it; the message has the reason."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class State:
    """Range and value of a resource, as plain JSON values.

    Attributes:
        range: list of the possible values, or a dictionary with the ``least`` and the ``most``; None if the machine
            does not have the resource.
        value: present value; None if it cannot be read, or if the operating system decides it.
        reason: why the resource cannot be set or read; None if it can be set and read.
    """

    name: str
    description: str
    range: list[Any] | dict[str, int] | None
    value: Any
    readable: bool
    settable: bool
    reason: str | None


class Resource(abc.ABC):
    """One resource of this machine that affects kernel times, such as a clock or the number of threads.

    Reading a resource changes nothing; every call reads it again.

    Args:
        root: where sysfs is mounted.

    Attributes:
        name: name of the resource; also the field of `Settings` with the requested value.
        of_gpu: True if the resource affects only code for a GPU.
    """

    name: ClassVar[str]
    of_gpu: ClassVar[bool] = False

    def __init__(self, root: Path = SYSFS) -> None:
        self.root = root

    @abc.abstractmethod
    def range(self) -> list[Any] | dict[str, int]:
        """Return the possible values, see `State`; raise ResourceError if the machine does not have the resource."""

    @abc.abstractmethod
    def read(self) -> Any:
        """Return the present value for this process and the processes that it starts.

        Raises:
            ResourceError: the machine does not have the resource, or this process may not read it.
        """

    @abc.abstractmethod
    def check_settable(self) -> None:
        """Raise ResourceError with the reason if `applied` would not work."""

    @abc.abstractmethod
    def applied(self, value: Any) -> contextlib.AbstractContextManager[None]:
        """Set a value for the block and for processes started in it; then restore the previous value.

        `read` returns the effective value. A process that is killed restores nothing.

        Raises:
            ResourceError: the resource cannot be set.
        """

    def parse(self, text: str) -> Any:
        """Parse a value of the range, as written on the command line.

        Raises:
            UsageError: the text is not a value of the range; the message names the range.
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
        """Return range and value of the resource on this machine."""
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
    """A property of the thread pool that runs kernels: the measuring process sets it; the machine stays as it is."""

    def check_settable(self) -> None:
        """Do nothing: no permission is needed."""
        return

    def applied(self, value: Any) -> contextlib.AbstractContextManager[None]:
        """Change nothing: the measuring process sets its own thread pool."""
        return contextlib.nullcontext()


def read_text(path: Path) -> str:
    """Return the stripped text of one of the kernel's files; raise ResourceError with the reason if it cannot be
    read."""
    try:
        return path.read_text().strip()
    except OSError as error:
        raise ResourceError(f"{path} cannot be read: {error.strerror}") from error


def write_text(path: Path, text: str) -> None:
    """Write a value to one of the kernel's files; raise ResourceError with the reason if that fails."""
    try:
        path.write_text(text + "\n")
    except OSError as error:
        raise ResourceError(f"{path} refuses {text!r}: {error.strerror}") from error


def check_writable(path: Path) -> None:
    """Raise ResourceError if this process may not write to one of the kernel's files. Nothing is written."""
    try:
        os.close(os.open(path, os.O_WRONLY))
    except OSError as error:
        raise ResourceError(f"{path} cannot be written: {error.strerror}") from error


@contextlib.contextmanager
def restored(before: dict[Path, str]) -> Iterator[None]:
    """At the end of the block, also after an error, write to each file the text that `before` has for it."""
    with contextlib.ExitStack() as stack:
        for path, text in before.items():
            stack.callback(write_text, path, text)
        yield
