"""`AnalyzeRequest`: the options of ``op-profiler analyze``, checked without heavy imports."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from op_profiler.dataset import DEFAULT_DB
from op_profiler.errors import UsageError
from op_profiler.option_values import parse_names
from op_profiler.options import Option
from op_profiler.shipped import shipped_trials

if TYPE_CHECKING:
    from op_profiler.analysis.table import Factor, FactorTable


def _factors(option: str, text: str) -> tuple[str, ...]:
    return () if text == "all" else parse_names(option, text)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AnalyzeRequest:
    """Options of an analysis: the measurements, and the names of the factors; if no name is given, all factors are
    analyzed."""

    db: Annotated[
        str | None, Option(f"Dataset (SQLAlchemy URL). Default: {DEFAULT_DB} and the trials included with the package.")
    ] = None
    file: Annotated[Path | None, Option("Parquet file written by op-profiler export, to analyze instead of --db.")] = (
        None
    )
    factors: Annotated[
        tuple[str, ...],
        Option(
            "Factors to analyze, separated by commas: input_size, batch, input_channels, output_channels, kernel, "
            "stride, flops, bytes, arithmetic_intensity, template, tile, split, fuse, reorder, compute_at, vectorize, "
            "unroll, parallel, threads, cache, precision, past (tokens in a decoder's cache), one axis such as tile.oc "
            "or split.ic; or all.",
            flags=("--factor",),
            parse=_factors,
            shown="all",
        ),
    ] = ()
    anchor: Annotated[
        str | None,
        Option("Analyze only operators whose heaviest op is this one, such as nn.conv2d. Default: each op separately."),
    ] = None
    include_noisy: Annotated[bool, Option("Also use times that were disturbed (background load, unsteady rounds).")] = (
        False
    )
    threshold: Annotated[
        float, Option("Least share of the latency that a larger value of a factor must save to be worth it, 0 to 1.")
    ] = 0.05

    def check(self) -> None:
        """Reject options that exclude each other or are out of range; raises UsageError."""
        if self.db is not None and self.file is not None:
            raise UsageError("give --db or --file, not both")
        if not 0 <= self.threshold < 1:
            raise UsageError(
                f"--threshold {self.threshold:g} is out of range; give 0 or more and less than 1, e.g. 0.05"
            )

    def read(self, note: Callable[[str], None]) -> tuple[FactorTable, list[Factor]]:
        """Return the requested measurements and factors.

        Args:
            note: called with the reason why the default dataset is left out.

        Raises:
            UnknownNameError: there is no such factor or anchor.
            DatasetError: the measurements cannot be read, or no measurement can be used.
        """
        from op_profiler.analysis.table import factor_table, load_rows

        default = self.db is None and self.file is None
        db, file = (DEFAULT_DB, shipped_trials()) if default else (self.db, self.file)
        rows = load_rows(db, file, optional_db=default, warn=note)
        table = factor_table(rows, noisy=self.include_noisy)
        chosen = table.choose(self.factors or list(table.factors))
        return table if self.anchor is None else table.of_anchor(self.anchor), chosen
