"""The states of a machine in its last runs, as files of the cache folder."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from op_profiler.cache import cache_folder
from op_profiler.files import atomic_file
from op_profiler.measure.measurement import Device

_RUNS_KEPT = 100
_State = TypeVar("_State")


class RunStates:
    """A file with one state for each of the last 100 runs.

    Args:
        device: the machine.
        threads: thread count of the runs.
        about: rest of the file's name, such as the sizes of the data; each value of `about` has a separate file.

    Attributes:
        path: path of the file.
    """

    def __init__(self, device: Device, threads: int, *about: str | int) -> None:
        self.path = cache_folder() / "states" / f"{'-'.join(map(str, (device.key, threads, *about)))}.json"

    def read(self, convert: Callable[[Any], _State]) -> list[_State]:
        """Return the states, each converted by `convert`; an empty list if the file is missing or damaged."""
        try:
            return [convert(state) for state in json.loads(self.path.read_text())]
        except (OSError, ValueError, TypeError):
            return []

    def write(self, states: Sequence[Any]) -> None:
        """Store the states of all runs; if the file is not writable, do nothing."""
        with contextlib.suppress(OSError), atomic_file(self.path) as partial:
            partial.write_text(json.dumps(states[-_RUNS_KEPT:]))
