"""Sums of four 8-bit products, exact on every x86 processor, as tensor intrinsics of TVM's schedules.

TVM's own intrinsics crash under LLVM 22 on processors with VNNI (LLVM changed the types of that instruction). On other
processors, these intrinsics saturate: vpmaddubsw adds two products in 16 bits, which 255 x 127 x 2 exceeds, so a
convolution of full-range values is wrong nearly everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from op_profiler.compilers.tvm_build import load_tvm

_Add = Callable[[int, Any, Any, Any], Any]
"""Returns sums with products added, given the number of lanes, 32-bit sums, and the bytes of data and weights."""

_NAMES = ("dot_16x1x16_uint8_int8_int32_cascadelake", "dot_16x1x16_uint8_int8_int32_skylake")
_PAIR_SUMS = {4: "llvm.x86.sse2.pmadd.wd", 8: "llvm.x86.avx2.pmadd.wd", 16: "llvm.x86.avx512.pmaddw.d.512"}
"""Pairwise sums of 16-bit values, by the number of 32-bit lanes of a vector."""


def use_exact_products(topi: ModuleType) -> None:
    """Make TVM's schedules for x86 use exact dot-product intrinsics instead of TVM's own."""
    with_vnni, without = _NAMES
    setattr(topi.x86.tensor_intrin, with_vnni, lambda: _dot_product(_by_vnni))
    setattr(topi.x86.tensor_intrin, without, lambda: _dot_product(_by_pairs))


def _dot_product(add: _Add) -> Any:
    """Return the tensor intrinsic of data (4 unsigned bytes) times weights (lanes of 4 signed bytes)."""
    tvm = load_tvm()
    te, tir = tvm.te, tvm.tir
    lanes = tvm.target.x86.get_simd_32bit_lanes()
    data = te.placeholder((4,), dtype="uint8", name="data")
    kernel = te.placeholder((lanes, 4), dtype="int8", name="kernel")
    k = te.reduce_axis((0, 4), name="k")
    made = te.compute(
        (lanes,), lambda i: te.sum(data[k].astype("int32") * kernel[i, k].astype("int32"), axis=k), name="C"
    )
    buffers = {
        one: tir.decl_buffer(one.shape, one.dtype, one.name, offset_factor=1, strides=strides)
        for one, strides in ((data, [1]), (kernel, [te.var("ldw"), 1]))
    }

    def statements(ins: Any, outs: Any) -> tuple[Any, Any, Any]:
        sums, none = f"int32x{lanes}", tir.const(0, f"int32x{lanes}")
        four = tir.call_intrin("int32", "tir.reinterpret", ins[0].vload([0], "uint8x4"))
        both = four.astype(sums), ins[1].vload([0, 0], f"int8x{4 * lanes}")
        before = outs[0].vload([0], sums)
        whole, reset, update = add(lanes, none, *both), none, add(lanes, before, *both)
        return tuple(_statement(outs[0].vstore(0, value)) for value in (whole, reset, update))

    return te.decl_tensor_intrin(made.op, statements, binds=buffers, default_buffer_params={"offset_factor": 1})


def _statement(one: Any) -> Any:
    builder = load_tvm().tir.ir_builder.create()
    builder.emit(one)
    return builder.get()


def _by_vnni(lanes: int, sums: Any, data: Any, weights: Any) -> Any:
    """Add products by vpdpbusd, whose arguments are bytes from LLVM 22 on and 32-bit words before."""
    tvm = load_tvm()
    kind = f"int8x{4 * lanes}" if tvm.target.codegen.llvm_version_major() >= 22 else sums.dtype
    bytes_ = (tvm.tir.call_intrin(kind, "tir.reinterpret", one) for one in (data, weights))
    name = f"llvm.x86.avx512.vpdpbusd.{32 * lanes}"
    return tvm.tir.call_llvm_pure_intrin(sums.dtype, name, tvm.tir.const(3, "uint32"), sums, *bytes_)


def _by_pairs(lanes: int, sums: Any, data: Any, weights: Any) -> Any:
    """Add products by vpmaddwd of the even bytes and of the odd bytes, each widened to 16 bits in place."""
    tir = load_tvm().tir
    pairs = f"int16x{2 * lanes}"

    def widened(bytes_: Any, kind: str) -> Any:
        """Return the even and the odd bytes, by right shifts that fill with the sign of the kind."""
        both = tir.call_intrin(kind, "tir.reinterpret", bytes_)
        eight = tir.const(8, kind)
        return [tir.call_intrin(pairs, "tir.reinterpret", one >> eight) for one in (both << eight, both)]

    for one, other in zip(widened(data, f"u{pairs}"), widened(weights, pairs), strict=True):
        sums = sums + tir.call_llvm_pure_intrin(sums.dtype, _PAIR_SUMS[lanes], tir.const(2, "uint32"), one, other)
    return sums
