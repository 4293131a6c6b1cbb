"""Imports of libraries without unused dependencies and without their warnings."""

from __future__ import annotations

import contextlib
import functools
import logging
import sys
import warnings
from collections.abc import Iterator
from types import ModuleType


def hidden(module: str) -> contextlib.AbstractContextManager[None]:
    """Meanwhile a module cannot be imported, as if it were not installed; unless it was imported before."""
    return standing_in(module, None)  # what Python's import looks for to refuse


@contextlib.contextmanager
def standing_in(module: str, other: ModuleType | None) -> Iterator[None]:
    """Meanwhile another module is imported in place of this one; unless it was imported before."""
    if module in sys.modules:
        yield
        return
    sys.modules[module] = other  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[module]


@functools.cache
def load_xgboost() -> ModuleType:
    """The module `xgboost`.

    Its import pulls in scikit-learn, and with it pandas and scipy.stats, for wrapper classes that nothing here uses:
    most of a second, where loading a predictor takes a tenth. Where scikit-learn cannot be imported it does without.
    """
    with hidden("sklearn") if "xgboost" not in sys.modules else contextlib.nullcontext():
        import xgboost
    return xgboost


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """No warnings of tracing and importing, which are about the model's source and not for its user."""
    previous = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(previous)
