"""Converts a model to another precision: float16 by Relay's mixed-precision pass, int8 by Relay's quantizer."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from op_profiler.compilers.relay.lower import quiet
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.compilers.tvm_errors import last_line
from op_profiler.errors import ModelError

if TYPE_CHECKING:
    from op_profiler.compilers.imported_model import ImportedModel
    from op_profiler.compilers.tvm_types import Call, IRModule, Node, Target


def in_precision(model: ImportedModel, precision: str, inputs: Mapping[str, np.ndarray], host: Target) -> ImportedModel:
    """Return the model in another precision; the specs of its inputs stay the same.

    Args:
        precision: ``float32``, ``float16`` or ``int8``.
        inputs: inputs with which int8 is calibrated.
        host: target of this machine's processor, on which int8 is calibrated, wherever the model will run.

    Raises:
        ModelError: Relay cannot convert it.
    """
    if precision == "float32":
        return model
    tvm = load_tvm()
    try:
        module = _half(model) if precision == "float16" else _quantized(model, inputs, host)
    except (tvm.TVMError, ValueError, TypeError, AttributeError, KeyError, NotImplementedError) as error:
        raise ModelError(f"{model.name} cannot be converted to {precision}: {last_line(error)}") from error
    note = {
        "float16": "float16: Relay's mixed-precision pass; ops that lose too much stay in float32",
        "int8": "int8: Relay's quantizer, scales by Kullback-Leibler divergence on the inputs of this run",
    }[precision]
    return dataclasses.replace(model, mod=module, params={}, notes=(*model.notes, note))


def _bound(model: ImportedModel) -> IRModule:
    """Return the module with its parameters as constants, so that the compiler computes what depends on them."""
    relay = load_tvm().relay
    module = model.mod
    if model.params:
        main = relay.build_module.bind_params_by_name(module["main"], model.params)
        module = load_tvm().IRModule.from_expr(main)
    return relay.transform.InferType()(module)


def _half(model: ImportedModel) -> IRModule:
    relay = load_tvm().relay
    return relay.transform.FoldConstant()(relay.transform.ToMixedPrecision("float16")(_bound(model)))


def _quantized(model: ImportedModel, inputs: Mapping[str, np.ndarray], host: Target) -> IRModule:
    if not hasattr(np, "math"):  # gone from NumPy 2; Relay's quantizer takes it from there
        np.math = math  # type: ignore[attr-defined]
    tvm = load_tvm()
    quantize = tvm.relay.quantize
    dataset = [{name: tvm.nd.array(value) for name, value in inputs.items()}]
    usual = quantize.qconfig(calibrate_mode="kl_divergence", weight_scale="max", skip_dense_layer=False)
    with host, usual, quiet():  # it runs parts of the model to calibrate it, and compiles them for that
        prepared = quantize.prerequisite_optimize(_bound(model))
        with quantize.quantize_context():  # its state is global: without a reset, it is that of an earlier model
            annotated = tvm.transform.Sequential(
                [quantize.partition(), quantize.annotate(), tvm.relay.transform.InferType()], opt_level=3
            )(prepared)
        if "simulated_quantize" not in str(annotated):
            raise ModelError(
                f"{model.name} has nothing that Relay's quantizer converts to int8: it takes convolutions but the "
                "first, and dense layers"
            )
        return _without_units(quantize.quantize(_bound(model), dataset=dataset))


def _without_units(module: IRModule) -> IRModule:
    """Remove the width from dense layers: TVM pads the weights of int8 layers but does not change the stated width."""
    tvm = load_tvm()
    relay = tvm.relay

    class Drop(relay.ExprMutator):  # type: ignore[name-defined]
        def visit_call(self, call: Call) -> Node:
            new = super().visit_call(call)
            if getattr(new.op, "name", "") != "nn.dense":
                return new
            return relay.nn.dense(*new.args, units=None, out_dtype=new.attrs.out_dtype)

    return relay.transform.InferType()(tvm.IRModule.from_expr(Drop().visit(module["main"])))
