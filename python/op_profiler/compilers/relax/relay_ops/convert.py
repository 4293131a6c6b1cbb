"""The type of a converter of one Relay op, and helpers that several converters use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.errors import ModelError

Attrs = dict[str, Any]
Convert = Callable[[Any, Attrs, list[Any]], Any]
"""Converts an op, given ``tvm.relax.op``, the attributes of Relay's op with the ``shapes`` of its outputs, and its
arguments. Attributes that are empty in Relay are missing. A tuple argument is a list. An op with several outputs
returns a list, or a value of a tuple type."""


def shape_of(value: Any) -> list[int]:
    """Return the sizes of a tensor, which have to be static."""
    return [int(d) for d in value.ty.shape]


def axes_of(a: Attrs, value: Any) -> list[int] | None:
    """Return the axes of `value` over which an op with the attributes `a` works; None stands for all axes."""
    axis = a.get("axis")
    axes = None if axis is None else [axis] if isinstance(axis, int) else [int(one) for one in axis]
    if not a.get("exclude"):
        return axes
    rank = len(shape_of(value))
    return [i for i in range(rank) if i not in {one % rank for one in axes or ()}]


def along(value: Any, axis: int, rank: int) -> Any:
    """Return one-dimensional values as a tensor that varies along one axis and has length 1 along the others."""
    made: Any = load_tvm().relax.op.reshape(value, [-1 if i == axis % rank else 1 for i in range(rank)])
    return made


def number(value: Any) -> int | float:
    """Return the number in a constant with one element.

    Raises:
        ModelError: the number is known only at run time.
    """
    if not isinstance(value, load_tvm().ir.GenericConst):
        raise ModelError("it needs a number that is known only at run time")
    found: int | float = value.value.numpy().item()
    return found
