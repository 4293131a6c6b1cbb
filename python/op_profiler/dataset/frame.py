"""Flat tables as pandas DataFrames."""

from __future__ import annotations

from typing import TYPE_CHECKING

from op_profiler.dataset.database import OpenDatabase
from op_profiler.dataset.flat import flat_rows, flat_table
from op_profiler.errors import needing

if TYPE_CHECKING:
    import pandas as pd


def flat_frame(dataset: OpenDatabase, where: str | None, table: str) -> pd.DataFrame:
    """Return the rows of a flat table as a DataFrame; the implementation of `Dataset.to_pandas`.

    Raises:
        MissingPackageError: pandas is not installed.
        UsageError: the condition is invalid, or the table does not exist.
    """
    with needing("pandas", "to_pandas()", extra="predict"):
        import pandas as pd

    flat = flat_table(table)
    return pd.DataFrame(flat_rows(dataset, where=where, table=flat), columns=[column.name for column in flat.columns])
