"""`Format`, the contract of file formats, and functions that readers of tables share."""

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
"""Columns of a convolution, in the order of `Convolutions.matrix`; `fused`: the residual addition is part of it."""


@dataclasses.dataclass(frozen=True)
class Convolutions:
    """Square convolutions, one an entry of each array, with padding that keeps the size at stride 1.

    Attributes:
        matrix: shape (rows, 8), int64, columns `FIELDS`; `size` is height and width of the input.
        latency_us: shape (rows,), microseconds for the whole batch; NaN where it is not known.
        failed: rows of the source that hold a failure instead of a time; they are not among the entries.
        unreadable: lines of the source that are no rows.
    """

    matrix: np.ndarray
    latency_us: np.ndarray
    failed: int = 0
    unreadable: int = 0

    def __len__(self) -> int:
        return len(self.matrix)

    def column(self, name: str) -> np.ndarray:
        """One of `FIELDS`."""
        values: np.ndarray = self.matrix[:, FIELDS.index(name)]
        return values

    @property
    def ratio(self) -> np.ndarray:
        """Input over output channels, two decimals, rounded down; 0 for a stem (3 input channels)."""
        channels = self.column("in_channels")
        ratios: np.ndarray = np.floor(channels / self.column("out_channels") * 100) / 100
        return np.where(channels == 3, 0.0, ratios)

    def where(self, mask: np.ndarray) -> Convolutions:
        """The entries of a mask or of indices."""
        return Convolutions(self.matrix[mask], self.latency_us[mask])

    @classmethod
    def of(
        cls, rows: Sequence[Sequence[int]] | np.ndarray, latency_us: Sequence[float] | None = None, **counts: int
    ) -> Convolutions:
        """From rows in the order of `FIELDS`."""
        matrix = np.asarray(rows, dtype=np.int64).reshape(-1, len(FIELDS))
        times = np.full(len(matrix), np.nan) if latency_us is None else np.asarray(latency_us, dtype=np.float64)
        return cls(matrix, times, **counts)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableRow:
    """One row of a table of others.

    Attributes:
        samples_us: microseconds of one call; more than one where the table keeps percentiles. Empty for a failure.
        median_us: microseconds; None for a failure.
        error: why there is no time; None where there is one.
        device: where it was measured, where the row says so.
        remark: what looks wrong about the row itself.
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
        """With one time, or None for a row that its table marks as failed."""
        if latency_us is None:
            return cls(shape=shape, error="failed when the table was made", device=device, remark=remark)
        return cls(shape=shape, samples_us=(latency_us,), median_us=latency_us, device=device, remark=remark)


@dataclasses.dataclass(frozen=True)
class ReadTable:
    """What was read of a file.

    Attributes:
        entries: rows that were understood, with the numbers of their lines, from 1.
        unreadable: number of each line that is no row, and why.
        unknown: rows of a kind that has no operator here, by its name.
        mechanism: what the times are, in the words of ``Settings.cache_mechanism``.
    """

    entries: Sequence[tuple[int, TableRow]]
    unreadable: Sequence[tuple[int, str]] = ()
    unknown: dict[str, int] = dataclasses.field(default_factory=dict)
    mechanism: str = ""


@dataclasses.dataclass(frozen=True)
class Imported:
    """What an import did.

    Attributes:
        rows: measurements that are in the dataset now.
        failed: of these, trials that had failed.
        unreadable: lines that are no rows of the format (truncated, foreign, of another version).
        unknown: rows of a kind of operator that is not known here, by its name.
        known: rows that the dataset had already, as new, newer or better, and that were left as they are.
        merged: rows that measure the same as another row of the file and became samples of one measurement.
        failed_beside: failed rows of what another row of the file tells; they are not stored.
        suspicious: rows that look wrong, by the kind of `checks.Finding`; they are stored all the same.
        examples: the first of these, as text.
        problems: the first of the unreadable lines with the reason, as text.
        rejected: rows of a known kind whose operator cannot be described for certain, by the reason.
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
    """What an export did.

    Attributes:
        rows: measurements written.
        left_out: measurements that the format has no words for, by the reason.
        slower: measurements that are not in the file since a faster one of the same line is.
        none_since: why no row was written where nothing was left out; None otherwise.
    """

    rows: int
    left_out: dict[str, int] = dataclasses.field(default_factory=dict)
    slower: int = 0
    none_since: str | None = None


Progress = Callable[[int, int], None]
"""Called with the rows that are stored, and how many there are."""


class Format(abc.ABC):
    """A format of files, in both directions if `reads`. Its subclasses are registered in `op_profiler.dataset.formats`.

    Attributes:
        reads: False for files that are only written; `read_into` raises UsageError then.
        takes_device: False where every row says where it was measured, and nobody else may.
        takes_precision: True where `read_into` has to be told the dtype of the tensors, which the format does not say.
        tables: those of `op_profiler.dataset.flat.TABLES` that can be written.
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
        """Store every row of a file, in one transaction. The same file twice adds nothing.

        Args:
            device: name of the device that was measured; None: what the file says, else the file's name.
            precision: of the tensors; see `takes_precision`.

        Raises:
            OpProfilerError: the file cannot be read or is of another format.
            DatasetError: likewise, or the dataset cannot be written.
        """

    @abc.abstractmethod
    def write_from(
        self, dataset: Dataset, path: Path, *, where: str | None = None, table: str = "measurements"
    ) -> Exported:
        """Write what fits into the format. The file appears under its name when it is whole.

        Args:
            where: condition in SQL over the columns of the flat table.
            table: one of `tables`.

        Raises:
            UsageError: a condition that cannot be used, or one that leaves a choice; names what to choose from.
            DatasetError: the dataset cannot be read.
            OpProfilerError: the file cannot be written.
            MissingPackageError: a package that the format needs is not installed.
        """


class UnknownKindError(ValueError):
    """A row that is well formed, of a kind of operator that has no counterpart here; the text is its name."""


def read_entries(lines: Iterable[tuple[int, str]], parse: Callable[[str], TableRow], *, mechanism: str) -> ReadTable:
    """A table from its numbered lines and the function that understands one of them.

    Args:
        parse: raises ValueError with the reason for a line that is no row.
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
    """Lines that hold something, without the blanks around them, with their numbers from 1; ``#`` begins a comment.

    Raises:
        DatasetError: it cannot be read, or is no text.
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
    """A latency in microseconds; None for -1, which marks a failure.

    Args:
        us: microseconds in one unit of the table.

    Raises:
        ValueError: no positive number.
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
    """A whole number; ``3.0``, as pandas writes it, is one.

    Raises:
        ValueError: not a whole number.
    """
    try:
        return int(text)
    except ValueError:
        value = float(text)
        if not value.is_integer():
            raise ValueError(f"{text[:40]!r} is no whole number") from None
        return int(value)


def number_text(value: float) -> str:
    """A latency as the tables write it: at most 9 digits, which keeps every measured one."""
    return f"{value:.9g}"
