"""Converts keyword arguments and models of Python programs to requests."""

from __future__ import annotations

import dataclasses
import inspect
import re
import textwrap
import typing
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from op_profiler.cores import callers_cores
from op_profiler.errors import UsageError
from op_profiler.frontends.frontend import ModelRequest
from op_profiler.frontends.live import source_and_name_of
from op_profiler.options import Field, with_options
from op_profiler.run import Run

if TYPE_CHECKING:
    from op_profiler.frontends.live import LiveModel

T = TypeVar("T")


def from_python(function: Callable[..., T]) -> Callable[..., T]:
    """Return a function in which each parameter of `function` that is a request is replaced by keyword arguments, one
    per option of the request, which are added to the docstring."""
    fields: list[Field] = []

    def parameter(field: Field) -> inspect.Parameter:
        fields.append(field)
        hint = re.sub(r"\b(typing|pathlib|collections\.abc)\.", "", inspect.formatannotation(field.type))
        hint = re.sub(r"^Optional\[(.*)\]$", r"\1 | None", hint)
        by_place = field.option.argument
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD if by_place else inspect.Parameter.KEYWORD_ONLY
        return inspect.Parameter(field.name, kind, default=field.default, annotation=hint)

    called = with_options(callers_cores()(function), parameter, _value)
    text = inspect.cleandoc(function.__doc__ or "")
    before, _, after = text.partition("\n\nReturns:")
    called.__doc__ = "\n".join([before, *map(_described, fields)]) + f"\n\nReturns:{after}"
    return called


def _value(field: Field, given: object) -> object:
    """Return the value of an argument; a text is parsed as on the command line.

    Raises:
        UsageError: a number is out of range, or a text is invalid.
    """
    least, most = field.option.least, field.option.most
    if isinstance(given, int) and ((least is not None and given < least) or (most is not None and given > most)):
        limits = f"{least} or more" if most is None else f"{least} to {most}"
        raise UsageError(f"{field.flag} {given} is out of range; give {limits}")
    if isinstance(given, str) and field.option.parse is not None:
        return field.option.parse(field.name, given)
    if isinstance(given, str) and Path in (field.type, *typing.get_args(field.type)):
        return Path(given)
    return tuple(given) if isinstance(given, list) else given


def _described(field: Field) -> str:
    """Return the entry of an option for the Args section of a docstring."""
    text = re.sub(r"\{(\w+)\}", r"one of the \1", field.option.help)
    return textwrap.fill(f"{field.name}: {text}", 116, initial_indent=" " * 4, subsequent_indent=" " * 8)


def model_request(request: ModelRequest, model: LiveModel | Run, inputs: object = None) -> ModelRequest:
    """Return a copy of a model request with the source and the name of a model.

    Args:
        request: request whose other options are copied.
        model: as for `collect`; a pair of a torch module and its inputs; or a run, whose model request is returned.
        inputs: as for `collect`.
    """
    if isinstance(model, Run):
        return model.request.build.model
    if isinstance(model, tuple):
        model, inputs = model
    source, name = source_and_name_of(model, inputs, request.source)
    return dataclasses.replace(request, source=source, name=name)


def silent(text: str) -> None:
    """Ignore a progress message."""
