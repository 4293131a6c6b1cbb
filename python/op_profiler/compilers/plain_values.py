"""Converts values of TVM's object system to plain ones."""

from __future__ import annotations

from typing import Any

from op_profiler.compilers.tvm_build import load_tvm


def plain(value: Any) -> Any:
    """Return an attribute of TVM's object system as a plain JSON value."""
    tvm = load_tvm()
    if value is None or isinstance(value, (bool, int, float, str)):
        return str(value) if isinstance(value, str) else value
    if isinstance(value, tvm.tir.IntImm):
        return bool(value.value) if str(value.dtype) == "bool" else int(value.value)
    if isinstance(value, tvm.tir.FloatImm):
        return float(value.value)
    if isinstance(value, tvm.ir.Array):
        return [plain(item) for item in value]
    return str(value)
