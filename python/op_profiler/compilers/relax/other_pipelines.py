"""Runs TVM's own pipeline, or the user's, and records the lowered module on the way."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from op_profiler.compilers.pipelines import STOCK, load_function
from op_profiler.compilers.relax.layers import layers_of_kernels
from op_profiler.compilers.relax.legalize import note_ops
from op_profiler.compilers.relax.pipeline import LoweredModule, compiled
from op_profiler.compilers.relax.rewrite import bindings_of
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.errors import ModelError

if TYPE_CHECKING:
    from op_profiler.compilers.tvm_types import IRModule, Target

_UNFUSED, _FUSED, _KERNELS = "FuseOps", "FuseTIR", "CallTIRRewrite"
"""Passes before which the module is recorded: when it is lowered, when its functions are grouped, and when its kernels
are final."""


@dataclasses.dataclass(frozen=True)
class PipelineRun:
    """Result of running a pipeline on a module.

    Attributes:
        lowered: the recorded modules.
        executable: ``relax.VMExecutable``; None if kernels were not requested.
    """

    lowered: LoweredModule
    executable: Any


def run_pipeline(name: str, module: IRModule, target: Target, *, build: bool) -> PipelineRun:
    """Lower a Relax module to kernels with TVM's pipeline or the user's.

    Args:
        name: `STOCK` for TVM's pipeline, or ``MODULE:FUNCTION`` for the user's.
        build: whether to compile the kernels too.

    Raises:
        ModelError: the pipeline does not run the pass ``CallTIRRewrite``, before which the kernels are recorded.
    """
    tvm = load_tvm()
    note_ops()
    function = tvm.relax.get_default_pipeline if name == STOCK else load_function(name)
    seen: dict[str, Any] = {}

    @tvm.ir.instrument.pass_instrument
    class Watch:
        def run_before_pass(self, module: Any, info: Any) -> None:
            if str(info.name) in (_UNFUSED, _FUSED, _KERNELS):
                seen.setdefault(str(info.name), module)

    with target, tvm.transform.PassContext(instruments=[Watch()]):
        made = function(target)(module)
    if _KERNELS not in seen:
        raise ModelError(f"--pipeline {name} does not run the pass {_KERNELS}; its kernels are not known")
    executable = compiled(made, target) if build else None
    kernels = seen[_KERNELS]
    fused = seen.get(_FUSED, kernels)
    if not _same_calls(fused, kernels):
        return PipelineRun(LoweredModule(kernels, kernels), executable)
    layers = layers_of_kernels(module, seen.get(_UNFUSED, fused), fused)
    return PipelineRun(LoweredModule(fused, kernels, layers), executable)


def _same_calls(fused: Any, kernels: Any) -> bool:
    """Return whether the calls in ``main`` still have the names that fusion gave them."""
    names = {str(name.name_hint) for name, _ in kernels.functions_items()}
    called = [getattr(binding.value, "op", None) for binding in bindings_of(fused["main"])]
    return {str(one.name_hint) for one in called if isinstance(one, load_tvm().ir.GlobalVar)} <= names
