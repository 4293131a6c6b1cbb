"""FLOPs and bytes of one operator, from shapes and attributes only.

Conventions: a multiply-add counts two operations; element-wise ops count one per output element; reductions and
pooling one per element read; a resize two per neighbour of each output element, and none if it copies a single
neighbour; data movement (reshape, transpose, concatenate, take, ...) counts none. Winograd and packed variants count
the arithmetic of the convolution that they compute, not of the algorithm, so that GFLOP/s of different schedules of one
operator can be compared. Bytes are the operator's own tensors, each once; look-ups (`take`, `gather`, embeddings) count
the bytes that they return, not the whole table.

`COSTS` has the cost of each op. An op that is not in it counts as element-wise, except pooling (counted from its
window) and the ops of the virtual machine (0).
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any, Protocol

from op_profiler.operators.operator import Operator, TensorSpec, axis_sizes

Attrs = dict[str, Any]
Tensors = Sequence[TensorSpec]


class Flops(Protocol):
    """A function that returns the number of operations of one op, given its attributes as plain values, and its inputs
    and outputs in the op's order."""

    def __call__(self, attrs: Attrs, inputs: Tensors, outputs: Tensors) -> int:
        """Return the number of operations."""


@dataclasses.dataclass(frozen=True)
class Cost:
    """Cost of an op, and the properties that follow from it.

    Attributes:
        flops: function that returns the number of operations of the op.
        heavy: whether it can be the anchor of a fused operator and can be tuned.
        looks_up: whether it reads only those elements of its first input that it returns.
        reduces: whether it returns fewer elements than it reads.
    """

    flops: Flops
    heavy: bool = False
    looks_up: bool = False
    reduces: bool = False


def elements(shape: Sequence[int]) -> int:
    """Return the number of elements; a dynamic dimension (-1) counts as one."""
    return abs(math.prod(shape))


def size_bytes(tensor: TensorSpec) -> int:
    """Return the bytes of one tensor; sub-byte dtypes are rounded up."""
    bits = _bits(tensor.dtype)
    return (elements(tensor.shape) * bits + 7) // 8


@functools.cache
def _bits(dtype: str) -> int:
    """Return the bits of one element."""
    if dtype.startswith(("bool", "handle")):
        return 8
    if dtype == "bfloat16":
        return 16
    if dtype in ("int4", "uint4"):
        return 4
    import numpy as np  # a tenth of a second: a collection of what is known already asks for no size

    return 8 * np.dtype(dtype).itemsize


def _none(attrs: Attrs, inputs: Tensors, outputs: Tensors) -> int:
    return 0


def _written(attrs: Attrs, inputs: Tensors, outputs: Tensors, each: int = 1) -> int:
    """Count `each` operations per element of the outputs."""
    return each * sum(elements(t.shape) for t in outputs)


def _read(attrs: Attrs, inputs: Tensors, outputs: Tensors) -> int:
    """Count one operation per element of the first input."""
    return elements(inputs[0].shape) if inputs else 0


def _pooled(attrs: Attrs, inputs: Tensors, outputs: Tensors) -> int:
    """Count one operation per element of each window."""
    return _written(attrs, inputs, outputs) * math.prod(int(k) for k in attrs["pool_size"])


def _resized(attrs: Attrs, inputs: Tensors, outputs: Tensors) -> int:
    """Count a multiply-add for each neighbour of each output element: two along each axis of a linear resize, four for
    a cubic one. The nearest neighbour is copied.
    """
    method, axes = str(attrs.get("method")), sum(axis in "DHW" for axis in str(attrs.get("layout")))
    taps = 4 if method.endswith("cubic") else 2 if method.endswith("linear") else 0
    return _written(attrs, inputs, outputs, each=2 * taps**axes if taps else 0)


def _sorted(attrs: Attrs, inputs: Tensors, outputs: Tensors) -> int:
    """Count the comparisons of a sort along the last axis."""
    size = elements(inputs[0].shape)
    return int(size * max(math.log2(max(inputs[0].shape[-1], 2)), 1)) if inputs[0].shape else size


