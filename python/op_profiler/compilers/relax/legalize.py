"""From ops of Relax to functions of TIR that remember which op they were."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any

from op_profiler.compilers.relax import convolution
from op_profiler.compilers.tvm_build import load_tvm

OP = "op_profiler_op"
"""Attribute of a function of TIR: the op and its attributes, as JSON."""

Legalize = Callable[[Any, Any], Any]


def legalize_ops() -> Any:
    """A pass: `LegalizeOps`, with blocked convolutions, and with the attribute `OP`."""
    tvm = load_tvm()
    return tvm.relax.transform.LegalizeOps({name: _noted(legalize) for name, legalize in _legalizations().items()})


@functools.cache
def _legalizations() -> dict[str, Legalize]:
    tvm = load_tvm()
    ops = [tvm.ir.Op.get(name) for name in tvm.ir.Op.list_op_names() if str(name).startswith("relax.")]
    found = {str(op.name): op.get_attr("FLegalize") for op in ops if op.has_attr("FLegalize")}
    return found | {"relax.nn.conv2d": convolution.legalize}


def _noted(legalize: Legalize) -> Legalize:
    def noted(builder: Any, call: Any) -> Any:
        tvm = load_tvm()
        made = legalize(builder, call)
        call_tir = tvm.ir.Op.get("relax.call_tir")
        if not isinstance(made, tvm.relax.Call) or made.op != call_tir:
            return made
        variable = made.args[0]
        text = json.dumps([str(call.op.name).removeprefix("relax."), plain_attributes(call)], sort_keys=True)
        function = builder.get()[variable].with_attr(OP, text)
        return tvm.relax.Call(
            made.op, [builder.add_func(function, variable.name_hint), *made.args[1:]], made.attrs, made.ty_args
        )

    return noted


def plain_attributes(call: Any) -> dict[str, Any]:
    """Attributes of a call of an op as plain JSON values, empty ones left out."""
    attrs = call.attrs
    info = getattr(type(attrs), "__tvm_ffi_type_info__", None)
    if attrs is None or info is None:
        return {}
    values = {str(field.name): plain(getattr(attrs, field.name)) for field in info.fields}
    return {name: value for name, value in values.items() if value not in (None, "", [])}


def plain(value: Any) -> Any:
    """A value of TVM's object system as a plain JSON value."""
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, str):
        return str(value)
    number = getattr(value, "value", None)
    if isinstance(number, (bool, int, float)):
        return number
    if hasattr(value, "__iter__") and not hasattr(value, "dtype"):
        return [plain(item) for item in value]
    return str(value)
