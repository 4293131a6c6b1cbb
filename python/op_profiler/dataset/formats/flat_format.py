"""Formats that hold a flat table as it is, one row a row."""

from __future__ import annotations

import abc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from op_profiler.dataset.flat import COLUMNS, TABLES, Column, flat_rows, flat_table
from op_profiler.dataset.formats.flat_table import ADDED_LATER, FlatRow
from op_profiler.dataset.formats.format import Exported, Format, Imported, Progress
from op_profiler.errors import DatasetError
from op_profiler.files import whole_file

if TYPE_CHECKING:
    from op_profiler.dataset.store import Dataset
    from op_profiler.measure.measurement import Precision


class FlatFormat(Format):
    """A subclass says how rows are read, and how a dataset is written."""

    takes_device = False
    tables = tuple(TABLES)

    @abc.abstractmethod
    def read(self, path: Path) -> Iterator[tuple[int, FlatRow | None]]:
        """The rows of a file with their numbers from 1; None for a row that is cut off or holds cells of another type.

        Raises:
            DatasetError: it cannot be read, or lacks columns; says which.
        """

    def read_into(
        self,
        dataset: Dataset,
        path: Path,
        *,
        device: str | None = None,
        precision: Precision = "float32",
        progress: Progress | None = None,
    ) -> Imported:
        from op_profiler.dataset.formats.importing import store_flat

        return store_flat(dataset, self.read(path), progress)


class FlatTextFormat(FlatFormat):
    """A subclass says how rows are written."""

    @abc.abstractmethod
    def write(self, path: Path, columns: Sequence[Column], rows: Iterable[FlatRow]) -> int:
        """Write the rows of a flat table; how many there were."""

    def write_from(
        self, dataset: Dataset, path: Path, *, where: str | None = None, table: str = "measurements"
    ) -> Exported:
        flat = flat_table(table)
        with whole_file(path) as temporary:
            return Exported(self.write(temporary, flat.columns, flat_rows(dataset, where=where, table=flat)))


def check_columns(path: Path, found: Mapping[str | Any, Any]) -> None:
    """Refuse a file that lacks columns of the flat table.

    Raises:
        DatasetError: some are missing; says which.
    """
    names = [column.name for column in COLUMNS if column.name not in ADDED_LATER]
    missing = [name for name in names if name not in found]
    if missing:
        named = ", ".join(missing[:6]) + (f" and {len(missing) - 6} more" if len(missing) > 6 else "")
        raise DatasetError(
            f"{path} has other columns than 'op-profiler export' writes: {named} missing; "
            "'op-profiler export --columns' lists all"
        )
