"""From the description of an operator back to the Relay function that it describes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from op_profiler.compilers.relay.extract import describe
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.errors import ModelError
from op_profiler.operators.operator import Operator, TensorSpec

_PARAMETER = re.compile(r"(?<![\w%.:])([ip])(\d+)(\.\d+)?(?!\w)")
_ARGUMENT = re.compile(r"(%?\w+?)(?:\.(\d+))?")
_CONSTANT = re.compile(r"const:(\w+?)\[([\d, ]*)\]")
_MISSING = re.compile(r"required field '(\w+)'")
_ATTRIBUTES = {
    "nn.contrib_dense_pack": "relay.attrs.DensePackAttrs",
    **dict.fromkeys(("cumsum", "cumprod"), "relay.attrs.ScanopAttrs"),
}
"""Where TVM names another type of attributes than the one that the op takes, or none."""
_NOT_MADE = frozenset({"collapse_sum_to", "dyn.expand_dims", "hardswish", "nn.dilate", "scatter", "stft"})
"""TVM names no type for their attributes, and its type inference ends the process where a call has none."""


def relay_function(operator: Operator) -> Any:
    """A type-checked primitive function.

    Constants inside of a function are described by their shape alone; they hold ones.

    Raises:
        ModelError: the description does not tell, as of an op of another package, or of several tuples.
    """
    tvm = load_tvm()
    relay = tvm.relay
    try:
        variables = _parameters(operator)
        values: list[Any] = []
        for edge, attrs in zip(operator.structure.split(";"), operator.attrs, strict=True):
            name, _, rest = edge.partition("(")
            arguments = [_argument(text, variables, values) for text in _parts(rest[:-1])]
            op = relay.op.get(name)
            values.append(relay.Call(op, arguments, _attributes(op, attrs)))
        function = relay.Function(list(variables.values()), _result(operator, variables, values))
        function = function.with_attr("Primitive", tvm.tir.IntImm("int32", 1))
        function = relay.transform.InferType()(tvm.IRModule.from_expr(function))["main"]
    except (tvm.TVMError, ValueError, TypeError, AttributeError, KeyError, IndexError) as error:
        raise ModelError(f"{operator.name} cannot be made again from its description") from error
    constant = tuple(name.startswith("p") for name in variables)
    if describe(function, constant).key != operator.key:
        raise ModelError(f"{operator.name} cannot be made again from its description: it becomes another operator")
    return function


def _parameters(operator: Operator) -> dict[str, Any]:
    """Variables by their name in the structure; of the inputs and of the weights one at most is a tuple."""
    relay = load_tvm().relay
    found = sorted({(int(n), letter) for letter, n, _ in _PARAMETER.findall(operator.structure)})
    tuples = {(int(n), letter) for letter, n, field in _PARAMETER.findall(operator.structure) if field}
    types: dict[str, Any] = {}
    for letter, tensors in (("i", operator.inputs), ("p", operator.params)):
        mine = [one for one in found if one[1] == letter]
        spare = len(tensors) - len(mine)
        tupled = [one for one in mine if one in tuples] or (mine[:1] if spare else [])
        if spare < 0 or len(tupled) > 1 or (spare and len(mine) > 1 and not tuples):
            raise ValueError("several tuples")
        types |= dict(zip((f"{letter}{n}" for n, _ in mine), _types(tensors, mine, tupled, spare + 1)))
    return {f"{letter}{n}": relay.Var(f"{letter}{n}", types[f"{letter}{n}"]) for n, letter in found}


def _types(
    tensors: Sequence[TensorSpec], parameters: Sequence[object], tupled: Sequence[object], fields: int
) -> Iterator[Any]:
    relay = load_tvm().relay
    waiting = iter(relay.TensorType(tensor.shape, tensor.dtype) for tensor in tensors)
    for parameter in parameters:
        yield relay.TupleType([next(waiting) for _ in range(fields)]) if parameter in tupled else next(waiting)


def _result(operator: Operator, variables: dict[str, Any], values: list[Any]) -> Any:
    """The last value; of a function with several outputs a tuple of those that nothing else takes."""
    if len(operator.outputs) == 1 or operator.op_names[-1] == "split":
        return values[-1]
    taken = {int(n) for n in re.findall(r"%(\d+)", operator.structure)}
    return load_tvm().relay.Tuple([value for n, value in enumerate(values) if n not in taken])


def _argument(text: str, variables: dict[str, Any], values: list[Any]) -> Any:
    relay = load_tvm().relay
    if text.startswith("("):
        return relay.Tuple([_argument(part, variables, values) for part in _parts(text[1:-1])])
    constant = _CONSTANT.fullmatch(text)
    if constant:
        import numpy as np

        return relay.const(np.ones([int(d) for d in constant[2].split(",") if d.strip()], constant[1]))
    found = _ARGUMENT.fullmatch(text)
    if found is None:
        raise ValueError(f"{text} is no value")
    value = values[int(found[1][1:])] if found[1].startswith("%") else variables[found[1]]
    return value if found[2] is None else relay.TupleGetItem(value, int(found[2]))


def _parts(text: str) -> list[str]:
    """Split at the commas that are in no bracket."""
    parts, depth, start = [], 0, 0
    for place, letter in enumerate(text):
        depth += (letter in "([") - (letter in ")]")
        if letter == "," and depth == 0:
            parts.append(text[start:place])
            start = place + 1
    return [*parts, text[start:]] if text[start:] else parts


def _attributes(op: Any, attrs: dict[str, Any]) -> Any:
    """TVM's attributes from plain values; those that a description leaves out are None."""
    tvm = load_tvm()
    kind = _ATTRIBUTES.get(op.name, op.attrs_type_key)
    if not kind:
        if attrs or op.name in _NOT_MADE:
            raise ValueError(f"TVM does not tell which attributes {op.name} takes")
        return None
    given = dict(attrs)
    while True:
        try:
            return tvm.ir.make_node(kind, **given)
        except AttributeError as error:
            missing = _MISSING.search(str(error))
            if missing is None or missing[1] in given:
                raise
            given[missing[1]] = None
