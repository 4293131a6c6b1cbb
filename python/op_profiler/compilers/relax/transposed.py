"""Two-dimensional transposed convolutions, without the zeros that TVM inserts between the values of their input.

With strides s, the outputs of one phase (row and column modulo s) are a convolution of the input with every s-th row
and column of the kernel. The weight is therefore packed by phase and by blocks of channels, and one kernel computes all
phases. For strides of 2, it does a quarter of the work of TVM's kernel, which also multiplies the zeros.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from op_profiler.compilers.relax.legalize import OUT_FUSABLE, noted_call
from op_profiler.compilers.relax.vectors import divisor
from op_profiler.compilers.tvm_build import load_tvm

NAME = "conv2d_transpose_packed"
"""Name of the block that sums."""
_OP = "nn.conv2d_transpose"


def packed(builder: Any, call: Any, weight: np.ndarray, lanes: int) -> Any | None:
    """Replace a ``relax.nn.conv2d_transpose`` by a call of TIR; return None for unsupported forms.

    Args:
        builder: ``relax.BlockBuilder`` of the module.
        weight: (channels, outputs, kernel height, kernel width).
        lanes: number of float32 values in a vector.
    """
    attrs = call.attrs
    strides, padding = ([int(v) for v in field] for field in (attrs.strides, attrs.padding))
    sizes = [getattr(d, "value", None) for d in (*call.args[0].ty.shape, *call.ty.shape)]
    plain = attrs.data_layout == "NCHW" and attrs.kernel_layout == "IOHW" and int(attrs.groups) == 1
    if not plain or None in sizes or any(int(d) != 1 for d in attrs.dilation):
        return None
    height, width = (int(size or 0) for size in sizes[-2:])
    if height % strides[0] or width % strides[1]:
        return None
    channels, outputs, *kernel = weight.shape
    block = divisor(outputs, lanes)
    taps = [math.ceil(size / stride) for size, stride in zip(kernel, strides)]
    whole = np.zeros((channels, outputs, taps[0] * strides[0], taps[1] * strides[1]), dtype=weight.dtype)
    whole[:, :, : kernel[0], : kernel[1]] = weight
    phases = whole.reshape(channels, outputs // block, block, taps[0], strides[0], taps[1], strides[1])
    phases = phases[:, :, :, ::-1, :, ::-1, :].transpose(1, 4, 6, 0, 3, 5, 2)
    for axis in (0, 1):  # the first row of the output need not be of the first phase
        phases = np.roll(phases, -padding[axis], axis=axis + 1)
    named = {
        "strides": strides,
        "padding": padding,
        "output_padding": [int(v) for v in attrs.output_padding],
        "dilation": [1, 1],
        "groups": 1,
        "channels": outputs,
        "kernel_size": kernel,
        "data_layout": "NCHW",
        "kernel_layout": f"IOHW{block}o",
    }
    constant = load_tvm().relax.const(np.ascontiguousarray(phases))
    arguments = (call.args[0], constant, padding[0], padding[1], height, width)
    return noted_call(builder, _OP, named, _compute, *arguments, hint="conv2d_transpose", pattern=OUT_FUSABLE)


def _compute(data: Any, weight: Any, top: int, left: int, height: int, width: int) -> Any:
    """Return the transposed convolution (n, outputs, height, width) of data and a weight that is packed by phase.

    The shapes are data (n, channels, h, w) and weight (outputs / b, sy, sx, channels, ty, tx, b). Row s * i + y of the
    output is computed from row i + (y + top) // s of the input and the rows before it.
    """
    tvm = load_tvm()
    te, topi = tvm.te, tvm.topi
    batch, channels, rows, columns = data.shape
    blocks, down, right, _, tall, wide, block = (int(size) for size in weight.shape)
    below = max((height - 1 + top) // down - (int(rows) - 1), 0)
    behind = max((width - 1 + left) // right - (int(columns) - 1), 0)
    padded = topi.nn.pad(data, [0, 0, tall - 1, wide - 1], [0, 0, below, behind], name="data_pad")
    ic = te.reduce_axis((0, channels), name="ic")
    a, b = te.reduce_axis((0, tall), name="a"), te.reduce_axis((0, wide), name="b")
    made = te.compute(
        (batch, blocks, height // down, down, width // right, right, block),
        lambda n, c, i, y, j, x, lane: te.sum(
            padded[n, ic, i + (y + top) // down + a, j + (x + left) // right + b] * weight[c, y, x, ic, a, b, lane],
            axis=[ic, a, b],
        ),
        name=NAME,
    )
    return te.compute(
        (batch, blocks * block, height, width),
        lambda n, c, y, x: made[n, c // block, y // down, y % down, x // right, x % right, c % block],
        name="phases",
    )
