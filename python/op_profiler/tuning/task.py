"""`Task`: one way to compute something, with its space of schedules. Compilers make tasks (`Compiler.task`); tuners
search them.

A point is a number. Its digits are places: of each knob's value among those that the knob may have, the lowest of the
first knob.
"""

from __future__ import annotations

import abc
import dataclasses
import math
import random
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from op_profiler.schedules.schedule import Origin, Schedule
from op_profiler.tuning.reference import Reference, reference_of

if TYPE_CHECKING:
    from op_profiler.compilers.tvm_types import RuntimeModule
    from op_profiler.schedules.factors import Factors
    from op_profiler.tuning.candidate import TaskSpec

_MOST_STEPS = 1000  # to a neighbour: in a space with one valid point there is none
Config = dict[str, Any]
"""A point as schedule records have it (`Record.config`)."""


class InvalidPointError(ValueError):
    """A point that its template refuses."""


@dataclasses.dataclass(frozen=True)
class BuiltPoint:
    """A task under one schedule, as a function.

    Attributes:
        function: a library whose entry it is.
        tensors: shape and dtype of each array that it takes.
        output: place of the output among them; the others are inputs.
    """

    function: RuntimeModule
    tensors: tuple[tuple[tuple[int, ...], str], ...]
    output: int = 0


class Task(abc.ABC):
    """One way to compute something.

    Attributes:
        spec: what it was made of.
        knobs: by name the values that each knob may have, plain values of JSON.
    """

    spec: TaskSpec
    knobs: Mapping[str, Sequence[Any]]

    @abc.abstractmethod
    def is_valid(self, point: int) -> bool:
        """Whether its knobs go together, as far as that is known before it is built."""

    @abc.abstractmethod
    def factors(self, knobs: Mapping[str, Any]) -> Factors:
        """Return the effect of these knob values on the loops."""

    @abc.abstractmethod
    def default(self) -> Schedule:
        """The schedule that the template takes without a record; its origin is ``trial``."""

    @abc.abstractmethod
    def config(self, point: int | None) -> Config:
        """A point as a record has it; None is the default.

        Raises:
            InvalidPointError: the template refuses it.
        """

    @abc.abstractmethod
    def build(self, point: int | None) -> BuiltPoint:
        """Lower and compile a point, down to machine code; None is the default.

        Raises:
            InvalidPointError: the template refuses it.
            Exception: whatever the compiler raises where it cannot compile it.
        """

    def reference(self) -> Reference | None:
        """Return inputs and the expected output; None where there is no reference."""
        return reference_of(self.spec)

    @property
    def size(self) -> int:
        """Number of points, valid or not."""
        return math.prod(map(len, self.knobs.values()))

    def schedule(self, point: int, origin: Origin = "trial") -> Schedule:
        """The schedule that a point stands for."""
        places = self._places(point)
        knobs = {name: values[place] for (name, values), place in zip(self.knobs.items(), places)}
        return Schedule(self.spec.template, knobs, origin, self.factors(knobs))

    def applied(self, point: int) -> Schedule:
        """Return `schedule` with details that only the scheduled loops have, which takes milliseconds; for trials."""
        return self.schedule(point)

    def point(self, knobs: Mapping[str, Any], *, nearest: bool = False) -> int | None:
        """The valid point with these knob values; None where there is none, as the space may have changed since.

        Args:
            nearest: take the closest value that a knob can have where it cannot have the wanted one.
        """
        if set(self.knobs) != set(knobs):
            return None
        places = [_place(values, knobs[name], nearest) for name, values in self.knobs.items()]
        found = [place for place in places if place is not None]
        if len(found) != len(places):
            return None
        point = self._point(found)
        return point if self.is_valid(point) else None

    def random_point(self) -> int:
        """A valid point, drawn by Python's global generator."""
        while True:
            point = random.randrange(self.size)
            if self.is_valid(point):
                return point

    def neighbour(self, point: int) -> int:
        """A valid point with at least one other knob, drawn by numpy's global generator; itself if none is met."""
        before = self._places(point)
        if self.size == 1:
            return point
        sizes = [len(values) for values in self.knobs.values()]
        after = before.copy()
        for _ in range(_MOST_STEPS):
            knob = np.random.randint(len(sizes))  # noqa: NPY002
            after[knob] = np.random.randint(sizes[knob])  # noqa: NPY002
            if after != before and self.is_valid(self._point(after)):
                return self._point(after)
        return point

    def _places(self, point: int) -> list[int]:
        places = []
        for values in self.knobs.values():
            places.append(point % len(values))
            point //= len(values)
        return places

    def _point(self, places: Sequence[int]) -> int:
        point, stride = 0, 1
        for place, values in zip(places, self.knobs.values(), strict=True):
            point += int(place) * stride
            stride *= len(values)
        return point


def _place(known: Sequence[Any], wanted: object, nearest: bool) -> int | None:
    if wanted in known:
        return known.index(wanted)
    if not nearest:
        return None
    numbers = [value for value in known if isinstance(value, (int, float))]
    if isinstance(wanted, (int, float)) and len(numbers) == len(known):
        return min(range(len(numbers)), key=lambda i: abs(numbers[i] - wanted))
    return 0
