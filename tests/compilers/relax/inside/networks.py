"""Modules of Relax for the tests."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.compilers.tvm_types import Target

Body = Callable[[Any, Any, Any], Any]
"""Gives the output, or a list of outputs, from a builder, ``tvm.relax`` and the input."""


def quickly_built(target: Target) -> Target:
    """The same, and LLVM optimizes nothing: for kernels of which is asked what they compute, not how long it takes."""
    made: Target = load_tvm().target.Target({**target.export(), "opt-level": 0})
    return made


def constant(*shape: int) -> Any:
    """Values that are the same at each call, scaled so that sums stay near 1."""
    values = np.random.default_rng(0).standard_normal(shape) / math.sqrt(max(math.prod(shape[1:]), 1))
    return load_tvm().relax.const(values.astype("float32"))


def module(shape: Sequence[Any], body: Body) -> Any:
    """A module with one input ``data``.

    Args:
        shape: sizes; a variable of TIR for one that only run time tells.
    """
    relax = load_tvm().relax
    builder = relax.BlockBuilder()
    data = relax.Var("data", relax.TensorType(list(shape), "float32"))
    with builder.function("main", [data]):
        with builder.dataflow():
            made = body(builder, relax, data)
            emitted = relax.Tuple([builder.emit(one) for one in made]) if isinstance(made, list) else builder.emit(made)
            output = builder.emit_output(emitted)
        builder.emit_func_output(output)
    return builder.get()


def small_network() -> Any:
    """Two convolutions, a sum, pooling and a product; input (1, 16, 12, 12), output (1, 10)."""

    def body(builder: Any, relax: Any, data: Any) -> Any:
        op = relax.op
        first = builder.emit(op.nn.relu(op.nn.conv2d(data, constant(16, 16, 3, 3), padding=1)))
        second = builder.emit(op.add(op.nn.conv2d(first, constant(16, 16, 3, 3), padding=1), first))
        pooled = builder.emit(op.reshape(op.mean(second, axis=[2, 3]), [1, 16]))
        return op.nn.softmax(op.matmul(pooled, constant(16, 10)))

    return module((1, 16, 12, 12), body)
