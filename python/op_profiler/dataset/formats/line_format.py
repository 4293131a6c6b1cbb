"""Base classes of formats with one operator per line, which contain only a part of a measurement."""

from __future__ import annotations

import abc
import collections
import dataclasses
import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from op_profiler.dataset.formats.format import Exported, Format, Imported, Progress, ReadTable
from op_profiler.errors import UsageError
from op_profiler.files import whole_file
from op_profiler.measure.measurement import RESOURCE_FIELDS
from op_profiler.operators.kinds.shapes import Conv, Shape, Unfit, shape_of

if TYPE_CHECKING:
    from op_profiler.dataset.store import Dataset
    from op_profiler.measure.measurement import Precision
    from op_profiler.operators.operator import Operator

FlatRow = dict[str, Any]
_ALIKE = (
    *("processor", "threads", "cache", "parallel_type", "precision", "origin", "compiler", "target", "executor"),
    *("core_set", *RESOURCE_FIELDS),
    *("machine_id", "tvm_version", "llvm_version", "cores", "device_key"),
)
"""Columns of the flat table that, like the operator, determine its time. The columns from ``machine_id`` on distinguish
devices with the same processor; ``device_key`` covers properties that are not listed."""
_NO_TIMES = {"median_us": 1.0, "min_us": 1.0, "samples_us": []}
"""Fixed values for a row's times, so that two lines are equal if their operators are."""


@dataclasses.dataclass(frozen=True)
class Line:
    """A measurement as a line of a format.

    Attributes:
        shape: the line with the same fixed time for all measurements, so that it identifies the operator. Of lines with
            the same shape, only the fastest is written.
        text: the complete line.
        median_us: median of a call, microseconds; None for a failure.
        conditions: values of the columns in `_ALIKE`, which determine the time of an operator (threads, device, ...).
    """

    shape: str
    text: str
    median_us: float | None
    conditions: tuple[Any, ...]


class LineFormat(Format):
    """Base class of formats that write one line per measurement.

    Attributes:
        header: lines before the measurements.
        every_row: whether all measurements of an operator are written. Otherwise only the fastest is written, and its
            measurements must agree in all conditions (`Line.conditions`) that a line does not contain.
        told: columns of the flat table that a line contains in addition to the operator.
    """

    header: ClassVar[tuple[str, ...]] = ()
    every_row: ClassVar[bool] = False
    told: ClassVar[frozenset[str]] = frozenset()

    @abc.abstractmethod
    def line(self, operator: Operator, row: FlatRow) -> str:
        """Return the line of a measurement.

        Args:
            row: row of the flat table.

        Raises:
            Unfit: the format cannot express the measurement.
        """

    def write_from(
        self, dataset: Dataset, path: Path, *, where: str | None = None, table: str = "measurements"
    ) -> Exported:
        """Write the header and a line for each measurement, or only the fastest of each operator (see `every_row`)."""
        from op_profiler.dataset.flat import flat_rows

        left_out: collections.Counter[str] = collections.Counter()
        found, written, slower = self._lines(flat_rows(dataset, where=where), left_out), 0, 0
        if not self.every_row:
            lines = list(found)
            _refuse_choices(lines, self.told)
            found = iter(fastest := _fastest(lines))
            slower = len(lines) - len(fastest)
        with whole_file(path) as temporary, open(temporary, "w", encoding="utf-8", newline="\n") as file:
            file.writelines(f"{line}\n" for line in self.header)
            for written, line in enumerate(found, 1):  # noqa: B007 - the last one is the number of lines
                file.write(f"{line.text}\n")
        return Exported(written, dict(left_out), slower)

    def _lines(self, rows: Iterable[FlatRow], left_out: collections.Counter[str]) -> Iterator[Line]:
        """Yield the lines of rows; rows without a line are counted in `left_out`, by reason."""
        for row in rows:
            try:
                yield self._line(row)
            except Unfit as error:
                left_out[str(error)] += 1

    def _line(self, row: FlatRow) -> Line:
        from op_profiler.dataset.formats.flat_table import operator_of_row

        if not row["complete"]:
            raise Unfit("a check point of a run that did not finish")
        operator = operator_of_row(row)
        text = self.line(operator, row)
        shape = text if self.every_row else self.line(operator, {**row, **_NO_TIMES})
        return Line(shape, text, row["median_us"], tuple(_stored(row[name]) for name in _ALIKE))


