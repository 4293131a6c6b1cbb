"""`Task`: one way to compute an operator, with its space of schedules. Compilers create tasks (`Compiler.task`); tuners
search them.

A point is a number. Each of its digits is the position of a knob's value among the values of that knob; the lowest
digit belongs to the first knob.
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

_MOST_STEPS = 1000  # tries to find a neighbour; a space with one valid point has none
Config = dict[str, Any]
"""A point in the form of schedule records (`Record.config`)."""


class InvalidPointError(ValueError):
    """Raised for a point of a search space that the template rejects; the message is the reason."""


@dataclasses.dataclass(frozen=True)
class BuiltPoint:
    """A task that was compiled with one schedule.

    Attributes:
        function: library whose entry function runs the task.
        tensors: shape and dtype of each array argument of the entry function.
        output: position of the output among the arguments; the others are inputs.
    """

    function: RuntimeModule
    tensors: tuple[tuple[tuple[int, ...], str], ...]
    output: int = 0


class Task(abc.ABC):
    """The search space of one template for one operator.

    Attributes:
        spec: template and arguments from which the task was created.
        knobs: allowed values of each knob by name, as plain JSON values.
    """

    spec: TaskSpec
    knobs: Mapping[str, Sequence[Any]]

    @abc.abstractmethod
    def is_valid(self, point: int) -> bool:
        """Return whether the knob values of a point fit together, as far as that is known before the point is built."""

    @abc.abstractmethod
    def factors(self, knobs: Mapping[str, Any]) -> Factors:
        """Return the loop factors that these knob values set."""

    @abc.abstractmethod
    def default(self) -> Schedule:
        """Return the schedule that the template uses without a record; its origin is ``trial``."""

    @abc.abstractmethod
    def config(self, point: int | None) -> Config:
        """Return a point in the form of schedule records.

        Args:
            point: the point; None: the default schedule.

        Raises:
            InvalidPointError: the template rejects the point.
        """

    @abc.abstractmethod
    def build(self, point: int | None) -> BuiltPoint:
        """Lower and compile a point to machine code.

        Args:
            point: the point; None: the default schedule.

        Raises:
            InvalidPointError: the template rejects the point.
            Exception: any error of the compiler.
        """

    def reference(self) -> Reference | None:
        """Return inputs and the expected output; None if there is no reference for the template."""
        return reference_of(self.spec)

    @property
    def size(self) -> int:
        """Number of points, valid or not."""
        return math.prod(map(len, self.knobs.values()))

    def schedule(self, point: int, origin: Origin = "trial") -> Schedule:
        """Return the schedule of a point."""
        places = self._places(point)
        knobs = {name: values[place] for (name, values), place in zip(self.knobs.items(), places)}
        return Schedule(self.spec.template, knobs, origin, self.factors(knobs))

    def applied(self, point: int) -> Schedule:
        """Return the schedule of a point for a trial, with factors that a subclass may read from the scheduled loops.

        Reading scheduled loops takes milliseconds; `schedule` derives the factors from the knobs.
        """
        return self.schedule(point)

    def point(self, knobs: Mapping[str, Any], *, nearest: bool = False) -> int | None:
        """Return the valid point with these knob values; None if the space has no such point, for example because the
        space has changed.

        Args:
            knobs: knob values by name.
            nearest: whether to replace a value that a knob cannot have by the closest value that it can have.
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
        """Return a valid point, drawn by Python's global generator."""
        while True:
            point = random.randrange(self.size)
            if self.is_valid(point):
                return point

    def neighbour(self, point: int) -> int:
        """Return a random valid point near `point`: knobs are redrawn one after the other until the result is valid.

        The knobs are drawn by numpy's global generator. If no valid point is found, `point` is returned.
        """
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
