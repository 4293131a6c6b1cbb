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
    """An AutoTVM template: one way to compute operators of some kinds, with a space of schedules.

    Attributes:
        register: registers the template with AutoTVM and with Relay's op strategies; called once per process, after
            TVM was imported.
        tasks: returns the template's tasks for the anchor of a fused operator, with the arguments that a build gives
            the template; empty if the template does not fit the anchor.
    """

    register: Callable[[], None]
    tasks: Callable[[Operator], Sequence[Task]]


def two_float_tensors(anchor: Operator) -> tuple[Any, Any] | None:
    """Return the data and the weight of an anchor as arguments of a task; None unless the anchor has exactly these two
    inputs, as float tensors of known shapes."""
    tensors = (*anchor.inputs, *anchor.params)
    if len(tensors) != 2 or not all(t.dtype.startswith("float") and -1 not in t.shape for t in tensors):
        return None
    data, weight = (("TENSOR", tensor.shape, tensor.dtype) for tensor in tensors)
    return data, weight


def output_dtype(anchor: Operator) -> str:
    """Return the output dtype that the anchor's attributes request; if they request none, the dtype of its data."""
    return str(anchor.attrs[0].get("out_dtype") or (*anchor.inputs, *anchor.params)[0].dtype)
