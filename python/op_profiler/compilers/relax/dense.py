"""Products with a weight over blocks of its columns, for which this TVM has no op.

In the model's layout, the distance between rows of the weight is its width; in blocks the kernel reads contiguous
values. The blocks are those of Relay's default schedules, so that both compilers lower a product of two dimensions to
the same operator.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from op_profiler.compilers.relax.legalize import noted_call
from op_profiler.compilers.relax.vectors import divisor
from op_profiler.compilers.tvm_build import load_tvm

_VECTORS = 2
_NAME = "nn.contrib_dense_pack"


def packed(builder: Any, call: Any, weight: np.ndarray, lanes: int) -> Any:
    """Replace a ``relax.matmul`` by a call of TIR that reads the weight in blocks of columns.

    Args:
        builder: ``relax.BlockBuilder`` of the module.
        weight: (depth, columns).
        lanes: number of float32 values in a vector.
    """
    load_tvm()
    depth, columns = weight.shape
    block = divisor(columns, _VECTORS * lanes)
    blocks = np.ascontiguousarray(weight.reshape(depth, columns // block, block).transpose(1, 0, 2))
    attrs = {"out_dtype": str(weight.dtype), "weight_layout": f"NC{block}n"}
    constant = load_tvm().relax.const(blocks)
    return noted_call(builder, _NAME, attrs, _product, call.args[0], constant, hint="dense_pack")


def _product(data: Any, weight: Any) -> Any:
    """Return the product (..., columns) of data (..., depth) and weight (columns / n, depth, n)."""
    te = load_tvm().te
    *rows, depth = data.shape
    blocks, _, block = weight.shape
    k = te.reduce_axis((0, depth), name="k")
    return te.compute(
        (*rows, blocks * block),
        lambda *at: te.sum(data[(*at[:-1], k)] * weight[at[-1] // block, k, at[-1] % block], axis=k),
        name="matmul_packed",
    )
