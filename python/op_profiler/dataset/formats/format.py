"""`Format`, the base class of file formats, and types and functions that the readers of tables share."""

from __future__ import annotations

import abc
import collections
import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from op_profiler.errors import DatasetError
from op_profiler.operators.kinds.shapes import Shape

if TYPE_CHECKING:
    from op_profiler.dataset.store import Dataset
    from op_profiler.measure.measurement import Precision

FIELDS = ("depthwise", "batch", "in_channels", "size", "out_channels", "kernel", "stride", "fused")
"""Columns of `Convolutions.matrix`, in order; `fused` is 1 if the residual addition is included."""


@dataclasses.dataclass(frozen=True)
class Convolutions:
    """Square convolutions, one per entry of each array, with padding that keeps the size at stride 1.

    Attributes:
        matrix: shape (rows, 8), int64, columns `FIELDS`; `size` is height and width of the input.
        latency_us: shape (rows,), microseconds for the whole batch; NaN if unknown.
        failed: number of rows of the source with a failure instead of a time; they have no entries.
        unreadable: number of lines of the source that are not valid rows.
    """

    matrix: np.ndarray
    latency_us: np.ndarray
    failed: int = 0
    unreadable: int = 0

    def __len__(self) -> int:
        return len(self.matrix)

    def column(self, name: str) -> np.ndarray:
        """Return the values of one of `FIELDS`."""
        values: np.ndarray = self.matrix[:, FIELDS.index(name)]
        return values

    @property
    def ratio(self) -> np.ndarray:
        """Return the ratio of input to output channels, rounded down to two decimals; 0 for 3 input channels (stem)."""
        channels = self.column("in_channels")
        ratios: np.ndarray = np.floor(channels / self.column("out_channels") * 100) / 100
        return np.where(channels == 3, 0.0, ratios)

    def where(self, mask: np.ndarray) -> Convolutions:
        """Return the convolutions that a boolean mask or an array of indices selects."""
        return Convolutions(self.matrix[mask], self.latency_us[mask])

    @classmethod
    def of(
        cls, rows: Sequence[Sequence[int]] | np.ndarray, latency_us: Sequence[float] | None = None, **counts: int
    ) -> Convolutions:
        """Create convolutions from rows with the columns `FIELDS`; without `latency_us`, all times are NaN.

        Args:
            counts: values of the attributes `failed` and `unreadable`.
        """
        matrix = np.asarray(rows, dtype=np.int64).reshape(-1, len(FIELDS))
        times = np.full(len(matrix), np.nan) if latency_us is None else np.asarray(latency_us, dtype=np.float64)
        return cls(matrix, times, **counts)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableRow:
    """One row of a table of another project.

    Attributes:
        samples_us: times of one call, microseconds: one value, or all percentiles of the row. Empty for a failure.
        median_us: median of one call, microseconds; None for a failure.
        error: why the row has no time; None for a row with a time.
        device: device of the measurement; None if the row does not name it.
        remark: why the row is suspicious; None if it is not.
    """

    shape: Shape
    samples_us: tuple[float, ...] = ()
    median_us: float | None = None
    error: str | None = None
    device: str | None = None
    remark: str | None = None

    @classmethod
    def of(
        cls, shape: Shape, latency_us: float | None, *, device: str | None = None, remark: str | None = None
    ) -> TableRow:
        """Create a row with one time in microseconds; if the time is None, the row is a failure."""
        if latency_us is None:
            return cls(shape=shape, error="failed when the table was made", device=device, remark=remark)
        return cls(shape=shape, samples_us=(latency_us,), median_us=latency_us, device=device, remark=remark)


@dataclasses.dataclass(frozen=True)
class ReadTable:
    """Contents of a table of another project.

    Attributes:
        entries: valid rows with their line numbers, from 1.
        unreadable: line number of each invalid line, and why it is invalid.
        unknown: number of rows of unsupported kinds of operators, by the name of the kind.
        mechanism: how the table's cache state was reached, for ``Settings.cache_mechanism``.
    """

    entries: Sequence[tuple[int, TableRow]]
    unreadable: Sequence[tuple[int, str]] = ()
    unknown: dict[str, int] = dataclasses.field(default_factory=dict)
    mechanism: str = ""


@dataclasses.dataclass(frozen=True)
class Imported:
    """Result of an import.

    Attributes:
        rows: number of measurements that were stored.
        failed: number of failed measurements in the file.
        unreadable: number of lines that are not valid rows of the format (truncated, of another format or version).
        unknown: number of rows of unsupported kinds of operators, by the name of the kind.
        known: number of rows that the dataset already had in equal, newer or better form; they are unchanged.
        merged: number of rows that became samples of the same measurement as another row of the file.
        failed_beside: number of failed rows that were left out, because another row belongs to the same measurement.
        suspicious: number of suspicious rows, by the kind of `checks.Finding`; they are stored.
        examples: descriptions of the first suspicious rows.
        problems: descriptions of the first invalid lines.
        rejected: number of rows of a supported kind whose operator is invalid or ambiguous, by reason.
    """

    rows: int
    failed: int
    unreadable: int
    unknown: dict[str, int]
    known: int = 0
    merged: int = 0
    failed_beside: int = 0
    suspicious: dict[str, int] = dataclasses.field(default_factory=dict)
    examples: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    rejected: dict[str, int] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Exported:
    """Result of an export.

    Attributes:
        rows: number of measurements that were written.
        left_out: number of measurements that the format cannot express, by reason.
        slower: number of measurements that were left out because the file has a faster one of the same operator.
        none_since: why the export is empty, if no measurement was selected; otherwise None.
    """

    rows: int
    left_out: dict[str, int] = dataclasses.field(default_factory=dict)
    slower: int = 0
    none_since: str | None = None


