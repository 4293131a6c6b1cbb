"""Parallel type ``full``: operators that read the same input become one kernel, before the model is built."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from op_profiler.compiler import load_tvm

if TYPE_CHECKING:
    from op_profiler.frontends._base import RelayModel

KINDS = ("conv2d", "dense", "batch_matmul")


def merged(model: RelayModel) -> tuple[RelayModel, tuple[str, ...]]:
    """The model with its parallel operators merged by Relay's CombineParallel passes, and the kinds that were merged.

    Its results may differ from the model's in the last digits: a wider kernel adds in another order.
    """
    tvm = load_tvm()
    transform = tvm.relay.transform
    module = model.mod
    main = tvm.relay.build_module.bind_params_by_name(module["main"], model.params)
    module = transform.InferType()(tvm.IRModule.from_expr(main))  # weights are concatenated while compiling
    passes = (
        transform.CombineParallelConv2D(min_num_branches=2),
        transform.CombineParallelDense(min_num_branches=2, to_batch=False),
        transform.CombineParallelBatchMatmul(min_num_branches=2),
    )
    kinds = []
    for kind, combine in zip(KINDS, passes, strict=True):
        with tvm.transform.PassContext(opt_level=4):
            after = transform.InferType()(combine(module))
        if not tvm.ir.structural_equal(module, after):
            kinds.append(kind)
        module = after
    return dataclasses.replace(model, mod=module, params={}), tuple(kinds)
