"""Operators: one fused function of the compiler, identified by its ops, shapes, dtypes, layouts and attributes."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import re
from collections.abc import Sequence
from typing import Any

from op_profiler.operators.layers import CallLayers
from op_profiler.operators.titles import label_of

PARAMETER = re.compile(r"(?<![\w%.:])([ip])(\d+)(?:\.(\d+))?(?!\w)")
"""In the structure of an operator: input or constant, its number, and the field if it is a tuple."""


@dataclasses.dataclass(frozen=True)
class TensorSpec:
    """Shape and dtype of one tensor; a dimension of -1 is only known at run time."""

    shape: tuple[int, ...]
    dtype: str


def axis_sizes(shape: Sequence[int], layout: str) -> dict[str, int]:
    """Return the size of each axis of a tensor, by its capital letter; empty if the layout has another number of axes.

    Blocks are multiplied into their axis: ``NCHW16c`` of shape (1, 4, 7, 7, 16) gives N 1, C 64, H 7, W 7.
    """
    axes = [letter.upper() for letter in layout if letter.isalpha()]
    found: dict[str, int] = {}
    for axis, size in zip(axes, shape):
        found[axis] = found.get(axis, 1) * size
    return found if len(axes) == len(shape) else {}


@dataclasses.dataclass(frozen=True)
class Operator:
    """One fused function of a model.

    Attributes:
        name: the compiler's name of the kernel, e.g. ``fused_nn_contrib_conv2d_NCHWc_add_nn_relu``.
        anchor: the first heavy op, e.g. ``nn.conv2d``; without a heavy op, the op with most operations; ``identity``
            for a function without ops.
        op_names: all fused ops, in execution order.
        inputs: activations that the operator reads.
        params: constants (weights, biases) that the operator reads.
        outputs: tensors that the operator writes.
        attrs: attributes of each op in the order of `op_names`, as plain JSON values (strides, padding, ...).
        layouts: data, kernel and output layout of the anchor, if it has them.
        structure: the edges between the ops as text, with the constants whose value changes the code; part of the
            identity.
        flops: floating-point (or integer) operations of one call; a multiply-add counts as two.
        bytes_read, bytes_written: size of every input and output once, in bytes; for a look-up, the size of its result;
            for a tuple, the size of the fields that are used.
    """

    name: str
    anchor: str
    op_names: tuple[str, ...]
    inputs: tuple[TensorSpec, ...]
    params: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    attrs: tuple[dict[str, Any], ...]
    layouts: dict[str, str]
    structure: str
    flops: int
    bytes_read: int
    bytes_written: int

    @property
    def key(self) -> str:
        """Identity of the operator: its `workload`."""
        return self.workload

    @functools.cached_property
    def workload(self) -> str:
        """The workload key: 16 hex digits over op names, shapes, dtypes, layouts, attributes and the constants that
        change the code.

        `name` is not part of the key.
        """
        identity = json.dumps(
            [
                self.op_names,
                *([(t.shape, t.dtype) for t in tensors] for tensors in (self.inputs, self.params, self.outputs)),
                self.attrs,
                self.layouts,
                self.structure,
            ],
            sort_keys=True,
        )
        return hashlib.sha256(identity.encode()).hexdigest()[:16]

    def label(self, layers: CallLayers = ()) -> str:
        """Return the operator's name for people: title, first of the given layers, output shape (`label_of`)."""
        return label_of(self.op_names, self.outputs[0].shape if self.outputs else (), layers)

    def __hash__(self) -> int:
        """Hash the key, because attributes are dictionaries."""
        return hash(self.key)

    @property
    def arithmetic_intensity(self) -> float:
        """FLOPs per byte moved; 0.0 if nothing is computed."""
        moved = self.bytes_read + self.bytes_written
        return self.flops / moved if moved else 0.0

    @functools.cached_property
    def inputs_read(self) -> tuple[TensorSpec, ...]:
        """`inputs` without the fields of a tuple that no op uses, such as other results of a ``split``.

        If the operator reads several tuples and it is unknown whose fields are used, all inputs.
        """
        named = {(number, field) for letter, number, field in PARAMETER.findall(self.structure) if letter == "i"}
        others = {int(number) for number, field in named if not field}  # each is one tensor
        tuples = {int(number) for number, _ in named} - others
        if len(tuples) != 1:
            return self.inputs
        (number,) = tuples
        first = sum(other < number for other in others)
        taken = {first + int(field) for _, field in named if field}
        fields = range(first, first + len(self.inputs) - len(others))
        return tuple(tensor for at, tensor in enumerate(self.inputs) if at in taken or at not in fields)
