"""Schedules of the reference kernels (sums of products) in TIR."""

from __future__ import annotations

from op_profiler.compilers.relax.rules.blocks import vectorize_and_unroll
from op_profiler.compilers.sum_of_products import SumOfProducts
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.compilers.tvm_types import PackedFunction, Target


def build_sums(sums: SumOfProducts, target: Target) -> PackedFunction:
    """See `RuntimeContract.build_sums`."""
    tvm = load_tvm()
    s_tir, te = tvm.s_tir, tvm.te
    schedule = s_tir.Schedule(te.create_prim_func(sums.tensors(te)))
    block = schedule.get_sblock(sums.name)
    first, *others = schedule.get_loops(block)
    tile, summed = others[: len(sums.output) - 1], others[len(sums.output) - 1 :]
    copied = schedule.cache_write(block, 0, "local") if sums.in_registers else None
    schedule.reorder(first, *summed, *tile)
    if copied is not None:
        schedule.reverse_compute_at(copied, first)
        vectorize_and_unroll(schedule, schedule.get_loops(copied)[1:])
    schedule.parallel(first)
    vectorize_and_unroll(schedule, tile)
    init = schedule.decompose_reduction(block, summed[0])
    vectorize_and_unroll(schedule, schedule.get_loops(init)[-len(tile) :])
    function: PackedFunction = tvm.tirx.build(schedule.mod, target=target)["main"]
    return function
