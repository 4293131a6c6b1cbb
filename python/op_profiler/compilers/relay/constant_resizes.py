"""Computes resizes of weights before the compiler processes them.

A vision transformer resizes its table of positions to the image. During the build, TVM computes values that
depend on weights alone, with kernels that it compiles under its own settings. These settings enable a pass that must be
disabled (`op_profiler.compilers.relay.lower` names the pass and the reason), so the model could not be built.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.compilers.tvm_types import DeviceArray, IRModule, Node

_RESIZES = ("image.resize1d", "image.resize2d", "image.resize3d")


def with_computed_resizes(module: IRModule, params: Mapping[str, DeviceArray], config: Mapping[str, Any]) -> IRModule:
    """Return the module with constants in place of resizes that depend only on `params`.

    Args:
        config: configuration of the kernels that compute the resizes on this machine's processor.
    """
    tvm = load_tvm()
    graph_executor = tvm.contrib.graph_executor
    relay, pattern = tvm.relay, tvm.relay.dataflow_pattern

    class Computed(pattern.DFPatternCallback):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__()
            first, *others = (pattern.is_op(name)(pattern.wildcard()) for name in _RESIZES)
            self.pattern = first
            for other in others:
                self.pattern |= other

        def callback(self, _pre: Node, call: Node, _found: Mapping[Any, Any]) -> Node:
            needed = relay.analysis.free_vars(call)
            if any(variable.name_hint not in params for variable in needed):
                return call
            alone = tvm.IRModule.from_expr(relay.Function(needed, call))
            with tvm.transform.PassContext(opt_level=1, config=dict(config)):
                library = relay.build(alone, target="llvm", params={v.name_hint: params[v.name_hint] for v in needed})
            run = graph_executor.GraphModule(library["default"](tvm.cpu()))
            run.run()
            return relay.const(run.get_output(0))

    copy = tvm.IRModule(module.functions, module.type_definitions)
    copy["main"] = pattern.rewrite(Computed(), module["main"])
    return relay.transform.InferType()(copy)
