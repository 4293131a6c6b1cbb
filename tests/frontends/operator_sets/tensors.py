"""Descriptions of tensors that operators take, and the arrays that they become."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True)
class Tensor:
    """A random tensor.

    Attributes:
        low, high: ends of a uniform distribution; of floats without them a normal one.
        constant: part of the model, as weights and sizes are; else an input of it.
    """

    shape: tuple[int, ...]
    kind: str = "float32"
    low: float | None = None
    high: float = 1.0
    constant: bool = False

    def array(self, rng: np.random.Generator) -> Any:
        if self.kind == "bool":
            return np.asarray(rng.integers(0, 2, self.shape), "bool")
        if self.kind.startswith("float"):
            values = (
                rng.standard_normal(self.shape) if self.low is None else rng.uniform(self.low, self.high, self.shape)
            )
            return np.asarray(values, self.kind)
        return np.asarray(rng.integers(int(self.low or 0), int(self.high), self.shape), self.kind)

    def of(self, kind: str) -> Tensor:
        """The same of another type."""
        if kind == "bool" or self.kind == kind:
            return dataclasses.replace(self, kind=kind)
        if kind.startswith("float") or not self.kind.startswith("float"):
            return dataclasses.replace(self, kind=kind)
        low = 1 if self.low is not None and self.low > 0 else (0 if kind.startswith("u") else -3)
        return dataclasses.replace(self, kind=kind, low=low, high=5)


@dataclasses.dataclass(frozen=True)
class Value:
    """A tensor of these numbers.

    Attributes:
        constant: part of the model; else an input of it.
    """

    values: Any
    kind: str = "int64"
    constant: bool = True

    def array(self, rng: np.random.Generator) -> Any:
        return np.array(self.values).astype(self.kind)

    def of(self, kind: str) -> Value:
        """The same of another type; positive fractions, such as scales, stay positive."""
        if "int" in kind and self.kind.startswith("float"):
            return Value(
                np.where((array := np.array(self.values)) > 0, np.ceil(array), array).tolist(), kind, self.constant
            )
        return dataclasses.replace(self, kind=kind)


@dataclasses.dataclass(frozen=True)
class Made:
    """What another operator makes: sequences and optional values, which are no inputs that a profiler fills."""

    op_type: str
    inputs: tuple[Tensor | Value, ...] = ()


Given = Tensor | Value | Made


def f(*shape: int) -> Tensor:
    """Floats of a normal distribution."""
    return Tensor(shape)


def w(*shape: int) -> Tensor:
    """Floats of a normal distribution that are part of the model, as weights are."""
    return Tensor(shape, constant=True)


def within(low: float, high: float, *shape: int) -> Tensor:
    """Floats between two."""
    return Tensor(shape, low=low, high=high)


def whole(low: int, high: int, *shape: int, kind: str = "int64", constant: bool = False) -> Tensor:
    """Integers from `low` to below `high`."""
    return Tensor(shape, kind, low, high, constant)


def flags(*shape: int) -> Tensor:
    """Of type bool."""
    return Tensor(shape, "bool")


def ints(*values: int) -> Value:
    """A list of int64 that is part of the model, or an attribute."""
    return Value(list(values))


def number(value: float, kind: str = "float32") -> Value:
    """A scalar that is part of the model."""
    return Value(value, kind)
