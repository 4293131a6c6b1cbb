"""`Option`: the declaration of an option, at the field of the request that the option sets.

The command line, the functions of `op_profiler.api`, their help and the reference are generated from these
declarations. A request may contain other requests; its options include theirs. This module imports nothing heavy and is
independent of commands.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")

MODEL, MEASURING, TUNING, DEVICE, OUTPUT = "Model", "Measuring", "Tuning", "Device", "Output"
"""Panels of a help text."""


@dataclasses.dataclass(frozen=True)
class Option:
    """Declaration of an option.

    Attributes:
        help: help text. ``{tuners}`` is replaced by the names of the registry of tuners.
        panel: panel of the help in which the option is shown.
        name: keyword argument of functions, if it differs from the name of the field.
        flags: flags on the command line, if they differ from the name with dashes.
        parse: converts the text after a flag to a value, or raises `UsageError`; None: the field's type converts it.
        shown: for an option with `parse`, the default value as text; None: the request uses the default of its field.
        least, most: smallest and largest allowed number; None: no limit.
        metavar: placeholder for the value in the help, if it is not the type.
        argument: the option is a positional argument without a flag.
    """

    help: str
    panel: str | None = None
    _: dataclasses.KW_ONLY
    name: str = ""
    flags: tuple[str, ...] = ()
    parse: Callable[[str, str], Any] | None = None
    shown: str | None = None
    least: int | None = None
    most: int | None = None
    metavar: str | None = None
    argument: bool = False


DbOption = typing.Annotated[str, Option("Dataset: the path of a SQLite file (.db), or an SQLAlchemy URL.", OUTPUT)]


@dataclasses.dataclass(frozen=True)
class Within:
    """Marks a field of type ``SomeRequest | None``: the options of `request` also belong to the containing request."""

    request: type


class Only:
    """Marks a parameter whose type is a request: of this request's options, only the listed ones can be given.

    Args:
        names: names of the allowed options.
        defaults: further allowed options, each with a default that replaces that of the request.
    """

    def __init__(self, *names: str, **defaults: Any) -> None:
        self.names = {*names, *defaults}
        self.defaults = defaults


@dataclasses.dataclass(frozen=True, kw_only=True)
class Field:
    """An option of a request, with type and default of its field (`inspect.Parameter.empty` without a default)."""

    name: str
    option: Option
    type: Any
    default: Any

    @property
    def flag(self) -> str:
        """Flag of the option on the command line, for messages."""
        return self.option.flags[0] if self.option.flags else "--" + self.name.replace("_", "-")


@functools.cache
def options_of(request: type) -> Mapping[str, Field]:
    """Return the options of a request and of the requests within it, by name."""
    found: dict[str, Field] = {}
    for field, option, inner, hint in _fields(request):
        if inner is not None:
            found |= options_of(inner) if hint is inner else {n: _optional(one) for n, one in options_of(inner).items()}
        elif option is not None:
            name = option.name or field.name
            default = inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default
            one = Field(name=name, option=option, type=hint, default=default)
            found[name] = _optional(one) if option.parse is not None and option.shown is None else one
    return found


def _optional(field: Field) -> Field:
    """Return a copy of a field with the default None: if the option is not given, the request uses its own default."""
    return dataclasses.replace(field, type=field.type | None, default=None)


@functools.cache
def _fields(request: type) -> tuple[tuple[dataclasses.Field[Any], Option | None, type | None, Any], ...]:
    """Return the fields of a request, each with its option, its nested request, and its type."""
    found = []
    hints = typing.get_type_hints(request, include_extras=True)
    for field in dataclasses.fields(request):
        hint, marks = _parted(hints[field.name])
        within = next((mark.request for mark in marks if isinstance(mark, Within)), None)
        inner: type | None = within or (hint if dataclasses.is_dataclass(hint) and isinstance(hint, type) else None)
        found.append((field, next((mark for mark in marks if isinstance(mark, Option)), None), inner, hint))
    return tuple(found)


def _parted(hint: object) -> tuple[Any, tuple[Any, ...]]:
    """Return a type without its annotations, and the annotations."""
    if typing.get_origin(hint) is typing.Annotated:
        return hint.__origin__, hint.__metadata__  # type: ignore[attr-defined]
    return hint, ()


def made(request: type[T], values: Mapping[str, Any]) -> T:
    """Create a request from the values of its options; options without a value have their defaults.

    Raises:
        UsageError: raised by the request's method ``of_options``, if it has one.
    """
    fields: dict[str, Any] = {}
    kind: type = request
    for field, option, inner, _ in _fields(kind):
        if inner is not None:
            fields[field.name] = made(inner, values)
        elif option is not None and (option.name or field.name) in values:
            fields[field.name] = values[option.name or field.name]
    make: Callable[..., T] = getattr(request, "of_options", request)
    return make(**fields)


def with_options(
    function: Callable[..., T], parameter: Callable[[Field], inspect.Parameter], value: Callable[[Field, Any], Any]
) -> Callable[..., T]:
    """Return a function like `function`, but with one parameter per option of a request instead of the request itself.

    Args:
        function: function to convert; an option is left out if `function` itself has a parameter of the same name.
        parameter: returns the parameter of the result that stands for an option.
        value: converts a given argument to the value of an option; if it returns None, the request uses its default.
    """
    signature = _signature(function)
    requests: dict[str, tuple[type, dict[str, Field]]] = {}
    parameters: list[inspect.Parameter] = []
    for own in signature.parameters.values():
        hint, marks = _parted(own.annotation)
        if not dataclasses.is_dataclass(hint) or not isinstance(hint, type) or not options_of(hint):
            parameters.append(own)
            continue
        only = {name: None for mark in marks if isinstance(mark, Only) for name in mark.names}
        fields = {name: one for name, one in options_of(hint).items() if not only or name in only}
        for name, default in (item for mark in marks if isinstance(mark, Only) for item in mark.defaults.items()):
            fields[name] = dataclasses.replace(fields[name], default=default)
        requests[own.name] = hint, {n: one for n, one in fields.items() if n not in signature.parameters}
        parameters += map(parameter, requests[own.name][1].values())

    expanded = signature.replace(parameters=_ordered(parameters))

    @functools.wraps(function)
    def called(*arguments: Any, **keywords: Any) -> T:
        bound = expanded.bind(*arguments, **keywords)
        bound.apply_defaults()
        given: dict[str, Any] = dict(bound.arguments)
        for name, (request, fields) in requests.items():
            values = {n: value(one, given.pop(n)) for n, one in fields.items()}
            given[name] = made(request, {n: one for n, one in values.items() if one is not None})
        whole = signature.bind_partial()
        whole.arguments.update({name: given[name] for name in signature.parameters})
        return function(*whole.args, **whole.kwargs)

    called.__signature__, called.__annotations__ = expanded, {}  # type: ignore[attr-defined]
    del called.__wrapped__  # whose signature is another
    return called


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    """Return the signature with the types of its parameters; types imported only for type checkers remain strings."""
    signature, names = inspect.signature(function), inspect.unwrap(function).__globals__
    found = []
    for one in signature.parameters.values():
        with contextlib.suppress(NameError):
            one = one.replace(annotation=eval(one.annotation, names))  # as this package wrote it
        found.append(one)
    return signature.replace(parameters=found)


def _ordered(parameters: list[inspect.Parameter]) -> list[inspect.Parameter]:
    """Return parameters in the order of a signature: by kind, and those without a default first."""
    return sorted(parameters, key=lambda one: (one.kind, one.kind < 3 and one.default is not one.empty))
