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
        threads: thread count that the runtime reports.
    """

    threads: int

    @abc.abstractmethod
    def run(self) -> None:
        """Compute the outputs once."""

    @abc.abstractmethod
    def outputs(self) -> list[np.ndarray]:
        """Return the outputs of the last run, in the order of the model."""

    def layer_times(self) -> list[tuple[str, float]]:
        """Return name and microseconds of every run of a node since the session was created; empty without a profiler.

        The session cannot be used after this call.
        """
        return []


class Peer(abc.ABC):
    """A runtime that models are compared with. Only `load` imports its package.

    Attributes:
        packages: required packages, by the names that pip and Python use.
        extra: extra of this project that installs `packages`.
        forms: file formats that it reads, the best one first.
        has_profiler: whether a session can report times of layers.
    """

    packages: ClassVar[tuple[str, ...]]
    extra: ClassVar[str] = "peers"
    forms: ClassVar[tuple[Form, ...]]
    has_profiler: ClassVar[bool] = True

    def check(self) -> None:
        """Check that everything other than `packages` that the runtime needs is installed.

        Raises:
            MeasureError: something is missing; the message names it and how to install it.
        """
        return

    @abc.abstractmethod
    def load(
        self, file: Path, folder: Path, inputs: Sequence[np.ndarray], threads: int, *, profiled: bool
    ) -> PeerSession:
        """Load a model to run in float32 on the cores that this process is bound to.

        Args:
            file: the model in one of `forms`.
            folder: folder for files of the runtime; existing files in it belong to the same model.
            inputs: arrays in the order of the model.
            profiled: whether to use the runtime's profiler.

        Raises:
            Exception: any, if the runtime cannot load the model; its text is reported.
        """
