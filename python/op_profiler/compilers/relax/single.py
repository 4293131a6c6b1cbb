"""A model with a single operator."""

from __future__ import annotations

from typing import Any

from op_profiler.compilers.compiled_model import Occurrence
from op_profiler.compilers.imported_model import ImportedModel, InputSpec
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.operators.operator import TensorSpec


def operator_model(occurrence: Occurrence) -> ImportedModel:
    """Return a model that calls the operator's unscheduled kernel, with its weights among the inputs."""
    tvm = load_tvm()
    relax = tvm.relax
    builder = relax.BlockBuilder()
    operator = occurrence.operator
    read, constants = iter(operator.inputs), iter(operator.params)
    specs = [next(constants) if constant else next(read) for constant in occurrence.constant]
    variables = [relax.Var(f"x{index}", _type(spec)) for index, spec in enumerate(specs)]
    made = [_type(spec) for spec in operator.outputs]
    with builder.function("main", variables):
        with builder.dataflow():
            kernel = builder.add_func(occurrence.function, occurrence.label)
            call = relax.call_tir(kernel, variables, made[0] if len(made) == 1 else made)
            output = builder.emit_output(builder.emit(call))
        builder.emit_func_output(output)
    inputs = tuple(InputSpec(f"x{index}", spec.shape, spec.dtype) for index, spec in enumerate(specs))
    return ImportedModel(operator.name, "operator", builder.get(), {}, inputs, pipeline=occurrence.pipeline)


def _type(spec: TensorSpec) -> Any:
    return load_tvm().relax.TensorType(spec.shape, spec.dtype)
