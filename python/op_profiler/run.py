"""`Run`: the result of a collection of one model, for Python programs and notebooks."""

from __future__ import annotations

import dataclasses
import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from op_profiler.collection.summary import ModelReport
from op_profiler.dataset import Dataset, flat_rows
from op_profiler.errors import MissingPackageError
from op_profiler.report.collection import show_model

if TYPE_CHECKING:
    import pandas as pd


class Run(ModelReport):
    """Result of a collection of one model, whose text and notebook display are the tables of ``op-profiler collect``.

    >>> import op_profiler
    >>> run = op_profiler.collect("mlp", threads=[1], db="sqlite:///mlp.db")
    >>> sorted(run.to_pandas().anchor.unique())
    ['nn.contrib_dense_pack', 'nn.softmax']
    """

    @classmethod
    def of(cls, report: ModelReport) -> Run:
        """Return the report as a run."""
        return cls(**{field.name: getattr(report, field.name) for field in dataclasses.fields(report)})

    def to_pandas(self) -> pd.DataFrame:
        """Return all measurements of the model in the dataset, including those of earlier runs.

        Returns:
            One row per measurement, with the columns of ``op-profiler export --columns``.

        Raises:
            DatasetError: the dataset cannot be read.
            MissingPackageError: pandas is not installed.
        """
        try:
            import pandas as pd
        except ImportError:
            raise MissingPackageError("pandas", "to_pandas()", extra="predict") from None

        from op_profiler.dataset.flat import MEASUREMENTS

        names = [column.name for column in MEASUREMENTS.columns]
        with Dataset.open(self.request.db, read_only=True) as dataset:
            return pd.DataFrame(list(flat_rows(dataset, where=f"model_key = '{self.model_key}'")), columns=names)

    def report(self, path: str | Path) -> None:
        """Write all results of the model as one HTML page, which needs no network.

        Raises:
            OpProfilerError: there is nothing to report, or the file cannot be written.
        """
        from op_profiler.report.page.report import write_model_report

        with Dataset.open(self.request.db, read_only=True) as dataset:
            write_model_report(Path(path), dataset, [self.model_key])

    def __repr__(self) -> str:
        return self._table(html=False)

    def _repr_html_(self) -> str:
        return self._table(html=True)

    def _table(self, *, html: bool) -> str:
        from rich.console import Console

        console = Console(file=io.StringIO(), record=True, width=None if not html and sys.stdout.isatty() else 150)
        show_model(console, self)
        if html:
            return console.export_html(inline_styles=True, code_format="<pre>{code}</pre>")
        return console.export_text().rstrip()
