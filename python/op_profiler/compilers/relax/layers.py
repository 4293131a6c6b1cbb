"""Tracks the locations of calls in the user's model, such as their layers, from a Relax module to its kernels.

The code that creates a module names the variables of calls by numbers, and stores the locations of these numbers in the
span of ``main``. Names of variables and spans do not affect a build. Relax's passes keep the variable of a call that
they rewrite. A call that they insert has a variable without a number, and gets the locations of the calls that it
replaced. Fusion renames variables and merges equal groups into one function; there, a call is identified by its op and
its inputs.
"""

from __future__ import annotations

import collections
import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from op_profiler.compilers.relax.rewrite import bindings_of
from op_profiler.compilers.successors import CallGraph, Names, successors, united
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.compilers.tvm_types import IRModule

KernelLayers = Mapping[int, Sequence[Names]]
"""By the position of a binding in ``main`` of a fused module, the locations of each op in the called function."""

_SPAN = "op_profiler.layers "
_NUMBERED = re.compile(r"op_profiler_(\d+)_layer")  # FreshName adds a suffix to a name that exists already
_LEGALIZED = re.compile(r"^relax\.(nn\.)?|\d+$")  # what distinguishes an op's name from its TIR function's


class LayerVariables:
    """Creates names for the variables of a new module, and records the locations that belong to each name."""

    def __init__(self) -> None:
        self._layers: list[Names] = []

    def name(self, layers: Names) -> str:
        """Return a new name for the variable to which a call with these locations is assigned."""
        self._layers.append(layers)
        return f"op_profiler_{len(self._layers) - 1}_layer"

    def noted_on(self, module: IRModule) -> Any:
        """Return the module with the recorded locations stored in its ``main``."""
        tvm = load_tvm()
        if not any(self._layers):
            return module
        main = module["main"]
        source = tvm.ir.SourceName(_SPAN + json.dumps(self._layers))
        span = tvm.ir.Span(source, 0, 0, 0, 0)
        noted = tvm.relax.Function(main.params, main.body, main.ret_ty, main.is_pure, main.attrs, span)
        module.update_func(module.get_global_var("main"), noted)
        return module


def layers_of_kernels(made: IRModule, before: IRModule, fused: IRModule) -> KernelLayers:
    """Return the locations of the functions that are called in a fused module; empty if `made` has no locations.

    Args:
        made: the module before lowering, with the names that its creator gave to variables.
        before: the same module during lowering, before fusion.
    """
    layers = _noted_layers(made)
    old, new = (_graph(module["main"]) for module in (made, before)) if layers else (None, None)
    if old is None or new is None:
        return {}
    values = _Values()
    waiting: dict[int, collections.deque[Names]] = {}
    for numbers, names in zip(filter(None, values.calls(before)), _carried(old, new, layers), strict=True):
        for number in numbers:  # several for a group, which the user's passes may have made
            waiting.setdefault(number, collections.deque()).append(names)

    def taken(number: int) -> Names:
        known = waiting.get(number, collections.deque([()]))
        return known.popleft() if len(known) > 1 else known[0]

    return {place: [taken(number) for number in numbers] for place, numbers in enumerate(values.calls(fused))}


def _noted_layers(module: IRModule) -> list[Names]:
    span = module["main"].span
    text = str(span.source_name.name) if span else ""
    return [tuple(names) for names in json.loads(text.removeprefix(_SPAN))] if text.startswith(_SPAN) else []


def _carried(old: CallGraph, new: CallGraph, layers: Sequence[Names]) -> list[Names]:
    """Return the locations of every call of `new`, the graph that passes created from `old`."""
    of_old = [layers[number] if number is not None else () for number in old.numbers]
    for place in reversed(range(len(old.calls))):  # what an importer wrote inside of another op belongs to that
        if old.numbers[place] is None:
            of_old[place] = united(of_old[reader] for reader, reads in enumerate(old.reads) if place in reads)
    all_numbered = [-1 - place if number is None else number for place, number in enumerate(old.numbers)]
    old = dataclasses.replace(old, numbers=[*all_numbered])
    found = successors(old, new, of_old)
    carried = [layers[n] if n is not None else found.get(place, ()) for place, n in enumerate(new.numbers)]
    carried_names = {name for names in carried for name in names}
    places = {number: place for place, number in enumerate(new.numbers) if number is not None}
    into: dict[int, int | None] = {}
    for place, number in enumerate(all_numbered):  # what went into a call that kept its variable, as a batch norm does
        read = (into[one] for one in sorted(one for one in old.reads[place] if isinstance(one, int)))
        into[place] = places.get(number, next((one for one in read if one is not None), None))
        target = into[place]
        if number not in places and target is not None and not carried_names.issuperset(of_old[place]):
            carried[target] = united([carried[target], of_old[place]])
    return carried


