"""Calls a user's functions that return torch modules or lists of them."""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import re
import sys
from typing import Any

from op_profiler.errors import ModelError
from op_profiler.frontends.importers.torch_library import torch

_ENTRY = re.compile(r"^(.*)\[(\d+)\]$")


def called(name: str) -> tuple[Any, Any]:
    """Return the torch module that a name stands for, and its example inputs (None if the name stands for no inputs).

    Args:
        name: ``package.module:function``, or ``package.module:name[position]`` for an element of a list.

    Raises:
        ModelError: the name cannot be imported or called, the list has no such position, or the result is neither a
            torch module nor a pair of a module and its inputs.
    """
    entry = _ENTRY.match(name)
    if entry is not None:
        models = listed(entry[1])
        if int(entry[2]) >= len(models):
            raise ModelError(f"{name}: the list has {len(models)} models")
        made = models[int(entry[2])]
        made = made() if callable(made) and not isinstance(made, torch.nn.Module) else made
    else:
        made = _evaluated(name)
    if isinstance(made, torch.nn.Module):
        return made, None
    if not isinstance(made, (tuple, list)) or len(made) != 2:
        raise ModelError(f"{name} should return a torch module and its example inputs, not {type(made).__name__}")
    return made[0], made[1]


@functools.lru_cache(maxsize=1)
def listed(name: str) -> list[Any]:
    """Return the list that a name stands for, or that the named function returns. Its elements are torch modules, pairs
    of a module and its inputs, or functions that return one of these.

    Raises:
        ModelError: the name cannot be imported or called, or is not a list.
    """
    torch.manual_seed(0)
    found = _evaluated(name)
    if not isinstance(found, (list, tuple)):
        raise ModelError(f"{name} is no list of torch modules, but {type(found).__name__}")
    return list(found)


def _evaluated(name: str) -> Any:
    """Return the value of a name in a module; a function is called."""
    module, _, function = name.partition(":")
    folder = os.getcwd()
    sys.path.insert(0, folder)
    try:
        found = getattr(importlib.import_module(module), function)
        return found() if callable(found) and not isinstance(found, torch.nn.Module) else found
    except (Exception, SystemExit) as error:  # the user's code may raise anything
        raise ModelError(f"{name} failed: {type(error).__name__}: {error}") from error
    finally:
        os.chdir(folder)  # the user's code may have left it, and names of files are meant from here
        with contextlib.suppress(ValueError):
            sys.path.remove(folder)
