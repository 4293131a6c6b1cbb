"""FLOPs and bytes of one operator, from shapes and attributes alone.

Conventions: a multiply-add counts two operations; element-wise ops count one per output element; reductions and pooling
one per element read; data movement (reshape, transpose, concatenate, take, ...) counts none. Winograd and packed
variants count the arithmetic of the convolution that they compute, not of the algorithm, so that GFLOP/s of different
schedules of one operator can be compared. Bytes are the operator's own tensors, each once; look-ups (`take`, `gather`,
embeddings) read what they return and not the whole table.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from op_profiler.operators.operator import TensorSpec

MOVES_DATA = frozenset(
    [
        "reshape",
        "contrib_reverse_reshape",
        "expand_dims",
        "squeeze",
        "transpose",
        "layout_transform",
        "concatenate",
        "split",
        "strided_slice",
        "stack",
        "copy",
        "cast",
        "cast_like",
        "broadcast_to",
        "broadcast_to_like",
        "full",
        "full_like",
        "zeros",
        "zeros_like",
        "ones",
        "ones_like",
        "take",
        "gather",
        "gather_nd",
        "embedding",
        "tile",
        "repeat",
        "reverse",
        "arange",
        "where",
        "shape_of",
        "nn.pad",
        "nn.batch_flatten",
        "nn.upsampling",
        "sequence_mask",
        "annotation.stop_fusion",
        "device_copy",
        "slice_like",
        "dyn.reshape",
        "reinterpret",
        "meshgrid",
        "scatter_elements",
        "scatter_nd",
        "on_device",
        "nn.space_to_depth",
        "nn.depth_to_space",
        "image.resize2d",
        "unravel_index",
        "adv_index",
    ]
)
LOOKS_UP = frozenset({"take", "gather", "gather_nd", "embedding", "strided_slice", "adv_index"})
REDUCES = frozenset(
    [
        "sum",
        "mean",
        "max",
        "min",
        "prod",
        "all",
        "any",
        "argmax",
        "argmin",
        "variance",
        "logsumexp",
        "nn.global_avg_pool2d",
        "nn.global_max_pool2d",
    ]
)
_PER_ELEMENT = {"nn.softmax": 5, "nn.log_softmax": 5, "nn.fast_softmax": 5, "nn.lrn": 5, "nn.batch_norm": 2}
_PER_ELEMENT |= {"nn.layer_norm": 8, "nn.instance_norm": 8, "nn.group_norm": 8, "nn.l2_normalize": 4}
_SORTS = frozenset({"sort", "argsort", "topk"})

HEAVY = frozenset(
    [
        "nn.conv1d",
        "nn.conv2d",
        "nn.conv3d",
        "nn.contrib_conv2d_NCHWc",
        "nn.contrib_depthwise_conv2d_NCHWc",
        "nn.contrib_conv2d_NCHWc_int8",
        "nn.conv1d_transpose",
        "nn.conv2d_transpose",
        "nn.conv3d_transpose",
        "nn.dense",
        "nn.contrib_dense_pack",
        "nn.batch_matmul",
        "nn.matmul",
        "nn.deformable_conv2d",
        "nn.contrib_conv2d_winograd_without_weight_transform",
        "qnn.conv2d",
        "qnn.dense",
        "qnn.batch_matmul",
        "nn.contrib_conv2d_gemm_without_weight_transform",
        "nn.contrib_conv3d_winograd_without_weight_transform",
        "nn.sparse_dense",
    ]
)


def elements(shape: Sequence[int]) -> int:
    """Number of elements; a dynamic dimension (-1) counts as one."""
    return math.prod(max(d, 1) if d == -1 else d for d in shape)


def size_bytes(tensor: TensorSpec) -> int:
    """Bytes of one tensor; sub-byte dtypes round up."""
    if tensor.dtype.startswith(("bool", "handle")):
        return elements(tensor.shape)
    if tensor.dtype == "bfloat16":
        return 2 * elements(tensor.shape)
    if tensor.dtype in ("int4", "uint4"):
        return (elements(tensor.shape) + 1) // 2
    return elements(tensor.shape) * np.dtype(tensor.dtype).itemsize


def _convolution(attrs: dict[str, Any], inputs: Sequence[TensorSpec], output: TensorSpec, transpose: bool) -> int:
    """2 x (output elements, or input elements for a transposed one) x kernel window x channels per group."""
    kernel = attrs.get("kernel_size") or _kernel_from_weight(inputs[1], attrs)
    window = math.prod(int(k) for k in kernel)
    channels_in = _channels(inputs[0], str(attrs.get("data_layout") or "NCHW"))
    groups = int(attrs.get("groups", 1))
    if transpose:
        channels_out = _channels(output, str(attrs.get("out_layout") or attrs.get("data_layout") or "NCHW"))
        return 2 * elements(inputs[0].shape) * window * (channels_out // groups)
    return 2 * elements(output.shape) * window * max(channels_in // groups, 1)


def _kernel_from_weight(weight: TensorSpec, attrs: dict[str, Any]) -> tuple[int, ...]:
    layout = str(attrs.get("kernel_layout") or "OIHW")
    return tuple(weight.shape[layout.index(axis)] for axis in "DHW" if axis in layout) or (1,)


def _channels(data: TensorSpec, layout: str) -> int:
    """Channels of a tensor in a layout such as NCHW, NHWC or NCHW16c (where 16c is a dimension of its own)."""
    axes = [c for c in layout if c.isalpha()]
    if len(axes) != len(data.shape):
        axes = list("NCDHW"[: len(data.shape)])
    return math.prod(data.shape[i] for i, axis in enumerate(axes) if axis in "Cc")


def _reduction_of_matmul(op: str, attrs: dict[str, Any], inputs: Sequence[TensorSpec]) -> int:
    data = inputs[0].shape
    transposed = bool(attrs.get("transpose_a", False))
    return data[-2] if transposed and len(data) > 1 else data[-1]


def flops(op: str, attrs: dict[str, Any], inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> int:
    """Operations of one Relay op.

    Args:
        op: Relay name, e.g. ``nn.conv2d``.
        attrs: its attributes as plain values.
        inputs, outputs: its tensors, in the op's order.
    """
    out = sum(elements(t.shape) for t in outputs)
    if "conv" in op and op in HEAVY:
        return _convolution(attrs, inputs, outputs[0], transpose="transpose" in op)
    if op in HEAVY:
        return 2 * out * _reduction_of_matmul(op, attrs, inputs)
    if op in MOVES_DATA or op.startswith(("memory.", "vm.", "dyn.")):
        return 0
    if "pool" in op and "pool_size" in attrs:
        return out * math.prod(int(k) for k in attrs["pool_size"])
    if op in REDUCES or "adaptive" in op:
        return elements(inputs[0].shape) if inputs else 0
    if op in _SORTS:
        size = elements(inputs[0].shape)
        return int(size * max(math.log2(max(inputs[0].shape[-1], 2)), 1)) if inputs[0].shape else size
    return out * _PER_ELEMENT.get(op, 1)


def looks_up(op: str) -> bool:
    """True where an op reads only what it returns from its first input."""
    return op in LOOKS_UP
