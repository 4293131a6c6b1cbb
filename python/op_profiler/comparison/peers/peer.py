"""The contract of a runtime that models are compared with."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    import numpy as np

    from op_profiler.compilers.imported_model import Form


class PeerSession(abc.ABC):
    """A model that a runtime has loaded, with its inputs.

    Attributes:
        threads: that the runtime reports for it.
    """

    threads: int

    @abc.abstractmethod
    def run(self) -> None:
        """Compute the outputs once."""

    @abc.abstractmethod
    def outputs(self) -> list[np.ndarray]:
        """Return what the last run computed, in the order of the model."""

    def layer_times(self) -> list[tuple[str, float]]:
        """Return every run of a node since the session was made, with its microseconds; empty where it is not profiled.
        The session cannot be used afterwards."""
        return []


class Peer(abc.ABC):
    """A runtime. Only `load` imports it.

    Attributes:
        packages: that have to be installed, by the names under which pip and Python know them; `extra`: with these.
        forms: that it reads, the best one first.
        has_profiler: whether a session can report times of layers.
    """

    packages: ClassVar[tuple[str, ...]]
    extra: ClassVar[str] = "peers"
    forms: ClassVar[tuple[Form, ...]]
    has_profiler: ClassVar[bool] = True

    def check(self) -> None:
        """Refuse where something other than `packages` is missing.

        Raises:
            MeasureError: says what, and how to get it.
        """
        return

    @abc.abstractmethod
    def load(
        self, file: Path, folder: Path, inputs: Sequence[np.ndarray], threads: int, *, profiled: bool
    ) -> PeerSession:
        """Load a model to run in float32 on the cores that this process is bound to.

        Args:
            file: in one of `forms`.
            folder: for what the runtime writes; what it finds there is of the same model.
            inputs: in the order of the model.
            profiled: with the runtime's profiler.

        Raises:
            Exception: any, where the runtime does not take the model; its text is reported.
        """
