"""A request with its model, its build and its machine, each of which is created at its first use."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from op_profiler.building.build import build_model
from op_profiler.building.request import BuildRequest
from op_profiler.building.requested_inputs import random_inputs, static_inputs
from op_profiler.building.requested_model import load_model
from op_profiler.building.requested_target import silent
from op_profiler.compilers.compiler import compiler_in_use
from op_profiler.measure.turns import compiling, measuring
from op_profiler.targets.open_machine import open_machine
from op_profiler.targets.target import locks_of, resolve_target

if TYPE_CHECKING:
    import numpy as np

    from op_profiler.compilers.compiled_model import BuiltModel
    from op_profiler.compilers.imported_model import ImportedModel
    from op_profiler.compilers.tvm_types import Target
    from op_profiler.targets.machine import Machine


def in_words(say: Callable[[str], None], *, stages: bool = True) -> Callable[..., None]:
    """Return a function that receives announcements and passes their texts to `say`: notes for the user, and stages
    that begin.

    Args:
        stages: whether to pass on stages too.
    """

    def announce(*, stage: str = "", note: str = "", **_: object) -> None:
        if note or stages:
            say(note or stage)

    return announce


class PreparedModel(contextlib.ExitStack):
    """A request with its model, its build, and the machine that the model runs on.

    While a model compiles, no process measures on the processor, and while it is measured, no other process measures.
    Closing the object ends both restrictions, and releases the machine.

    Args:
        announce: called with each stage that begins, and with the process for which this process waits.
        cores: cores of this machine's processor that threads may be bound to; None for all.

    Attributes:
        model: the model in its precision; the build removes its weights.
        given: the user's inputs; empty if the user gave none.
        target: `tvm.target.Target` that the model is compiled for.
        merged: kinds of operators that were merged.
    """

    model: ImportedModel
    given: dict[str, np.ndarray]
    target: Target
    merged: tuple[str, ...] = ()

    def __init__(
        self, request: BuildRequest, announce: Callable[..., None] = silent, cores: Sequence[int] | None = None
    ) -> None:
        super().__init__()
        self.request = request
        self._announce = announce
        self._cores = cores
        self._machine: Machine | None = None

    def _say(self, text: str) -> None:
        self._announce(note=text)

    def begin_compiling(self) -> None:
        """Wait until no process measures on the processor, then keep processes from measuring on it until `machine` is
        opened."""
        self.close()
        self.enter_context(compiling(self._say))

    def load(self, *, merge: bool = False) -> None:
        """Import the model and convert it to its precision (`load_model`).

        Args:
            merge: merge parallel operators into one kernel if the compiler supports it.

        Raises:
            OpProfilerError: as `load_model`.
        """
        self.model, self.given, self.target = load_model(self.request, self._announce)
        if merge:
            self.model, self.merged = compiler_in_use().merge_parallel(self.model)

    @functools.cached_property
    def inputs(self) -> dict[str, np.ndarray]:
        """The user's inputs, or random ones; raises ModelError if sizes are missing."""
        return self.given or random_inputs(static_inputs(self.model, self.request))

    @functools.cached_property
    def built(self) -> BuiltModel:
        """The model's kernels; raises ModelError if the compiler refuses the model."""
        self._announce(stage="compiling")
        built = build_model(self.request, self.model, self.target)
        self.model = dataclasses.replace(self.model, params={})  # the build has its own
        return built

    @property
    def machine(self) -> Machine:
        """The machine, opened at first use and then reserved for this process. It is the same machine in every
        precision, even if int8 models are compiled for fewer of its instructions.

        Raises:
            MeasureError: there is no such machine, or it does not answer.
        """
        if self._machine is None:
            request = self.request
            self.close()
            if request.place is None:
                self.enter_context(measuring(locks_of([request.target]), self._say))
            machine = open_machine(request.target, resolve_target(request.target), request.place, self._cores)
            self._machine = self.enter_context(contextlib.closing(machine))
        return self._machine

    def close(self) -> None:
        """End both restrictions and release the machine; for a board, the next use may open another board."""
        self._machine = None
        super().close()
