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

_LEGALIZE = "FLegalize"
_NUMBERS = {"relax.clip": ("a_min", "a_max"), "relax.strided_slice": ("axes", "begin", "end", "strides")}
"""By the op: what its arguments behind the first one are called."""
_LEVEL = 11  # TVM's own stand at 10, and the highest counts

Legalize = Callable[[Any, Any], Any]


def legalize_ops() -> Any:
    """A pass: `LegalizeOps`, with blocked convolutions, and with the attribute `OP`."""
    note_ops()
    return load_tvm().relax.transform.LegalizeOps({"relax.nn.conv2d": _noted(convolution.legalize)})


@functools.cache
def note_ops() -> None:
    """Let `LegalizeOps` give every function the attribute `OP`, whoever runs that pass in this process."""
    tvm = load_tvm()
    for op in (tvm.ir.Op.get(name) for name in tvm.ir.Op.list_op_names() if str(name).startswith("relax.")):
        legalize = op.get_attr(_LEGALIZE)  # None where it has none; `has_attr` says that it has one all the same
        if legalize is not None:
            op.set_attr(_LEGALIZE, _noted(legalize), _LEVEL)


def _noted(legalize: Legalize) -> Legalize:
    def noted(builder: Any, call: Any) -> Any:
        tvm = load_tvm()
        made = legalize(builder, call)
        call_tir = tvm.ir.Op.get("relax.call_tir")
        if not isinstance(made, tvm.relax.Call) or made.op != call_tir:
            return made
        variable = made.args[0]
        attrs = plain_attributes(call) | _given(call) | _scalars(call, made)
        text = json.dumps([str(call.op.name).removeprefix("relax."), attrs], sort_keys=True)
        function = builder.get()[variable].with_attr(OP, text)
        return tvm.relax.Call(
            made.op, [builder.add_func(function, variable.name_hint), *made.args[1:]], made.attrs, made.ty_args
        )

    return noted


def _given(call: Any) -> dict[str, Any]:
    """Numbers that Relay has as attributes, and Relax as arguments."""
    names = _NUMBERS.get(str(call.op.name), ())
    return {name: plain(getattr(value, "fields", value)) for name, value in zip(names, call.args[1:])}


def _scalars(call: Any, made: Any) -> dict[str, Any]:
    """Constants of one number that are no argument of the function but part of it: with others it is another one."""
    tvm = load_tvm()
    given = [a for a in call.args if isinstance(a, tvm.ir.GenericConst) and getattr(a.ty, "ndim", None) == 0]
    inside = [a for a in given if not any(a.same_as(field) for field in made.args[1].fields)]
    return {"scalars": [a.value.numpy().item() for a in inside]} if inside else {}


def noted_call(
    builder: Any, op: str, attrs: dict[str, Any], compute: Any, *arguments: Any, hint: str, pattern: int | None = None
) -> Any:
    """A call of a function of TIR that remembers an op.

    Args:
        builder: ``relax.BlockBuilder`` of the module.
        compute: from tensors of TE, and what else there is among the arguments, to one.
        hint: name of the function.
        pattern: `OpPatternKind` by which it is fused; None: what TVM finds.
    """
    relax = load_tvm().relax
    made = builder.call_te(compute, *arguments, primfunc_name_hint=hint)
    variable = made.args[0]
    function = builder.get()[variable].with_attr(OP, json.dumps([op, attrs], sort_keys=True))
    if pattern is not None:
        function = function.with_attr("op_pattern", pattern)
    return relax.Call(
        made.op, [builder.add_func(function, variable.name_hint), *made.args[1:]], made.attrs, made.ty_args
    )


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