def _convolution(attrs: Attrs, inputs: Tensors, outputs: Tensors) -> int:
    """Count 2 x output elements x kernel window x input channels per group."""
    channels = _channels(inputs[0], str(attrs.get("data_layout") or "NCHW"))
    groups = int(attrs.get("groups", 1))
    return 2 * elements(outputs[0].shape) * _window(attrs, inputs) * max(channels // groups, 1)


def least_flops(operator: Operator) -> float:
    """Return the FLOPs that an operator computes at least; lower than `Operator.flops` only for Winograd's
    convolutions."""
    anchor = operator.anchor
    if anchor not in operator.op_names:
        return operator.flops
    return operator.flops * _computed_share(anchor, operator.attrs[operator.op_names.index(anchor)])


def _computed_share(op: str, attrs: Attrs) -> float:
    """Return the least share of the counted FLOPs that an op computes.

    For a k x k kernel, its tiles of t x t outputs need (t + k - 1)^2 instead of t^2 k^2 multiplications (Lavin and
    Gray, 2015).
    """
    if "winograd" not in op or op not in HEAVY:
        return 1.0
    tile = int(attrs["tile_size"])
    return math.prod((tile + int(k) - 1) / (tile * int(k)) for k in attrs["kernel_size"])


def _transposed_convolution(attrs: Attrs, inputs: Tensors, outputs: Tensors) -> int:
    """Count 2 x input elements x kernel window x output channels per group."""
    channels = _channels(outputs[0], str(attrs.get("out_layout") or attrs.get("data_layout") or "NCHW"))
    return 2 * elements(inputs[0].shape) * _window(attrs, inputs) * (channels // int(attrs.get("groups", 1)))


def _window(attrs: Attrs, inputs: Tensors) -> int:
    """Return the number of elements of a kernel's window."""
    if attrs.get("kernel_size"):
        return math.prod(int(k) for k in attrs["kernel_size"])
    layout = str(attrs.get("kernel_layout") or "OIHW")
    return math.prod([inputs[1].shape[layout.index(axis)] for axis in "DHW" if axis in layout] or [1])


def _channels(data: TensorSpec, layout: str) -> int:
    """Return the channels of a tensor in a layout such as NCHW, NHWC or NCHW16c; in any other layout, its second
    axis."""
    found = axis_sizes(data.shape, layout) or dict(zip("NCDHW", data.shape))
    return found.get("C", 1)


def _product(attrs: Attrs, inputs: Tensors, outputs: Tensors) -> int:
    """Count 2 x output elements x length of the rows that are multiplied."""
    data = inputs[0].shape
    transposed = bool(attrs.get("transpose_a", False)) and len(data) > 1
    return 2 * _written(attrs, inputs, outputs) * (data[-2] if transposed else data[-1])


def _attention(attrs: Attrs, inputs: Tensors, outputs: Tensors) -> int:
    """Count 2 x heads x size of a head for every pair of a token and a token that it attends to: scores, and the same
    for their weighted sum.

    `inputs` are queries, followed by keys: of the step's own tokens, of which each attends to the earlier ones, or in
    pages, of which each token attends to all.
    """
    rows, heads, size = inputs[0].shape
    sequences = int(attrs["sequences"])
    tokens = rows // sequences
    seen = inputs[1].shape[1] * tokens if len(inputs) == 2 else tokens * (tokens + 1) // 2
    return 4 * sequences * seen * heads * size


COSTS: dict[str, Cost] = {
    **dict.fromkeys(("attention.prefill", "attention.prefill_past", "attention.decode"), Cost(_attention, heavy=True)),
    **dict.fromkeys(("attention.rope", "attention.merge"), Cost(functools.partial(_written, each=3))),
    "attention.append": Cost(_none),
    **dict.fromkeys(
        (
            *("nn.conv1d", "nn.conv2d", "nn.conv3d", "qnn.conv2d", "nn.deformable_conv2d"),
            *("nn.contrib_conv2d_NCHWc", "nn.contrib_depthwise_conv2d_NCHWc", "nn.contrib_conv2d_NCHWc_int8"),
            "nn.contrib_conv2d_winograd_without_weight_transform",
            "nn.contrib_conv2d_gemm_without_weight_transform",
            "nn.contrib_conv3d_winograd_without_weight_transform",
        ),
        Cost(_convolution, heavy=True),
    ),
    **{f"nn.conv{axes}d_transpose": Cost(_transposed_convolution, heavy=True) for axes in (1, 2, 3)},
    **dict.fromkeys(
        (
            *("nn.dense", "nn.contrib_dense_pack", "nn.batch_matmul", "nn.matmul", "nn.sparse_dense"),
            *("qnn.dense", "qnn.batch_matmul"),
        ),
        Cost(_product, heavy=True),
    ),
    **dict.fromkeys(
        (
            *("sum", "mean", "max", "min", "prod", "all", "any", "argmax", "argmin", "variance", "logsumexp"),
            *("nn.global_avg_pool2d", "nn.global_max_pool2d"),
        ),
        Cost(_read, reduces=True),
    ),
    **dict.fromkeys(
        ("take", "gather", "gather_nd", "embedding", "strided_slice", "adv_index"), Cost(_none, looks_up=True)
    ),
    **dict.fromkeys(("sort", "argsort", "topk"), Cost(_sorted)),
    **dict.fromkeys(
        ("nn.softmax", "nn.log_softmax", "nn.fast_softmax", "nn.lrn"), Cost(functools.partial(_written, each=5))
    ),
    "nn.batch_norm": Cost(functools.partial(_written, each=2)),
    **dict.fromkeys(("nn.layer_norm", "nn.instance_norm", "nn.group_norm"), Cost(functools.partial(_written, each=8))),
    "nn.l2_normalize": Cost(functools.partial(_written, each=4)),
    **dict.fromkeys(
        (
            *("reshape", "contrib_reverse_reshape", "dyn.reshape", "reinterpret", "expand_dims", "squeeze"),
            *("transpose", "layout_transform", "concatenate", "split", "stack", "copy", "cast", "cast_like"),
            *("broadcast_to", "broadcast_to_like", "full", "full_like", "zeros", "zeros_like", "ones", "ones_like"),
            *("tile", "repeat", "reverse", "arange", "where", "meshgrid", "shape_of", "slice_like", "sequence_mask"),
            *("scatter_elements", "scatter_nd", "unravel_index", "annotation.stop_fusion", "device_copy", "on_device"),
            *("nn.pad", "nn.batch_flatten", "nn.space_to_depth", "nn.depth_to_space"),
        ),
        Cost(_none),
    ),
    **dict.fromkeys(
        ("image.resize1d", "image.resize2d", "image.resize3d", "nn.upsampling", "nn.upsampling3d"), Cost(_resized)
    ),
}
"""Costs by Relay's name of the op."""

HEAVY = frozenset(op for op, cost in COSTS.items() if cost.heavy)
LOOKS_UP = frozenset(op for op, cost in COSTS.items() if cost.looks_up)
"""Ops that read only those elements of their first input that they return."""
REDUCES = frozenset(op for op, cost in COSTS.items() if cost.reduces)
MOVES_DATA = frozenset(op for op, cost in COSTS.items() if cost.flops in (_none, _resized))
"""Ops that only move data: they count no operations, or only those of an interpolation (resizes)."""


def flops(op: str, attrs: Attrs, inputs: Tensors, outputs: Tensors) -> int:
    """Return the operations of one Relay op.

    Args:
        op: Relay name, e.g. ``nn.conv2d``.
        attrs: its attributes as plain values.
        inputs, outputs: its tensors, in the op's order.
    """
    if op in COSTS:
        return COSTS[op].flops(attrs, inputs, outputs)
    if op.startswith(("memory.", "vm.", "dyn.")):
        return 0
    if "pool" in op and "pool_size" in attrs:
        return _pooled(attrs, inputs, outputs)
    return _read(attrs, inputs, outputs) if "adaptive" in op else _written(attrs, inputs, outputs)