def _graph(function: Any) -> CallGraph | None:
    """Return the calls of a function; None if the function is more than a graph of calls."""
    tvm = load_tvm()
    relax = tvm.relax
    found = CallGraph([], [], [], [], frozenset())
    read: dict[Any, frozenset[int | str]] = {variable: frozenset([str(variable.name)]) for variable in function.params}

    def reads_of(value: Any) -> frozenset[int | str]:
        if isinstance(value, relax.Tuple):
            return frozenset().union(*map(reads_of, value.fields))
        if isinstance(value, relax.TupleGetItem):
            return reads_of(value.tuple_value)
        return read.get(value, frozenset()) if isinstance(value, relax.Var) else frozenset()

    for binding in bindings_of(function):
        value = getattr(binding, "value", None)
        if isinstance(value, (relax.If, relax.Function)) or value is None:
            return None
        if isinstance(value, relax.Call):
            found.reads.append(frozenset().union(*map(reads_of, value.args)))
            read[binding.var] = frozenset([len(found.calls)])
            found.calls.append(value)
            found.ops.append(_LEGALIZED.sub("", _called(value)))
            numbered = _NUMBERED.match(str(binding.var.name))
            found.numbers.append(int(numbered[1]) if numbered else None)
        else:
            read[binding.var] = reads_of(value)
    return dataclasses.replace(found, results=reads_of(function.body.body))


def _called(call: Any) -> str:
    """Return the op of a call; for a call of TIR, the name of the function."""
    tvm = load_tvm()
    if call.op == tvm.ir.Op.get("relax.call_tir"):
        return str(call.args[0].name_hint)
    return str(getattr(call.op, "name", None) or getattr(call.op, "name_hint", None) or type(call.op).__name__)


class _Values:
    """Numbers of values; equal computations on equal values have the same number in several modules."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[object, ...], int] = {}
        self._fields: dict[int, list[int]] = {}

    def calls(self, module: IRModule) -> list[list[int]]:
        """Return, for each binding of ``main`` in order, the number of the called value; for a group, a number for each
        call in it."""
        main = module["main"]
        inputs = [self._number("input", place) for place in range(len(main.params))]
        return self._walked(module, main, inputs)[0]

    def _number(self, *what: object) -> int:
        return self._numbers.setdefault(what, len(self._numbers))

    def _walked(self, module: IRModule, function: Any, arguments: Sequence[int]) -> tuple[list[list[int]], int]:
        """Return the values of the calls in a function, and the value of its result."""
        relax = load_tvm().relax
        known: dict[Any, int] = dict(zip(function.params, arguments, strict=True))

        def number_of(value: Any) -> int:
            if isinstance(value, relax.Tuple):
                fields = [number_of(field) for field in value.fields]
                number = self._number("tuple", *fields)
                self._fields[number] = fields
                return number
            if isinstance(value, relax.TupleGetItem):
                whole, index = number_of(value.tuple_value), int(value.index)
                return self._fields[whole][index] if whole in self._fields else self._number("field", whole, index)
            if isinstance(value, relax.Var):
                return known[value]
            return self._number("constant", value if hasattr(value, "value") else str(value))

        found: list[list[int]] = []
        for binding in bindings_of(function):
            value, inside = binding.value, list[int]()
            if not isinstance(value, relax.Call):
                known[binding.var] = number_of(value)
            elif isinstance(value.op, load_tvm().ir.GlobalVar):
                given = [number_of(argument) for argument in value.args]
                inner, known[binding.var] = self._walked(module, module[value.op], given)
                inside = [one for numbers in inner for one in numbers]
            else:
                given = [number_of(one) for one in value.args if not isinstance(one, load_tvm().ir.GlobalVar)]
                known[binding.var] = self._number(_called(value), *given)
                inside = [known[binding.var]]
            found.append(inside)
        return found, number_of(function.body.body)
