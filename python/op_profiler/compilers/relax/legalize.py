"""Converts ops of Relax to TIR functions with an attribute that stores the op."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from typing import Any

from op_profiler.compilers.relax import convolution
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.operators.describe import value_decides

_OP = "op_profiler_op"
"""Attribute of a TIR function: the result of `op_of`, as JSON."""

_LEGALIZE = "FLegalize"
_NUMBERS = {"relax.clip": ("a_min", "a_max"), "relax.strided_slice": ("axes", "begin", "end", "strides")}
"""By op: names of its arguments after the first one."""
_LEVEL = 11  # TVM registers its own at level 10; the highest level wins
OUT_FUSABLE = 4
"""An `OpPatternKind`: element-wise successors may be fused into it."""

Legalize = Callable[[Any, Any], Any]
Number = tuple[int, str, float | None]
"""An argument of an op that is one number and part of the function: its position, its dtype, and its value if that
changes the code. With the value in every function, tuning records would get other keys."""


def legalize_ops() -> Any:
    """Return a pass like `LegalizeOps` that also supports blocked convolutions, and stores in each function the op that
    it computes."""
    note_ops()
    return load_tvm().relax.transform.LegalizeOps({"relax.nn.conv2d": _noted(convolution.legalize)})


@functools.cache
def note_ops() -> None:
    """Make all later runs of `LegalizeOps` in this process store in each function the op that it computes (`op_of`)."""
    tvm = load_tvm()
    for op in (tvm.ir.Op.get(name) for name in tvm.ir.Op.list_op_names() if str(name).startswith("relax.")):
        legalize = op.get_attr(_LEGALIZE)  # None if the op has none; `has_attr` is true even then
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
        attrs = plain_attributes(call) | _given(call)
        text = _note(str(call.op.name).removeprefix("relax."), attrs, _inside(call, made))
        function = builder.get()[variable].with_attr(_OP, text)
        return tvm.relax.Call(
            made.op, [builder.add_func(function, variable.name_hint), *made.args[1:]], made.attrs, made.ty_args
        )

    return noted


def _note(op: str, attrs: dict[str, Any], inside: Sequence[Number] = ()) -> str:
    return json.dumps([op, attrs, inside], sort_keys=True)


def op_of(function: Any) -> tuple[str, dict[str, Any], list[Number]] | None:
    """Return the op of a TIR function, its attributes, and its numeric arguments; None if it was not recorded."""
    noted = (function.attrs or {}).get(_OP)
    if noted is None:
        return None
    op, attrs, inside = json.loads(str(noted))
    return op, attrs, [(place, dtype, value) for place, dtype, value in inside]


def _given(call: Any) -> dict[str, Any]:
    """Return the numbers that are attributes of the op in Relay and arguments of the op in Relax."""
    names = _NUMBERS.get(str(call.op.name), ())
    return {name: plain(getattr(value, "fields", value)) for name, value in zip(names, call.args[1:])}


def _inside(call: Any, made: Any) -> list[Number]:
    """Return the numeric arguments inside the function, as in `op_of`."""
    tvm = load_tvm()
    passed = list(made.args[1].fields)
    op = str(call.op.name).removeprefix("relax.")
    return [
        (place, dtype := str(value.ty.dtype), value.value.numpy().item() if value_decides(op, dtype) else None)
        for place, value in enumerate(call.args)
        if isinstance(value, tvm.ir.GenericConst)
        and getattr(value.ty, "ndim", None) == 0
        and not any(value.same_as(one) for one in passed)
    ]


def noted_call(
    builder: Any, op: str, attrs: dict[str, Any], compute: Any, *arguments: Any, hint: str, pattern: int | None = None
) -> Any:
    """Return a call of a new TIR function, in which the op that it computes is stored.

    Args:
        builder: ``relax.BlockBuilder`` of the module.
        compute: computes one tensor from tensors of TE and the other arguments.
        hint: name of the function.
        pattern: `OpPatternKind` for fusion; None: TVM determines it.
    """
    relax = load_tvm().relax
    made = builder.call_te(compute, *arguments, primfunc_name_hint=hint)
    variable = made.args[0]
    function = builder.get()[variable].with_attr(_OP, _note(op, attrs))
    if pattern is not None:
        function = function.with_attr("op_pattern", pattern)
    return relax.Call(
        made.op, [builder.add_func(function, variable.name_hint), *made.args[1:]], made.attrs, made.ty_args
    )


def plain_attributes(call: Any) -> dict[str, Any]:
    """Return the attributes of a call as plain JSON values, without empty ones."""
    attrs = call.attrs
    info = getattr(type(attrs), "__tvm_ffi_type_info__", None)
    if attrs is None or info is None:
        return {}
    values = {str(field.name): plain(getattr(attrs, field.name)) for field in info.fields}
    return {name: value for name, value in values.items() if value not in (None, "", [])}


def plain(value: Any) -> Any:
    """Return a value of TVM's object system as a plain JSON value."""
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
