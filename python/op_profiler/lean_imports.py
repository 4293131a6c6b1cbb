"""Imports libraries without dependencies that this package does not use, and without their warnings."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import logging
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType


def package_folder(package: str) -> Path | None:
    """Return the folder of an installed package, without importing it; None if it is not installed."""
    spec = importlib.util.find_spec(package)
    return Path(spec.origin).parent if spec is not None and spec.origin else None


def hidden(module: str) -> contextlib.AbstractContextManager[None]:
    """Let imports of a module fail inside the block, as if it were not installed, unless it was imported before."""
    return standing_in(module, None)  # what Python's import looks for to refuse


@contextlib.contextmanager
def standing_in(module: str, other: ModuleType | None) -> Iterator[None]:
    """Let imports of `module` inside the block return `other`, or fail if it is None, unless it was imported before."""
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
    """Return the module `xgboost`.

    Its import would also import scikit-learn, pandas and scipy.stats, for wrapper classes that this package does not
    use. That takes most of a second, while loading a predictor takes a tenth of a second. xgboost does without them if
    scikit-learn cannot be imported.
    """
    with hidden("sklearn") if "xgboost" not in sys.modules else contextlib.nullcontext():
        import xgboost
    return xgboost


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Suppress warnings while the block traces or imports a model: they are for authors of models, not for users."""
    previous = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(previous)
