"""The dataset: a store on SQLite or PostgreSQL, and the file formats for import and export.

Names are imported on first use, so that importing this package loads neither SQLAlchemy nor pyarrow.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from op_profiler.dataset.describe import Table, hardware_table, operator_table
    from op_profiler.dataset.flat import COLUMNS, flat_rows
    from op_profiler.dataset.formats import FORMATS
    from op_profiler.dataset.formats.autotvm import import_autotvm
    from op_profiler.dataset.formats.exporting import export_table
    from op_profiler.dataset.formats.format import Exported, Imported
    from op_profiler.dataset.formats.importing import import_table
    from op_profiler.dataset.formats.parquet import read_parquet
    from op_profiler.dataset.row import Corun, CorunMember, Model, Row, StoredMeasurement, StoredTiming
    from op_profiler.dataset.store import Dataset

DEFAULT_DB = "sqlite:///results/op_profiler.db"
"""Address of the dataset that is used if the user gives no address."""

__all__ = [
    "COLUMNS",
    "DEFAULT_DB",
    "FORMATS",
    "Corun",
    "CorunMember",
    "Dataset",
    "Exported",
    "Imported",
    "Model",
    "Row",
    "StoredMeasurement",
    "StoredTiming",
    "Table",
    "export_table",
    "flat_rows",
    "hardware_table",
    "import_autotvm",
    "import_table",
    "operator_table",
    "read_parquet",
    "dataset_or_default",
]

_HOMES = {
    "row": ("Corun", "CorunMember", "Model", "Row", "StoredMeasurement", "StoredTiming"),
    "formats": ("FORMATS",),
    "formats.autotvm": ("import_autotvm",),
    "formats.exporting": ("export_table",),
    "formats.format": ("Exported", "Imported"),
    "formats.importing": ("import_table",),
    "formats.parquet": ("read_parquet",),
    "describe": ("Table", "hardware_table", "operator_table"),
    "flat": ("COLUMNS", "flat_rows"),
    "store": ("Dataset",),
}


def dataset_or_default(db: str | None) -> str | None:
    """Return `db`; if it is None, return the address of the default dataset, or None if that dataset does not exist."""
    there = Path(DEFAULT_DB.removeprefix("sqlite:///")).is_file()
    return DEFAULT_DB if db is None and there else db


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
