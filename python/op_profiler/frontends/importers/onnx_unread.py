"""Rejects ONNX nodes with an attribute or an input that TVM's converters never look up.

Otherwise, TVM would silently import another program. A value that a converter looks up and then ignores is not
detected.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from onnx import defs, helper

from op_profiler.compilers.tvm_build import replaced
from op_profiler.frontends.importers.onnx_graph import graphs_in

_RECURRENT = ("hidden_size", "direction")  # weights have both: `onnx_recurrent` leaves no reverse direction
WITHOUT_EFFECT: Mapping[str, tuple[str, ...]] = {
    "BatchNormalization": ("consumed_inputs", "is_test", "momentum"),
    "Gemm": ("broadcast",),  # before opset 7; since then always
    "GRU": _RECURRENT,
    "LSTM": _RECURRENT,
    "RNN": _RECURRENT,
    "Split": ("num_outputs",),  # is the number of outputs; `onnx_repairs` gives sizes that differ
}
"""Attributes that TVM's converters never look up and that have no effect, by operator."""


class RecordingAttributes(dict[str, Any]):
    """The attributes of a node, with a record of the names that a converter looked up.

    Iterating over the names does not count: TVM's `AttrCvt` iterates over all of them, and skips those it ignores.
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        super().__init__(values)
        self.looked_up: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self.looked_up.add(name)
        return super().__getitem__(name)

    def __contains__(self, name: object) -> bool:
        self.looked_up.add(str(name))
        return super().__contains__(name)

    def get(self, name: str, default: Any = None) -> Any:
        """Return an attribute or the default; the name counts as looked up even if the attribute is missing."""
        self.looked_up.add(name)
        return super().get(name, default)

    def pop(self, name: str, *default: Any) -> Any:
        """Remove an attribute and return it; its name counts as looked up."""
        self.looked_up.add(name)
        return super().pop(name, *default)

    def __iter__(self) -> Iterator[str]:
        # without an `__iter__` of this class, CPython copies `**attributes` past `__getitem__`
        return super().__iter__()

    def items(self) -> Any:
        """Return names and values; all names count as looked up."""
        self.looked_up |= set(self)
        return super().items()

    def values(self) -> Any:
        """Return the values; all names count as looked up."""
        self.looked_up |= set(self)
        return super().values()


class RecordingInputs(list[Any]):
    """The inputs of a node, with a record of the positions that a converter looked up. Positions after the last input
    are None."""

    def __init__(self, values: Iterable[Any]) -> None:
        super().__init__(values)
        self.looked_up: set[int] = set()

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            stop = len(self) if place.stop is None else place.stop
            return [self[at] for at in range(stop)[place]]
        at = place if place >= 0 else len(self) + place
        self.looked_up.add(at)
        return super().__getitem__(at) if at < len(self) else None

    def __iter__(self) -> Iterator[Any]:
        return (self[at] for at in range(len(self)))

    def __add__(self, others: Any) -> Any:
        return [*self, *others]

    def pop(self, place: Any = -1) -> Any:
        """Remove an input and return it; its position, from the end if negative, counts as looked up."""
        self.looked_up.add(place if place >= 0 else len(self) + place)
        return super().pop(place)


def unread_refused(graph: Any, importer: Any) -> contextlib.AbstractContextManager[None]:
    """Reject nodes with values that an importer of TVM does not look up when it converts a graph in the block.

    The importer then raises a ValueError that names operator, node, and attribute or input.

    Args:
        importer: class of TVM with a method `_convert_operator`.
    """
    convert = importer._convert_operator
    domains = {node.op_type: node.domain for one in graphs_in(graph) for node in one.node}

    def checked(self: Any, op_name: str, inputs: Any, attrs: dict[str, Any], opset: int) -> Any:
        given, attributes = RecordingInputs(inputs), RecordingAttributes(attrs)
        converted = convert(self, op_name, given, attributes, opset)
        schema = _schema(op_name, opset, domains.get(op_name, ""))
        what = _unread_attribute(op_name, attrs, attributes.looked_up, schema)
        what = what or _unread_input(op_name, inputs, given.looked_up, schema)
        if what:
            node = attrs["tvm_custom"]["name"]
            raise ValueError(f"TVM's converter of {op_name} ignores {what} of node {node}; export the model without it")
        return converted

    return replaced(importer, "_convert_operator", checked)


def _unread_attribute(operator: str, values: Mapping[str, Any], looked_up: set[str], schema: Any) -> str | None:
    """Return the first attribute that changes the result and was not looked up; None if no attribute is ignored."""
    without_effect = WITHOUT_EFFECT.get(operator, ())
    for name, value in values.items():
        if name in ("tvm_custom", *looked_up, *without_effect) or _is_default(name, value, schema):
            continue
        return f"{name}={value.decode(errors='replace') if isinstance(value, bytes) else value!r}"
    return None


def _unread_input(operator: str, values: Iterable[Any], looked_up: set[int], schema: Any) -> str | None:
    """Return the first input that is present and was not looked up; None if no input is ignored."""
    unread = [at for at, value in enumerate(values) if value is not None and at not in looked_up]
    if not unread:
        return None
    named = schema.inputs[min(unread[0], len(schema.inputs) - 1)].name if schema is not None else "of another vendor's"
    return f"input {unread[0]} ({named})"


def _schema(operator: str, opset: int, domain: str) -> Any:
    """Return ONNX's schema of an operator; None for another vendor's."""
    try:
        return defs.get_schema(operator, opset, "" if domain == "ai.onnx" else domain)
    except defs.SchemaError:
        return None


def _is_default(name: str, value: Any, schema: Any) -> bool:
    """Return whether an attribute has its default in the schema; without a default, whether it is zero or empty."""
    known = schema.attributes.get(name) if schema is not None else None
    if known is None or not known.default_value.type:
        return not value
    default = helper.get_attribute_value(known.default_value)
    return bool((tuple(default) if isinstance(default, list) else default) == value)
