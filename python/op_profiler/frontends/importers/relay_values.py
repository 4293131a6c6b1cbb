"""Shapes, types and constants of Relay values, for converters of torch's operators."""

from __future__ import annotations

import contextlib
import copy
import functools
from collections.abc import Iterator, Sequence
from typing import Any

from op_profiler.compilers.tvm_build import load_tvm, replaced


def shape_of(data: Any) -> Sequence[Any]:
    """Return the sizes of a tensor; a size known only at run time is an expression."""
    shape: Sequence[Any] = load_tvm().relay.frontend.common.infer_shape(data)
    return shape


def sizes_of(data: Any) -> list[int]:
    """Return the sizes of a tensor as integers; the caller ensures that none is known only at run time."""
    return [int(size) for size in shape_of(data)]


def number_of(value: Any) -> float:
    """Return the value of a number, which may be an expression that tracing computed."""
    if isinstance(value, (int, float)):
        return value
    return float(load_tvm().relay.frontend.common.infer_value(value, {}).numpy())


def dtype_of(data: Any) -> str:
    """Return the dtype of a tensor's elements."""
    return str(load_tvm().relay.frontend.common.infer_type(data).checked_type.dtype)


def name_of_dtype(number: int) -> str:
    """Return the name of the dtype that torch represents by this number."""
    _convert_dtype_value = load_tvm().relay.frontend.pytorch._convert_dtype_value
    return str(_convert_dtype_value(number))


@functools.cache
def tvm_converters() -> Any:
    """Return an object whose methods are TVM's own converters of torch's operators."""
    return _converter_class()(_prelude(), "float32")


@contextlib.contextmanager
def quick_converters() -> Iterator[None]:
    """Make TVM's torch importer faster inside the block: it copies its prelude of 240 functions instead of building it
    for each model, and infers the types of the prelude only if another type depends on them."""
    pytorch = load_tvm().relay.frontend.pytorch
    prelude = replaced(pytorch, "Prelude", _copied_prelude)
    with prelude, replaced(pytorch, "PyTorchOpConverter", _converter_class()):
        yield


@functools.cache
def _prelude() -> Any:
    tvm = load_tvm()
    return tvm.relay.prelude.Prelude(tvm.IRModule())


def _copied_prelude(module: Any) -> Any:
    """Return the result of `Prelude(module)` by copying its definitions into a module."""
    made = copy.copy(_prelude())
    made.mod = module
    module.update(_prelude().mod)
    return made


@functools.cache
def _converter_class() -> Any:
    tvm = load_tvm()
    error = tvm.TVMError

    class Converters(tvm.relay.frontend.pytorch.PyTorchOpConverter):  # type: ignore[name-defined]
        def infer_type_with_prelude(self, val: Any) -> Any:
            try:
                return self.infer_type(val)
            except error:
                return super().infer_type_with_prelude(val)

    return Converters
