"""What a user wants exported, checked before the dataset is opened."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from op_profiler.dataset import DEFAULT_DB
from op_profiler.dataset.formats import SUFFIXES
from op_profiler.errors import UsageError
from op_profiler.files import check_folder, check_writable
from op_profiler.option_values import or_nothing, parse_names
from op_profiler.options import DbOption, Option

if TYPE_CHECKING:
    from op_profiler.dataset.formats.format import Exported


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportRequest:
    """Which rows, and into what."""

    format: Annotated[
        str | None,
        Option(
            "Of the file: {formats}. Left out: what its name ends with, .parquet, .csv or .jsonl; parquet where "
            "it has no end."
        ),
    ] = None
    table: Annotated[
        str, Option("measurements, or coruns: operators that ran side by side, beside themselves alone.")
    ] = "measurements"
    where: Annotated[str, Option("SQL condition over the columns; see --columns.")] = ""
    partition_by: Annotated[
        tuple[str, ...],
        Option(
            "Columns, by commas: a folder of Parquet files, parted by their values as DuckDB reads it.",
            parse=or_nothing(parse_names),
            shown="",
        ),
    ] = ()
    threads: Annotated[int | None, Option("Only what was measured with this many threads.")] = None
    device: Annotated[str | None, Option("Only this processor (its name) or device (its key).")] = None
    db: DbOption = DEFAULT_DB

    def write(self, path: Path) -> Exported:
        """Write a file, or a folder of several.

        Raises:
            UsageError: the rows or the name do not fit the format; else as `export_table`.
        """
        from op_profiler.dataset import Dataset, export_table

        if self.threads is not None and self.threads < 0:
            raise UsageError(f"--threads {self.threads} is out of range; give 1 or more, or 0 for what ran on a GPU")
        if self.partition_by and SUFFIXES.get(path.suffix.lower(), "parquet") != "parquet":
            raise UsageError(
                f"--partition-by makes a folder of Parquet files, not {path}; give a name without that end"
            )
        format = self.format or self._format_of(path)
        if self.partition_by:
            check_folder("--output", path.absolute().parent)
        else:
            check_writable({"--output": path})
        with Dataset.open(self.db, create=False, read_only=True) as dataset:
            return export_table(
                dataset,
                path,
                format=format,
                where=self.where or None,
                threads=self.threads,
                device=self.device,
                table=self.table,
                partition_by=self.partition_by,
            )

    def _format_of(self, path: Path) -> str:
        """By the end of a file's name.

        Raises:
            UsageError: it is of no format that is known by it.
        """
        suffix = path.suffix.lower()
        if suffix and suffix not in SUFFIXES and not self.partition_by:
            raise UsageError(
                f"{path}: the end {suffix} tells no format; give --format, or one of {', '.join(SUFFIXES)}"
            )
        return SUFFIXES.get(suffix, "parquet")
