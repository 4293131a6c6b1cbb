"""`ExportRequest` and `ImportRequest`: the options of ``export`` and ``import``, checked before a dataset is opened."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast, get_args

from op_profiler.dataset import DEFAULT_DB
from op_profiler.dataset.formats import FORMATS, SUFFIXES
from op_profiler.errors import OpProfilerError, UsageError, check_known
from op_profiler.files import check_folder, check_writable
from op_profiler.measure.measurement import Precision
from op_profiler.option_values import or_nothing, parse_names
from op_profiler.options import DbOption, Option

if TYPE_CHECKING:
    from op_profiler.dataset.formats.format import Exported, Imported, Progress

_NARROW = re.compile(r"(?:^|[^a-z0-9])(u?int8|i8|fp16|float16|f16|half)(?![a-z0-9])")
"""Matches a precision other than float32 in a file name."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportRequest:
    """Options of an export: which rows are written, and in which format."""

    format: Annotated[
        str | None,
        Option(
            "Format of the file: {formats}. Default: by the extension .parquet, .csv or .jsonl; parquet if there is no "
            "extension."
        ),
    ] = None
    table: Annotated[
        str, Option("Table to export: measurements, or coruns (times of operators side by side and in isolation).")
    ] = "measurements"
    where: Annotated[str, Option("SQL condition that rows must fulfil; --columns lists the columns.")] = ""
    partition_by: Annotated[
        tuple[str, ...],
        Option(
            "Write a folder of Parquet files, partitioned by the values of these columns, separated by commas.",
            parse=or_nothing(parse_names),
            shown="",
        ),
    ] = ()
    threads: Annotated[int | None, Option("Export only measurements at this thread count.")] = None
    device: Annotated[str | None, Option("Export only measurements of this processor (name) or device (key).")] = None
    db: DbOption = DEFAULT_DB

    def write(self, path: Path) -> Exported:
        """Write the selected rows to a file, or to a partitioned folder.

        Raises:
            UsageError: the rows or the file name do not fit the format, or an option is invalid.
            OpProfilerError: any other error of `export_table`.
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
        """Return the format for the extension of a file's name; ``parquet`` if the name has no extension.

        Raises:
            UsageError: no format has this extension.
        """
        suffix = path.suffix.lower()
        if suffix and suffix not in SUFFIXES and not self.partition_by:
            raise UsageError(
                f"{path}: the end {suffix} determines no format; give --format, or one of {', '.join(SUFFIXES)}"
            )
        return SUFFIXES.get(suffix, "parquet")


def _precision(_: str, text: str) -> Precision:
    """Return the given name if it is a precision; raises UnknownNameError otherwise."""
    check_known("precision", text, get_args(Precision))
    return cast("Precision", text)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImportRequest:
    """Options of an import: format, properties that the file does not contain, and the dataset."""

    format: Annotated[
        str | None,
        Option("Format of the file: {formats}. Default: by the extension .parquet, .csv or .jsonl; otherwise autotvm."),
    ] = None
    device: Annotated[str | None, Option("Name of the measured device, if the file does not contain it.")] = None
    precision: Annotated[
        Precision | None,
        Option(
            "Precision, if the file does not contain it: float32, float16 or int8. Default: float32. Required if the "
            "name of the file has another precision, as in table.int8.txt.",
            parse=_precision,
        ),
    ] = None
    db: DbOption = DEFAULT_DB

    def format_of(self, file: Path) -> str:
        """Return the given format; otherwise the format of the file's extension, or autotvm for other extensions."""
        return self.format or SUFFIXES.get(file.suffix.lower(), "autotvm")

    def read(self, file: Path, progress: Progress | None = None) -> Imported:
        """Store the rows of a file in the dataset.

        Args:
            progress: called with the number of stored rows, and the number of all rows.

        Raises:
            UsageError: an option does not fit the format, or `precision` is required because of the file's name.
            OpProfilerError: the file is missing or of another format, or the dataset cannot be written.
        """
        from op_profiler.dataset import Dataset, import_table

        format = self.format_of(file)
        chosen = FORMATS.get(format)
        if not chosen.reads:
            raise UsageError(f"--format {format}: its files are for viewers; import reads csv, jsonl and parquet")
        if self.device is not None and not chosen.takes_device:
            raise UsageError(f"--device does not go with {format}: every row says where it was measured")
        if self.precision not in (None, "float32") and not chosen.takes_precision:
            raise UsageError(f"--precision does not go with {format}, which says it itself")
        if self.precision is None and chosen.takes_precision and (word := _NARROW.search(file.name.lower())):
            likely = "int8" if word[1].endswith("8") else "float16"
            raise UsageError(
                f"the name {file.name} has {word[1]} in it, and {format} does not say the precision of its times; "
                f"give --precision {likely}, or --precision float32 if they are of float32"
            )
        if not file.is_file():
            raise OpProfilerError(f"{file} does not exist or is no file; give the path of a table")
        precision = self.precision or "float32"
        with Dataset.open(self.db) as dataset:
            return import_table(
                dataset, file, format=format, device=self.device, precision=precision, progress=progress
            )
