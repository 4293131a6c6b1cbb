"""A built step of a decoder: the model and the kernels of its attention."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from op_profiler.compilers.bound_kernel import BoundKernel
from op_profiler.compilers.compiled_model import BuiltModel, Occurrence
from op_profiler.compilers.relax.calls import FfiCall
from op_profiler.compilers.relax.decoder import attention
from op_profiler.compilers.relax.decoder.cache import make_cache
from op_profiler.compilers.relax.decoder.model import STEP
from op_profiler.compilers.relax.decoder.step import DecoderStep
from op_profiler.compilers.relax.kernels import RelaxKernels, kernels_of_run
from op_profiler.compilers.relax.library import VmLibrary
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.compilers.tvm_types import IRModule, RuntimeDevice, Target
from op_profiler.errors import MeasureError
from op_profiler.schedules.schedule import Schedule

_OF_TVM = Schedule("tvm.relax")
"""Template of kernels that TVM provides already scheduled."""


@dataclasses.dataclass(frozen=True)
class DecoderLibrary(VmLibrary):
    """The library of a decoder step.

    Attributes (beside those of `VmLibrary`):
        step: the step for which it was built.
        attention: the ``tvm.runtime.Module`` with the kernels of attention.
    """

    step: DecoderStep
    attention: Any


def with_attention(
    built: BuiltModel, step: DecoderStep, kernels: IRModule, schedules: Mapping[str, Schedule], target: Target
) -> BuiltModel:
    """Return a built decoder step to which the kernels of its attention were added.

    Args:
        built: a build whose occurrences include the calls of attention.
        kernels: scheduled kernels of attention.
        schedules: schedules of `kernels`, by symbol.
    """
    with target:
        library = load_tvm().compile(kernels, target).mod
    compiled = built.compiled
    one = compiled.library
    made = DecoderLibrary(one.executable, one.kernels, one.weights, step, library)
    of_attention = {
        call.operator.key: schedules.get(attention.symbol(call.label), _OF_TVM) for call in attention.calls(step)
    }
    compiled = dataclasses.replace(compiled, library=made, calls=(), tensors=(), outputs=())
    return dataclasses.replace(built, compiled=compiled, schedules=built.schedules | of_attention)


def load_step(
    library: DecoderLibrary,
    occurrences: tuple[Occurrence, ...],
    device: RuntimeDevice,
    inputs: Mapping[str, np.ndarray],
) -> RelaxKernels:
    """Run a step once and record every call of a kernel with its buffers, including the calls of attention kernels.

    The run that is timed as a whole uses another cache, which calls its kernels without recording.

    Args:
        occurrences: the calls that the step is expected to make, in order.
        inputs: one array per input of the model.

    Raises:
        MeasureError: the attention calls other kernels than expected.
    """
    tvm = load_tvm()
    step = library.step
    tensors = [tvm.runtime.tensor(value, device) for value in inputs.values()]
    kept: list[BoundKernel] = []

    def noting(name: str) -> Any:
        function = library.attention.get_function(attention.symbol(name), True)

        def call(*arguments: Any) -> None:
            kept.append(FfiCall(name, name, function, arguments))
            function(*arguments)

        return tvm.runtime.convert(call)

    noted = [*tensors, make_cache(step, noting)]
    timed = [*tensors, make_cache(step, lambda name: library.attention.get_function(attention.symbol(name), True))]
    loaded = kernels_of_run(library.executable, device, STEP, (noted, timed), kept)
    if [call.label for call in kept] != [occurrence.label for occurrence in occurrences]:
        raise MeasureError("the attention of this TVM calls kernels that op_profiler does not support")
    return loaded
