"""Typer commands, made from functions whose parameters are requests and further options."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from typing import Annotated, Any

import typer

from op_profiler.options import Field, with_options


def command(function: Callable[..., None]) -> Callable[..., None]:
    """Return a function for typer in which each parameter of `function` that is a request is replaced by several
    parameters, one per option of the request."""
    return with_options(function, _parameter, _value)


def _parameter(field: Field) -> inspect.Parameter:
    option = field.option
    kind = typer.Argument if option.argument else typer.Option
    flags = [] if option.argument else [*option.flags] or ([field.flag] if field.type is bool else [])
    hint: Any = field.type
    default = field.default
    if option.parse is not None:
        hint, default = str | None if option.shown is None else str, option.shown
    elif typing.get_origin(hint) is typing.Literal:
        hint = str
    info = kind(
        *flags,
        help=option.help,
        rich_help_panel=option.panel,
        min=option.least,
        max=option.most,
        metavar=option.metavar,
    )
    annotation = Annotated[hint, info]
    return inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _value(field: Field, given: object) -> object:
    parse = field.option.parse
    return given if parse is None or given is None else parse(field.flag, str(given))
