"""The contract of a template, and functions that several templates use."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from op_profiler.operators.operator import Operator

Task = tuple[str, tuple[Any, ...]]
"""AutoTVM's name of a template and its arguments, in AutoTVM's serialized form (tuples and plain values)."""


@dataclasses.dataclass(frozen=True)
class Template:
    """One way to compute some operators, with a space of schedules.

    Attributes:
        register: registers it with AutoTVM and with Relay's op strategies; called once per process, after TVM was
            imported.
        tasks: returns the tasks for the anchor of a fused operator, with the arguments that a build gives them; empty
            if the template does not fit the anchor.
    """

    register: Callable[[], None]
    tasks: Callable[[Operator], Sequence[Task]]


def two_float_tensors(anchor: Operator) -> tuple[Any, Any] | None:
    """Return data and weight as arguments of a task; None unless an anchor has exactly these, as floats of known
    shapes."""
    tensors = (*anchor.inputs, *anchor.params)
    if len(tensors) != 2 or not all(t.dtype.startswith("float") and -1 not in t.shape for t in tensors):
        return None
    data, weight = (("TENSOR", tensor.shape, tensor.dtype) for tensor in tensors)
    return data, weight


def output_dtype(anchor: Operator) -> str:
    """Return the dtype that the anchor requests, otherwise that of its data."""
    return str(anchor.attrs[0].get("out_dtype") or (*anchor.inputs, *anchor.params)[0].dtype)
