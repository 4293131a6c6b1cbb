"""Schedules of the reference kernels (sums of products) as tensor expressions."""

from __future__ import annotations

from op_profiler.compilers.sum_of_products import SumOfProducts
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.compilers.tvm_types import PackedFunction, RuntimeModule, Target


def build_sums(sums: SumOfProducts, target: Target) -> PackedFunction:
    """See `RuntimeContract.build_sums`."""
    tvm = load_tvm()
    tensors = sums.tensors(tvm.te)
    output = tensors[-1]
    schedule = tvm.te.create_schedule(output.op)
    computed = [output, *([schedule.cache_write(output, "local")] if sums.in_registers else [])]
    first = output.op.axis[0]
    schedule[output].parallel(first)
    if sums.in_registers:
        schedule[computed[-1]].compute_at(schedule[output], first)
    outer, *tile = computed[-1].op.axis
    schedule[computed[-1]].reorder(outer, *computed[-1].op.reduce_axis, *tile)
    for tensor in computed:
        _, *others, last = tensor.op.axis
        for axis in others:
            schedule[tensor].unroll(axis)
        schedule[tensor].vectorize(last)
    library: RuntimeModule = tvm.build(schedule, tensors, target=target)
    return library.entry_func
