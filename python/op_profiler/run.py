"""`Run`: the result of a collection of one model, for Python programs and notebooks."""

from __future__ import annotations

import dataclasses
import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from op_profiler.collection.summary import ModelReport
from op_profiler.dataset import Dataset
from op_profiler.report.collection import show_model

if TYPE_CHECKING:
    import pandas as pd


_MOST_LINES = 20
"""Largest number of lines in the text of a run; its display in a notebook is complete."""


class Run(ModelReport):
    """Result of a collection of one model, whose text and notebook display are the tables of ``op-profiler collect``.

    >>> import op_profiler
    >>> run = op_profiler.collect("mlp", threads=[1], db="sqlite:///mlp.db")
    >>> sorted(run.to_pandas().anchor.unique())
    ['nn.contrib_dense_pack', 'nn.softmax']
    """

    @classmethod
    def of(cls, report: ModelReport) -> Run:
        """Create a run with the fields of a report."""
        return cls(**{field.name: getattr(report, field.name) for field in dataclasses.fields(report)})

    def to_pandas(self) -> pd.DataFrame:
        """Return all measurements of the model in the dataset, including those of earlier runs, as `Dataset.to_pandas`.

        After a search for schedules, the rows are from both builds (default schedules, found schedules); the column
        `model_build` distinguishes them.

        Raises:
            DatasetError: the dataset cannot be read.
            MissingPackageError: pandas is not installed.
        """
        keys = {run.model_key for run in (self, self.base) if run is not None}
        with Dataset.open(self.request.db, read_only=True) as dataset:
            return dataset.to_pandas(" or ".join(f"model_key = '{key}'" for key in sorted(keys)))

    def report(self, path: str | Path) -> None:
        """Write all results of the model as one HTML page, which opens offline.

        Raises:
            OpProfilerError: there is nothing to report, or the file cannot be written.
        """
        from op_profiler.report.page.report import write_model_report

        with Dataset.open(self.request.db, read_only=True) as dataset:
            write_model_report(Path(path), dataset, [self.model_key])

    def __repr__(self) -> str:
        lines = self._table(html=False).splitlines()
        left = len(lines) - _MOST_LINES
        if left > 0:
            lines[_MOST_LINES - 1 :] = [f"... {left + 1} more lines; report(path) writes all, to_pandas() has the rows"]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return self._table(html=True)

    def _table(self, *, html: bool) -> str:
        from rich.console import Console

        console = Console(file=io.StringIO(), record=True, width=None if not html and sys.stdout.isatty() else 150)
        show_model(console, self)
        if html:
            return console.export_html(inline_styles=True, code_format="<pre>{code}</pre>")
        return console.export_text().rstrip()
