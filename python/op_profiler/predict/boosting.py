"""xgboost, imported without the wrappers for scikit-learn."""

from __future__ import annotations

import functools
import sys
from typing import Any


@functools.cache
def load_xgboost() -> Any:
    """The module `xgboost`.

    Its import pulls in scikit-learn, and with it pandas and scipy.stats, for wrapper classes that nothing here uses:
    most of a second, where loading a predictor takes a tenth. Where scikit-learn cannot be imported it does without.
    """
    hidden = "sklearn" not in sys.modules and "xgboost" not in sys.modules
    if hidden:
        sys.modules["sklearn"] = None  # type: ignore[assignment]  # what Python's import looks for to refuse
    try:
        import xgboost
    finally:
        if hidden:
            del sys.modules["sklearn"]
    return xgboost
