"""The default pipeline: from a Relax module to fused functions, scheduled kernels and an executable."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

from op_profiler.compilers.relax import cuda_libraries, gpu, rules
from op_profiler.compilers.relax.layers import KernelLayers, layers_of_kernels
from op_profiler.compilers.relax.legalize import legalize_ops
from op_profiler.compilers.relax.prepare import prepared
from op_profiler.compilers.relax.vectors import vectors_of
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.compilers.tvm_types import IRModule, Target
from op_profiler.schedules.schedule import Schedule

Recorded = Callable[[Any], "tuple[Any, Schedule] | None"]


@dataclasses.dataclass(frozen=True)
class LoweredModule:
    """A Relax module at two stages of lowering.

    Attributes:
        fused: TIR functions with their ops, grouped into one Relax function per kernel.
        kernels: one TIR function per kernel, called from ``main`` in order.
        layers: layers of the user's model for each call in ``main`` of `fused`.
    """

    fused: IRModule
    kernels: IRModule
    layers: KernelLayers = dataclasses.field(default_factory=dict)


def lower(module: IRModule, target: Target) -> LoweredModule:
    """Lower and fuse a module without scheduling it.

    Args:
        module: ``tvm.IRModule`` of Relax with its weights as constants.
        target: ``tvm.target.Target``.
    """
    tvm = load_tvm()
    transform, backend = tvm.relax.transform, tvm.relax.backend
    with target:
        unfused = tvm.transform.Sequential(
            [
                backend.DispatchSampling(),
                backend.DispatchSortScan(),
                legalize_ops(),
                transform.AnnotateTIROpPattern(),
                transform.FoldConstant(),
            ]
        )(prepared(module, target))
        fused = tvm.transform.Sequential([transform.FuseOps(), transform.DeadCodeElimination()])(unfused)
        kernels = tvm.transform.Sequential(
            [transform.FuseTIR(), transform.DeadCodeElimination(), transform.RewriteDataflowReshape()]
        )(fused)
    return LoweredModule(fused, kernels, layers_of_kernels(module, unfused, fused))


def scheduled(
    kernels: IRModule, target: Target, recorded: Recorded = lambda function: None
) -> tuple[Any, dict[str, Schedule]]:
    """Schedule every kernel by its record, otherwise by default; return the module, and the schedules by kernel name.

    Args:
        recorded: called with each function; returns the function scheduled by its record, and the schedule; None if the
            function has no record.
    """
    tvm = load_tvm()
    schedules = {}
    by_default = _by_default(target)
    module = tvm.IRModule(dict(kernels.functions_items()), attrs=kernels.attrs)
    for name, function in kernels.functions_items():
        if not isinstance(function, tvm.tirx.PrimFunc) or "tirx.is_scheduled" in (function.attrs or {}):
            continue
        made, schedules[str(name.name_hint)] = recorded(function) or by_default(function)
        module.update_func(name, made.with_attrs(function.attrs) if function.attrs else made)
    return module, schedules


def _by_default(target: Target) -> Callable[[Any], tuple[Any, Schedule]]:
    if gpu.is_gpu(target):
        return functools.partial(gpu.schedule_function, target=target)
    return functools.partial(rules.schedule_function, vectors=vectors_of(target))


def finish(kernels: IRModule, target: Target) -> Any:
    """Plan memory, lower calls and compile the kernels; return the ``relax.VMExecutable``."""
    tvm = load_tvm()
    cpu_generic, cuda = tvm.relax.backend.cpu_generic, tvm.relax.backend.cuda
    pipeline = (cuda if gpu.is_gpu(target) else cpu_generic).pipeline
    passes = [*pipeline.dataflow_lower_passes(target), *pipeline.finalize_passes(target)]
    with target:
        planned = tvm.transform.Sequential(passes)(kernels)
    return compiled(planned, target)


def compiled(planned: IRModule, target: Target) -> Any:
    """Return the ``relax.VMExecutable`` of a module with planned memory and lowered calls."""
    tvm = load_tvm()
    if gpu.is_gpu(target):
        cuda_libraries.prepare_compiling()
    with target:  # the function that calls NVIDIA's compiler reads the current target
        executable = tvm.relax.build(planned, target, relax_pipeline=None)
        if gpu.is_gpu(target):
            cuda_libraries.compile_left(executable)
    return executable
