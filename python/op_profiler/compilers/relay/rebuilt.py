"""Rebuilds the Relay function of an operator from its description."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from typing import Any

from op_profiler.compilers.compiled_model import Occurrence
from op_profiler.compilers.relay.extract import attributes, describe
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.errors import ModelError
from op_profiler.operators.operator import PARAMETER, Operator

_ARGUMENT = re.compile(r"(%?\w+?)(?:\.(\d+))?")
_CONSTANT = re.compile(r"const:(\w+?)\[([\d, ]*)\](?:=(.+))?")
_REAL, _WHOLE = 0.3, 3
"""Values of constants that the description does not contain."""
_BOXED = "indices_or_sections"
"""Attributes that are one number or several; a single number has to be an object of TVM."""
_MISSING = re.compile(r"required field '(\w+)'")
_ATTRIBUTES = {
    "nn.contrib_dense_pack": "relay.attrs.DensePackAttrs",
    **dict.fromkeys(("cumsum", "cumprod"), "relay.attrs.ScanopAttrs"),
}
"""Types of attributes for ops for which TVM names another type than the op takes, or none."""
_MOST_WAYS = 64
"""Largest number of ways to assign tensors to tuples that are tried."""
_NOT_MADE = frozenset({"collapse_sum_to", "dyn.expand_dims", "hardswish", "nn.dilate", "scatter", "stft"})
"""Ops for which TVM names no type of attributes; its type inference crashes on calls without attributes."""


def relay_function(operator: Operator) -> Any:
    """Return the Relay function of an operator, rebuilt from its description: typed, and marked as primitive.

    Constants inside a function are described by their shape alone, unless their value decides the code
    (`op_profiler.operators.describe.value_decides`). All other constants get values that no pass simplifies: a product
    with one would become a copy, and thus another kernel.

    Raises:
        ModelError: the description is not sufficient, as for an op of another package.
    """
    return rebuilt_operator(operator).function


def rebuilt_operator(operator: Operator) -> Occurrence:
    """Return the operator as an `Occurrence`, with the function that `relay_function` returns and with the information
    which of its parameters are weights.

    Raises:
        ModelError: the description is not sufficient, as for `relay_function`.
    """
    tvm = load_tvm()
    failures = (tvm.TVMError, ValueError, TypeError, AttributeError, KeyError, IndexError)
    cause: Exception | None = None
    for sizes, squeezes in itertools.product(itertools.islice(_tuple_sizes(operator), _MOST_WAYS), (True, False)):
        try:
            function = _made(operator, sizes, squeezes)
        except failures as error:
            cause = cause or error
            continue
        constant = tuple(parameter.name_hint.startswith("p") for parameter in function.params)
        if describe(function, constant).key == operator.workload:
            return Occurrence(operator, operator.name, function, constant, "")
    raise ModelError(f"{operator.name} cannot be made again from its description") from cause


def _made(operator: Operator, sizes: Mapping[str, int], squeezes: bool) -> Any:
    """Return the function of a description whose tuples have these numbers of fields.

    Args:
        squeezes: whether a squeeze without an axis drops all axes of length one; otherwise it drops none. Descriptions
            leave out empty values, so they do not distinguish the two.
    """
    tvm = load_tvm()
    relay = tvm.relay
    variables = _parameters(operator, sizes)
    values: list[Any] = []
    for edge, attrs in zip(operator.structure.split(";"), operator.attrs, strict=True):
        name, _, rest = edge.partition("(")
        arguments = [_argument(text, variables, values) for text in _parts(rest[:-1])]
        given = {"axis": []} | attrs if name == "squeeze" and not squeezes else attrs
        op = relay.op.get(name)
        values.append(relay.Call(op, arguments, _attributes(op, given)))
    function = relay.Function(list(variables.values()), _result(operator, variables, values))
    function = function.with_attr("Primitive", tvm.tir.IntImm("int32", 1))
    return relay.transform.InferType()(tvm.IRModule.from_expr(function))["main"]


def _named(operator: Operator, letter: str) -> dict[str, int]:
    """Return the inputs (i) or weights (p) in order, with the number of fields of each tuple; 0 for a tensor."""
    found: dict[int, int] = {}
    for name, number, field in PARAMETER.findall(operator.structure):
        if name == letter:
            found[int(number)] = max(found.get(int(number), 0), int(field) + 1 if field else 0)
    return {f"{letter}{number}": found[number] for number in sorted(found)}


def _tuple_sizes(operator: Operator) -> Iterator[dict[str, int]]:
    """Yield possible numbers of fields of each tuple, so that all tensors are used; 0 for a tensor."""
    inputs = list(_sizes(_named(operator, "i"), len(operator.inputs)))
    for params in _sizes(_named(operator, "p"), len(operator.params)):
        yield from (of_inputs | params for of_inputs in inputs)


def _sizes(named: Mapping[str, int], tensors: int) -> Iterator[dict[str, int]]:
    tuples = [name for name, fields in named.items() if fields]
    spare = tensors - sum(fields or 1 for fields in named.values())
    if not tuples:  # one may be a tuple that an op reads as a whole
        yield from ({**named, name: spare + 1} for name in named if spare > 0)
        yield from [dict(named)] * (spare == 0)
    elif spare >= 0:
        for more in _shares(spare, len(tuples)):
            yield {**named, **{name: named[name] + fields for name, fields in zip(tuples, more)}}


def _shares(count: int, parts: int) -> Iterator[tuple[int, ...]]:
    """Yield all ways to divide a number into parts."""
    if parts == 1:
        yield (count,)
        return
    for first in range(count + 1):
        yield from ((first, *rest) for rest in _shares(count - first, parts - 1))


def _parameters(operator: Operator, sizes: Mapping[str, int]) -> dict[str, Any]:
    """Return variables by their name in the structure, in its order."""
    relay = load_tvm().relay
    waiting = {"i": iter(operator.inputs), "p": iter(operator.params)}

    def tensor(name: str) -> Any:
        spec = next(waiting[name[0]])
        return relay.TensorType(spec.shape, spec.dtype)

    types = {
        name: relay.TupleType([tensor(name) for _ in range(fields)]) if fields else tensor(name)
        for name, fields in sizes.items()
    }
    return {name: relay.Var(name, types[name]) for name in sorted(types, key=lambda name: int(name[1:]))}


def _result(operator: Operator, variables: dict[str, Any], values: list[Any]) -> Any:
    """Return the last value; for a function with several outputs, a tuple of the values that no other op reads."""
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

        shape = [int(d) for d in constant[2].split(",") if d.strip()]
        kind, usual = (float, _REAL) if constant[1].startswith(("float", "bfloat")) else (int, _WHOLE)
        return relay.const(np.full(shape, kind(constant[3] or usual)), constant[1])
    found = _ARGUMENT.fullmatch(text)
    if found is None:
        raise ValueError(f"{text} is no value")
    value = values[int(found[1][1:])] if found[1].startswith("%") else variables[found[1]]
    return value if found[2] is None else relay.TupleGetItem(value, int(found[2]))


def _parts(text: str) -> list[str]:
    """Split at the commas outside of brackets."""
    parts, depth, start = [], 0, 0
    for place, letter in enumerate(text):
        depth += (letter in "([") - (letter in ")]")
        if letter == "," and depth == 0:
            parts.append(text[start:place])
            start = place + 1
    return [*parts, text[start:]] if text[start:] else parts


def _attributes(op: Any, attrs: dict[str, Any]) -> Any:
    """Return TVM's attributes from plain values; attributes that a description leaves out are empty."""
    kind = _ATTRIBUTES.get(op.name, op.attrs_type_key)
    if not kind:
        if attrs or op.name in _NOT_MADE:
            raise ValueError(f"TVM does not report which attributes {op.name} takes")
        return None
    made = _made_node(kind, attrs)
    usual = {name: value for name, value in attributes(made).items() if name not in attrs}
    return _made_node(kind, attrs | {name: type(value)() for name, value in usual.items()}) if usual else made


def _made_node(kind: str, attrs: dict[str, Any]) -> Any:
    """Return TVM's attributes of a type; attributes that are left out and have no default are None."""
    given = dict(attrs)
    if isinstance(given.get(_BOXED), int):
        given[_BOXED] = load_tvm().runtime.convert(given[_BOXED])
    while True:
        try:
            return load_tvm().ir.make_node(kind, **given)
        except AttributeError as error:
            missing = _MISSING.search(str(error))
            if missing is None or missing[1] in given:
                raise
            given[missing[1]] = None
