"""Describes operators of a fused module with Relay's ops and attributes, so that both compilers have the same
operators."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import Any

from op_profiler.compilers.compiled_model import Occurrence
from op_profiler.compilers.relax import batched
from op_profiler.compilers.relax.legalize import op_of
from op_profiler.compilers.relax.pipeline import LoweredModule
from op_profiler.compilers.relax.rewrite import bindings_of
from op_profiler.compilers.successors import Names, united
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.compilers.tvm_types import IRModule
from op_profiler.operators.describe import Description, constant
from op_profiler.operators.operator import TensorSpec

Op = tuple[str, dict[str, Any]]

_RENAMED = {
    "matmul": "nn.matmul",
    "permute_dims": "transpose",
    "concat": "concatenate",
    "astype": "cast",
    "tir.tanh": "tanh",
    "nn.leakyrelu": "nn.leaky_relu",
}
_REDUCTIONS = ("sum", "mean", "max", "min", "prod")
_NUMBERED = re.compile(r"\d+$")


def occurrences_of(lowered: LoweredModule, attention: Sequence[Occurrence] = ()) -> list[Occurrence]:
    """Return every kernel call in ``main``, in order, including views of tensors (reshapes).

    Args:
        attention: the kernels that one call of the builtin of a decoder's KV cache runs, in order.
    """
    tvm = load_tvm()
    relax, call_tir, builtin = tvm.relax, tvm.ir.Op.get("relax.call_tir"), tvm.ir.Op.get("relax.call_dps_packed")
    kernels = {str(name.name_hint): function for name, function in lowered.kernels.functions_items()}
    found: list[Occurrence] = []
    for place, binding in enumerate(bindings_of(lowered.fused["main"])):
        call = binding.value
        if not isinstance(call, relax.Call):
            continue
        layers = lowered.layers.get(place, ())
        if call.op == builtin:
            found += [dataclasses.replace(one, locations=united(layers)) for one in attention]
            continue
        if call.op == call_tir:
            variable, arguments = call.args[0], list(call.args[1].fields)
        elif isinstance(call.op, tvm.ir.GlobalVar):
            variable, arguments = call.op, list(call.args)
        else:
            continue
        label = str(variable.name_hint)
        if label not in kernels:  # another pipeline has left it out since
            continue
        constant = tuple(isinstance(argument, tvm.ir.GenericConst) for argument in arguments)
        description = _description(lowered.fused, lowered.fused[variable], label, call, constant)
        found.append(_occurrence(description, label, kernels[label], call, layers))
    return found


def _occurrence(description: Description, label: str, kernel: Any, call: Any, layers: Sequence[Names]) -> Occurrence:
    anchor = description.anchor()
    operator, signature = description.operator(tensors_of(call.ty)), description.anchor_signature()
    named = united([*layers[anchor : anchor + 1], *layers])
    return Occurrence(operator, label, kernel, description.constant, signature, named)


def _description(module: IRModule, function: Any, label: str, call: Any, constant: tuple[bool, ...]) -> Description:
    """Return the description of a Relax function that groups calls of TIR, or of a single TIR function."""
    tvm = load_tvm()
    if isinstance(function, tvm.tirx.PrimFunc):
        description = Description([tensors_of(argument.ty) for argument in call.args[1].fields], constant)
        _add_op(description, function, label, call, list(description.names))
    else:
        description = Description([tensors_of(parameter.ty) for parameter in function.params], constant)
        names = dict(zip(function.params, description.names))
        for binding in bindings_of(function):
            names[binding.var] = _described(module, binding, names, description)
    return description


def _described(module: IRModule, binding: Any, names: dict[Any, str], description: Description) -> str:
    tvm = load_tvm()
    value = binding.value
    if isinstance(value, tvm.relax.TupleGetItem):
        return f"{names[value.tuple_value]}.{value.index}"
    if isinstance(value, tvm.relax.Tuple):
        return f"({','.join(names[field] for field in value.fields)})"
    if not isinstance(value, tvm.relax.Call) or value.op != tvm.ir.Op.get("relax.call_tir"):
        return names.get(value, type(value).__name__)
    arguments = [names.get(one) or ",".join(map(constant, tensors_of(one.ty))) for one in value.args[1].fields]
    return _add_op(description, module[value.args[0]], str(value.args[0].name_hint), value, arguments)


def _add_op(description: Description, function: Any, label: str, call: Any, arguments: list[str]) -> str:
    """Add the op of a TIR function to the description; numbers inside the function become arguments of the op, as under
    Relay."""
    inputs, outputs = [t for argument in call.args[1].fields for t in tensors_of(argument.ty)], tensors_of(call.ty)
    noted = op_of(function)
    if noted is None:
        return description.op(_NUMBERED.sub("", label), {}, arguments, inputs, outputs)
    op, attrs, inside = noted
    name, attrs = _op(op, attrs, inputs, outputs)
    if name == "nn.pad":  # in Relax an attribute
        inside = [(1, inputs[0].dtype, None)]
    for place, dtype, value in inside:
        number = TensorSpec((), dtype)
        arguments.insert(place, constant(number, value))
        inputs.insert(place, number)
    return description.op(name, attrs, arguments, inputs, outputs)


def tensors_of(ty: Any) -> tuple[TensorSpec, ...]:
    """Return the tensors of a type, tuples flattened; a dynamic dimension becomes -1."""
    if hasattr(ty, "fields"):
        return tuple(t for field in ty.fields for t in tensors_of(field))
    if getattr(ty, "shape", None) is None:
        return ()
    return (TensorSpec(tuple(int(getattr(d, "value", -1)) for d in ty.shape), str(ty.dtype)),)


def _op(name: str, attrs: dict[str, Any], inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> Op:
    """Return an op with the name and the attributes that Relay gives it."""
    if name.startswith("nn.conv"):
        return _convolution(name, attrs, inputs, outputs)
    if name == "nn.pad":
        widths, mode = attrs["pad_width"], attrs["pad_mode"]
        pairs = [list(pair) for pair in zip(widths[::2], widths[1::2])]
        return name, {"pad_mode": "edge" if mode == "replicate" else mode, "pad_width": pairs}
    if name.startswith(("nn.max_pool", "nn.avg_pool", "nn.adaptive_avg_pool")):
        layouts = {"out_layout"} if attrs.get("out_layout") == attrs.get("layout") else set()
        attrs = {key: int(v) if isinstance(v, bool) else v for key, v in attrs.items() if key not in layouts}
        if "avg" not in name:
            attrs.pop("count_include_pad", None)
        return name, attrs
    if name == "mean" and [int(a) for a in attrs.get("axis", [])] == [2, 3] and attrs.get("keepdims"):
        lanes = inputs[0].shape[4:]
        return "nn.global_avg_pool2d", {"layout": f"NCHW{lanes[0]}c" if lanes else "NCHW"}
    if name.endswith("softmax") and attrs.get("axis") == len(inputs[0].shape) - 1:
        return name, {"axis": -1}
    if name in _REDUCTIONS:
        made = {"exclude": 0} | {key: int(v) if isinstance(v, bool) else v for key, v in attrs.items()}
        return name, made | ({"axis": [-1]} if made.get("axis") == [len(inputs[0].shape) - 1] else {})
    if name == "matmul" and len(inputs[0].shape) == len(inputs[1].shape) == 3:
        return batched.NAME, batched.attributes(left=False, right=False)
    if name == "strided_slice":
        return name, {key: v for key, v in attrs.items() if key != "assume_inbound"} | {"slice_mode": "end"}
    if name == "layout_transform":
        return name, _blocks(inputs[0], outputs[0]) or attrs
    return _RENAMED.get(name, name), attrs


def _convolution(name: str, attrs: dict[str, Any], inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> Op:
    if "channels" in attrs:  # one that this package packed
        return name, attrs
    data, kernel = (str(attrs[key]) for key in ("data_layout", "kernel_layout"))
    shape, out = inputs[1].shape, outputs[0].shape
    blocked = len(shape) == len("OIHWio")
    made = {key: v for key, v in attrs.items() if key not in ("out_layout", "out_dtype")}
    made["channels"] = out[1] * out[4] if blocked else out[data.index("C")]
    made["kernel_size"] = [shape[kernel.index(axis)] for axis in "DHW" if axis in kernel]
    if not blocked:
        return name, made
    depthwise = attrs["groups"] > 1 and shape[1] == 1 and shape[4] == 1
    name = "nn.contrib_depthwise_conv2d_NCHWc" if depthwise else "nn.contrib_conv2d_NCHWc"
    return name, made | {"out_layout": f"NCHW{out[4]}c"}


def _blocks(source: TensorSpec, made: TensorSpec) -> dict[str, Any] | None:
    """Return Relay's layout attributes of a conversion into or out of blocks of channels; None for other shapes."""
    if len(source.shape) == 4 and len(made.shape) == 5:
        return {"src_layout": "NCHW", "dst_layout": f"NCHW{made.shape[4]}c"}
    if len(source.shape) == 5 and len(made.shape) == 4:
        return {"src_layout": f"NCHW{source.shape[4]}c", "dst_layout": "NCHW"}
    return None
