"""Shapes, types and constants of Relay values, for converters of torch's operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from op_profiler.compilers.tvm_build import load_tvm


def shape_of(data: Any) -> Sequence[Any]:
    """The sizes of a tensor; one that only run time tells is no number."""
    shape: Sequence[Any] = load_tvm().relay.frontend.common.infer_shape(data)
    return shape


def sizes_of(data: Any) -> list[int]:
    """The sizes of a tensor, which are known."""
    return [int(size) for size in shape_of(data)]


def number_of(value: Any) -> float:
    """A plain number, or one that was computed while tracing."""
    if isinstance(value, (int, float)):
        return value
    return float(load_tvm().relay.frontend.common.infer_value(value, {}).numpy())


def dtype_of(data: Any) -> str:
    """The type of a tensor's elements."""
    return str(load_tvm().relay.frontend.common.infer_type(data).checked_type.dtype)


def name_of_dtype(number: int) -> str:
    """The type that torch has a number for."""
    from tvm.relay.frontend.pytorch import _convert_dtype_value

    return str(_convert_dtype_value(number))


def usual_converters() -> Any:
    """TVM's own converters of torch's operators, as methods."""
    from tvm.relay.frontend.pytorch import PyTorchOpConverter

    tvm = load_tvm()
    return PyTorchOpConverter(tvm.relay.prelude.Prelude(tvm.IRModule()), "float32")
