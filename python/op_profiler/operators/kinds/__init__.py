"""Kinds of operators, a file for each family: their sizes, their Relay expressions, their work, and how they are drawn.

A kind describes what one operator computes; the compiler decides the layouts and the fusion. One point may therefore
become several operators (a layer norm becomes its means and its scaling). To add a kind, add a class to a file here,
and an entry in that file's ``DRAWS`` if it is to be drawn.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

    from op_profiler.operators.kinds.point import Draw, Point


@functools.cache
def draws() -> dict[str, Draw]:
    """Return the draw functions by name, in the order of the files that define them."""
    return {name: draw for module in _modules() for name, draw in getattr(module, "DRAWS", {}).items()}


def described_kinds() -> tuple[str, ...]:
    """Return the names of the `Point` classes whose operators can be built without a compiler (`Point.described`)."""
    return tuple(found.__name__ for found in described_classes())


@functools.cache
def described_classes() -> tuple[type[Point], ...]:
    """Return the `Point` classes whose operators can be built without a compiler (`Point.described`), by name."""
    classes = {found for module in _modules() for found in vars(module).values() if isinstance(found, type)}
    found = (one for one in classes if getattr(one, "described", False))
    return tuple(sorted(found, key=lambda one: one.__name__))


def _modules() -> list[ModuleType]:
    return [importlib.import_module(f"{__name__}.{found.name}") for found in pkgutil.iter_modules(__path__)]