class TableFormat(LineFormat):
    """Base class of formats of other projects, whose operators have plain layouts (not blocked).

    Attributes:
        says_failures: whether a line can mark a failure.
    """

    says_failures: ClassVar[bool] = False

    @abc.abstractmethod
    def read(self, path: Path, precision: Precision) -> ReadTable:
        """Read every row of a file.

        Args:
            precision: dtype of the tensors; see `takes_precision`.

        Raises:
            DatasetError: the file cannot be read, or is of another format.
        """

    @abc.abstractmethod
    def shape_line(self, shape: Shape, row: FlatRow) -> str:
        """Return the line of an operator with this shape; raises Unfit if the format cannot express it."""

    def line(self, operator: Operator, row: FlatRow) -> str:
        """Return the line of an operator; raises Unfit if its layouts are not plain or the format cannot express it."""
        shape = shape_of(operator)
        if row["median_us"] is None and not self.says_failures:
            raise Unfit("a failure, for which the format has no words")
        return self.shape_line(shape, row)

    def read_into(
        self,
        dataset: Dataset,
        path: Path,
        *,
        device: str | None = None,
        precision: Precision = "float32",
        progress: Progress | None = None,
    ) -> Imported:
        """Store the rows that `read` returns."""
        from op_profiler.dataset.formats.importing import store_entries

        return store_entries(dataset, path, self.read(path, precision), device, progress)


def convolution(shape: Shape) -> Conv:
    """Return the given shape if it is a two-dimensional convolution; raise Unfit for any other shape."""
    if not isinstance(shape, Conv):
        raise Unfit("no two-dimensional convolution")
    return shape


def _refuse_choices(lines: Sequence[Line], columns: Collection[str]) -> None:
    """Check that lines that are equal in the columns they contain also agree in all other columns of `_ALIKE`.

    Args:
        columns: columns of `_ALIKE` that lines contain.

    Raises:
        UsageError: lines do not agree; the message lists the values and the option that selects each of them.
    """
    written = [at for at, column in enumerate(_ALIKE) if column in columns]
    for at, column in enumerate(_ALIKE):
        if column in columns:
            continue
        groups: dict[tuple[Any, ...], set[Any]] = {}
        for line in lines:
            groups.setdefault(tuple(line.conditions[one] for one in written), set()).add(line.conditions[at])
        several = next((found for found in groups.values() if len(found) > 1), None)
        if several is not None:
            values = sorted(several, key=lambda value: (value is not None, value))
            choices = " or ".join(_choice(column, value) for value in values[:8])
            raise UsageError(
                f"measurements with more than one {column} fit, and the format does not contain it; {choices}"
            )


def _stored(value: Any) -> Any:
    """Return a value as the database stores it: a list becomes JSON text, so that a condition can be written for it."""
    return json.dumps(value, separators=(",", ":")) if isinstance(value, list) else value


def _choice(column: str, value: Any) -> str:
    """Return the command-line option that selects the rows with this value of a column."""
    if column == "processor":
        return f"--device {value!r}"
    if column == "threads":
        return f"--threads {value}"
    return f'--where "{column} IS NULL"' if value is None else f'--where "{column} = {value!r}"'


def _fastest(lines: Iterable[Line]) -> list[Line]:
    """Return the line with the smallest median for each operator; a failure only if the operator has no time."""
    best: dict[str, Line] = {}
    for line in lines:
        known = best.get(line.shape)
        if known is None or (line.median_us or np.inf) < (known.median_us or np.inf):
            best[line.shape] = line
    return list(best.values())
