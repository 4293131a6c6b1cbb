"""A request with its model, its build and its machine, each of which is made on first use."""

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
    """Announcements as texts: of what begins (``stage``), or of what the user should read (``note``).

    Args:
        stages: say which stage begins, too.
    """

    def announce(*, stage: str = "", note: str = "", **_: object) -> None:
        if note or stages:
            say(note or stage)

    return announce


class PreparedModel(contextlib.ExitStack):
    """A request on its way: its model, what is built of it, and the machine that it runs on.

    While it compiles nobody measures on the processor, and while it measures nobody does either; at the end, or when it
    is closed, both are over and the machine is given back.

    Args:
        announce: told what begins, and for whom this process waits.
        cores: of this machine's processor, those that threads may be bound to; None for all.

    Attributes:
        model: in its precision; without its weights once it is built.
        given: inputs of the user's; empty where there are none.
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
        """Wait until nobody measures on the processor, and compile until the machine is asked for."""
        self.close()
        self.enter_context(compiling(self._say))

    def load(self, *, merge: bool = False) -> None:
        """Lower the model.

        Args:
            merge: merge parallel operators into one kernel where the compiler can.

        Raises:
            OpProfilerError: as `load_model`.
        """
        self.model, self.given, self.target = load_model(self.request, self._announce)
        if merge:
            self.model, self.merged = compiler_in_use().merge_parallel(self.model)

    @functools.cached_property
    def inputs(self) -> dict[str, np.ndarray]:
        """The user's, or random ones; raises ModelError where sizes are missing."""
        return self.given or random_inputs(static_inputs(self.model, self.request))

    @functools.cached_property
    def built(self) -> BuiltModel:
        """The model's kernels; raises ModelError where the compiler refuses it."""
        self._announce(stage="compiling")
        built = build_model(self.request, self.model, self.target)
        self.model = dataclasses.replace(self.model, params={})  # the build has its own
        return built

    @property
    def machine(self) -> Machine:
        """The machine, opened when first asked for, and from then on for this process alone. It is the same one in
        every precision, also where models in int8 are compiled for fewer of its instructions.

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
        """Give the machine back; of a board another one may answer when it is asked for again."""
        self._machine = None
        super().close()