Progress = Callable[[int, int], None]
"""Called with the number of stored rows and the number of all rows."""


class Format(abc.ABC):
    """A file format for export, and for import if `reads` is true. `op_profiler.dataset.formats` lists the subclasses.

    Attributes:
        reads: False for formats that cannot be imported; `read_into` then raises UsageError.
        takes_device: False if every row names its device, so that the user must not give a device.
        takes_precision: True if `read_into` needs the dtype of the tensors, because the format does not contain it.
        tables: tables of `op_profiler.dataset.flat.TABLES` that can be written.
    """

    reads: ClassVar[bool] = True
    takes_device: ClassVar[bool] = True
    takes_precision: ClassVar[bool] = False
    tables: ClassVar[tuple[str, ...]] = ("measurements",)

    @abc.abstractmethod
    def read_into(
        self,
        dataset: Dataset,
        path: Path,
        *,
        device: str | None = None,
        precision: Precision = "float32",
        progress: Progress | None = None,
    ) -> Imported:
        """Store every row of a file in one transaction. Reading the same file twice adds nothing.

        Args:
            device: name of the measured device; None: the name in the file, or else a name with the file's name.
            precision: dtype of the tensors; see `takes_precision`.
            progress: called with the number of stored rows and the number of all rows.

        Raises:
            OpProfilerError: the file cannot be read or is of another format.
            DatasetError: the dataset cannot be written; some formats also raise it for a file that cannot be read.
        """

    @abc.abstractmethod
    def write_from(
        self, dataset: Dataset, path: Path, *, where: str | None = None, table: str = "measurements"
    ) -> Exported:
        """Write the rows that the format can express. The file appears under its name only when it is complete.

        Args:
            where: condition in SQL over the columns of the flat table.
            table: one of `tables`.

        Raises:
            UsageError: the condition is invalid, or the rows differ in a value that the format does not contain.
            DatasetError: the dataset cannot be read.
            OpProfilerError: the file cannot be written.
            MissingPackageError: a package that the format needs is not installed.
        """


class UnknownKindError(ValueError):
    """Raised for a valid row whose kind of operator is not supported; the message is the name of the kind."""


def read_entries(lines: Iterable[tuple[int, str]], parse: Callable[[str], TableRow], *, mechanism: str) -> ReadTable:
    """Parse the numbered lines of a table.

    Args:
        parse: parses one line; raises ValueError with the reason if the line is invalid.
        mechanism: see `ReadTable`.
    """
    entries: list[tuple[int, TableRow]] = []
    unreadable: list[tuple[int, str]] = []
    unknown: collections.Counter[str] = collections.Counter()
    for number, line in lines:
        try:
            entries.append((number, parse(line)))
        except UnknownKindError as error:
            unknown[str(error)] += 1
        except ValueError as error:
            unreadable.append((number, str(error)))
    return ReadTable(entries, unreadable, dict(unknown), mechanism)


def numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the stripped lines of a text file with their numbers, from 1, without empty lines and ``#`` comments.

    Raises:
        DatasetError: the file cannot be read, or is not text.
    """
    try:
        with open(path, encoding="utf-8", newline="\n") as file:
            for number, line in enumerate(file, 1):
                if (stripped := line.strip()) and not stripped.startswith("#"):
                    yield number, stripped
    except UnicodeDecodeError as error:
        raise DatasetError(f"{path} is no text file; give a table of the format that --format names") from error
    except OSError as error:
        raise DatasetError(f"{path} cannot be read: {error.strerror or error}") from error


def latency(text: str, *, us: float) -> float | None:
    """Parse a latency and return it in microseconds; None for -1, which marks a failure.

    Args:
        us: microseconds per unit of the table.

    Raises:
        ValueError: the text is neither a positive number nor -1.
    """
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"{text[:40]!r} is no latency") from None
    if value == -1:
        return None
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{text[:40]} is no latency; a failure is -1")
    return value * us


def whole(text: str) -> int:
    """Parse an integer; ``3.0``, as pandas writes integers, is accepted.

    Raises:
        ValueError: the text is not an integer.
    """
    try:
        return int(text)
    except ValueError:
        value = float(text)
        if not value.is_integer():
            raise ValueError(f"{text[:40]!r} is no whole number") from None
        return int(value)


def number_text(value: float) -> str:
    """Return a latency as text with at most 9 significant digits; a measured time is less precise than that."""
    return f"{value:.9g}"
