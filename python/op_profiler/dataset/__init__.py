"""Keeps measurements: one SQL schema for SQLite and PostgreSQL, and the flat table that people take away.

Nothing heavy is imported until a name is used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from op_profiler.dataset.export import COLUMNS, export_table, read_parquet
    from op_profiler.dataset.store import Dataset, Row, StoredModel

__all__ = ["COLUMNS", "Dataset", "Row", "StoredModel", "export_table", "read_parquet"]

_HOMES = {"COLUMNS": "export", "export_table": "export", "read_parquet": "export"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES.get(name, 'store')}"), name)
