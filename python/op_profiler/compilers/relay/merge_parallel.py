"""Parallel type ``full``: operators that read the same input become one kernel, before the model is built."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from op_profiler.compilers.relay.layers import Layers
from op_profiler.compilers.tvm_build import load_tvm

if TYPE_CHECKING:
    from op_profiler.compilers.imported_model import ImportedModel
    from op_profiler.compilers.tvm_types import Call, IRModule, Node

KINDS = ("conv2d", "dense", "batch_matmul")


def merged(model: ImportedModel) -> tuple[ImportedModel, tuple[str, ...]]:
    """Return the model with its parallel operators merged by Relay's CombineParallel passes, and the merged kinds.

    The results may differ from the model's in the last digits, because a wider kernel sums in another order.
    """
    tvm = load_tvm()
    transform = tvm.relay.transform
    module = model.mod
    main = tvm.relay.build_module.bind_params_by_name(module["main"], model.params)
    module = transform.InferType()(tvm.IRModule.from_expr(main))  # weights are concatenated while compiling
    layers = Layers()
    module = layers.marked(module)
    # Frontends reshape the same input anew for each of its readers: then it is not the same input any more.
    module = transform.InferType()(transform.EliminateCommonSubexpr()(module))
    passes = (
        transform.CombineParallelConv2D(min_num_branches=2),
        transform.CombineParallelDense(min_num_branches=2, to_batch=False),
        transform.CombineParallelBatchMatmul(min_num_branches=2),
    )
    kinds = []
    for kind, combine in zip(KINDS, passes, strict=True):
        with tvm.transform.PassContext(opt_level=4, instruments=[layers.carrier()]):
            after = transform.InferType()(_with_ends(transform.InferType()(combine(module))))
        if not tvm.ir.structural_equal(module, after):
            kinds.append(kind)
        module = after
    content = f"{model.content} merged {' '.join(kinds)}"
    return dataclasses.replace(model, mod=layers.named(module), params={}, content=content), tuple(kinds)


def _with_ends(module: IRModule) -> IRModule:
    """Return the module with slices by begin and end instead of begin and size, which Relay's passes create.

    When TVM puts channels into blocks, it divides a size as if it were an end (`StridedSliceInferCorrectLayout`), and
    the following branches no longer fit.
    """
    tvm = load_tvm()
    relay = tvm.relay

    class SliceRewriter(relay.ExprMutator):  # type: ignore[name-defined]  # TVM has no types
        def visit_call(self, call: Call) -> Node:
            made = super().visit_call(call)
            if getattr(call.op, "name", "") != "strided_slice" or call.attrs.slice_mode != "size":
                return made
            shape = [int(d) for d in call.args[0].checked_type.shape]
            begin = [int(b) for b in call.attrs.begin]
            sizes = [int(s) for s in call.attrs.end]
            ends = [b + s if s >= 0 else whole for b, s, whole in zip(begin, sizes, shape, strict=False)]
            cut = [axis for axis, (b, e) in enumerate(zip(begin, ends, strict=True)) if (b, e) != (0, shape[axis])]
            slice_ = relay.strided_slice(made.args[0], [begin[a] for a in cut], [ends[a] for a in cut], axes=cut)
            return relay.expr.CallWithFields(slice_, None, None, None, None, None, made.span)

    return tvm.IRModule.from_expr(SliceRewriter().visit(module["main"]))
