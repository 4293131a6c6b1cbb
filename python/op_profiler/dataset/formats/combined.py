"""Combines datasets, Parquet files and folders of Parquet files into one dataset."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import Select, func, select

from op_profiler.addresses import without_password
from op_profiler.dataset import schema
from op_profiler.dataset.address import absolute_address, is_sqlite_path, parse_url
from op_profiler.dataset.flat import MEASUREMENTS
from op_profiler.dataset.formats import parquet
from op_profiler.dataset.formats.flat_table import store_flat
from op_profiler.dataset.merging import merge
from op_profiler.dataset.store import Dataset
from op_profiler.errors import DatasetError, UsageError
from op_profiler.files import check_folder, check_writable, explained, locked
from op_profiler.option_values import several

Announce = Callable[[str], None]
_NAMED_IN_ROWS = {
    key.column.table.name: key.parent
    for key in sorted(schema.measurements.foreign_keys, key=lambda key: key.column.table.name)
}
"""Tables of which a Parquet file contains only the rows that its measurements refer to, with the referring columns."""


@dataclasses.dataclass(frozen=True)
class CombinationResult:
    """Result of `combine`: numbers of rows by table.

    Attributes:
        written: rows that were added, or that replaced rows of worse quality.
        left_out: rows of the sources that were not written, because a Parquet file cannot store them.
    """

    written: dict[str, int]
    left_out: dict[str, int]


def combine(
    sources: Sequence[str], into: str, *, partition_by: Sequence[str] = (), announce: Announce = lambda step: None
) -> CombinationResult:
    """Merge datasets, Parquet files and folders of Parquet files into one destination, by the rules of `merge`.

    A Parquet file contains measurements with their models, but not failures next to times, code of kernels and co-runs;
    a Parquet destination loses these. Rows of Parquet files are copied to a temporary dataset on disk, so that memory
    does not grow with their number. Only one process at a time writes to a file or folder; others wait.

    Args:
        sources: addresses of datasets, or paths of Parquet files and folders.
        into: destination, an address or a path; its rows are kept.
        partition_by: columns that partition a folder of Parquet files (`parquet.write_parts`), which is created if it
            does not exist. Without columns, an existing folder keeps its partition columns.
        announce: called with a message before each slow step.

    Raises:
        UsageError: a source cannot be merged, `into` is or is inside one of the sources, or `into` does not fit
            `partition_by`.
        DatasetError: a database or a file cannot be read or written; then nothing was changed.
    """
    into, sources = _addressed(into), [_addressed(source) for source in sources]
    if not is_parquet(into) and "://" not in into and not partition_by:
        raise UsageError(
            f"--into {into} is neither the address of a dataset, nor a name that ends with .parquet, nor a folder; a "
            "folder of Parquet files is made with --partition-by"
        )
    if other := next((source for source in sources if "://" not in source and not is_parquet(source)), None):
        raise UsageError(
            f"{other} is neither the address of a dataset, nor a .parquet file or a folder of them, which merge takes; "
            "other tables go into a dataset with op-profiler import --format csv FILE"
        )
    if any(_same(into, source) for source in sources):
        address = without_password(into)
        raise UsageError(f"--into {address} is one of the sources; leave it out there, it keeps what it holds")
    if inside := next((source for source in sources if _is_inside(into, source)), None):
        raise UsageError(f"--into {into} lies in {inside}, which is one of the sources; give a path outside of it")
    columns = _columns_of(into, partition_by)
    if columns is None and not is_parquet(into):
        return CombinationResult(_merged(sources, into, announce), {})
    if columns is None:
        check_writable({"--into": Path(into)})
    else:
        check_folder("--into", Path(os.path.realpath(into)).parent)
    with _alone(into, announce), _gathered(sources, into, announce) as (dataset, done):
        if columns is None:
            parquet.FORMAT.write_from(dataset, Path(into))
        else:
            parquet.write_parts(dataset, Path(into), columns, replace=True)
    return done


def _addressed(place: str) -> str:
    """Return the address of a SQLite file that is given by its path; any other text unchanged."""
    return f"sqlite:///{place}" if is_sqlite_path(place) and not Path(place).is_dir() else place


def is_parquet(place: str) -> bool:
    """Return whether a destination is a path of Parquet files, not the address of a database."""
    return "://" not in place and (place.endswith(".parquet") or Path(place).is_dir())


def _same(one: str, other: str) -> bool:
    paths = ["://" not in place for place in (one, other)]
    if any(paths):
        return all(paths) and os.path.realpath(one) == os.path.realpath(other)
    return parse_url(absolute_address(one)) == parse_url(absolute_address(other))


def _is_inside(into: str, source: str) -> bool:
    """Return whether a destination would be part of a source."""
    if "://" in into or "://" in source:
        return False
    return Path(os.path.realpath(source)) in Path(os.path.realpath(into)).parents


def _columns_of(into: str, columns: Sequence[str]) -> Sequence[str] | None:
    """Return the partition columns of a folder; None if the destination is not a folder.

    Raises:
        UsageError: the destination cannot be replaced, or the columns cannot be used.
    """
    folder = Path(into)
    if not columns and not folder.is_dir():
        return None
    if "://" in into or folder.is_file():
        raise UsageError(f"--partition-by is for a folder of Parquet files, not for --into {without_password(into)}")
    parquet.check_parts(MEASUREMENTS, columns)
    there = parquet.parted_by(folder) if folder.is_dir() else None
    if there is None and not columns:
        raise UsageError(f"--into {into} is an empty folder; --partition-by names the columns that part it")
    return columns or there or ()


@contextlib.contextmanager
def _alone(into: str, announce: Announce) -> Iterator[None]:
    """Wait for other processes that merge into the same file or folder, and lock it: otherwise rows could be lost."""
    place = Path(os.path.realpath(into))
    name = hashlib.sha256(os.fsencode(place.name)).hexdigest()[:16]  # a longer one might be too long
    with contextlib.ExitStack() as stack:
        with explained(f"--into {into}"):
            lock = locked(
                place.with_name(f".op_profiler-{name}.lock"),
                lambda: announce(f"waiting: another process merges into {into}"),
            )
            stack.enter_context(lock)
        yield


@contextlib.contextmanager
def _gathered(sources: Sequence[str], into: str, announce: Announce) -> Iterator[tuple[Dataset, CombinationResult]]:
    """Yield a temporary dataset with the rows to write to a file or folder, and the result of the combination.

    The dataset contains the rows of the existing destination and of all sources.
    """
    with _temporary() as url:
        path, before = Path(into), dict.fromkeys(_NAMED_IN_ROWS, 0)
        if path.is_file() or (path.is_dir() and any(path.rglob("*.parquet"))):
            parquet.refuse_unknown_columns(path)
            with Dataset.open(url) as kept:
                _read(path, kept, announce)
                before = _named_in_rows(kept)
        measurements = _merged(sources, url, announce)["measurements"]
        announce(f"writing {into}")
        with Dataset.open(url, read_only=True) as dataset:
            named = _named_in_rows(dataset)
            written = {name: named[name] - before[name] for name in named} | {"measurements": measurements}
            yield dataset, CombinationResult(written, _left_out(dataset, named))


def _named_in_rows(dataset: Dataset) -> dict[str, int]:
    """Return by table the number of rows (models, operators, ...) to which a dataset's measurements refer."""
    keys = _NAMED_IN_ROWS.items()
    return {name: _count(dataset, select(key).where(key.is_not(None)).distinct()) for name, key in keys}


def _left_out(dataset: Dataset, named: dict[str, int]) -> dict[str, int]:
    """Return by table the number of rows that a Parquet file cannot store; tables without any are left out."""
    failed = select(schema.measurements.c.key).where(schema.measurements.c.error.is_not(None))
    rows = {
        "models": select(schema.models.c.key),
        "operators": select(schema.operators.c.key),
        "explanations": select(schema.explanations.c.model_key),
        "failures": select(schema.failures.c.key).where(schema.failures.c.measured_key.not_in(failed)),
        "coruns": select(schema.coruns.c.key),
    }
    left = {name: _count(dataset, these) - named.get(name, 0) for name, these in rows.items()}
    return {name: count for name, count in left.items() if count}


def _count(dataset: Dataset, rows: Select[Any]) -> int:
    (row,) = dataset.rows(select(func.count().label("rows")).select_from(rows.subquery()))
    return int(row["rows"])


def _merged(sources: Sequence[str], into: str, announce: Announce) -> dict[str, int]:
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(_opened(source, announce)) for source in sources]
        announce(f"merging {', '.join(map(without_password, sources))}")
        return merge(opened, stack.enter_context(Dataset.open(into)))


@contextlib.contextmanager
def _opened(source: str, announce: Announce) -> Iterator[Dataset]:
    """Open a source for reading; the contents of Parquet files are copied to a temporary dataset."""
    if not is_parquet(source):
        with Dataset.open(source, create=False, read_only=True) as dataset:
            yield dataset
        return
    if not Path(source).exists():
        raise DatasetError(f"there is no {source}")
    with _temporary() as url, Dataset.open(url) as dataset:
        _read(Path(source), dataset, announce)
        yield dataset


def _read(path: Path, dataset: Dataset, announce: Announce) -> None:
    """Copy the rows of a Parquet file or folder into an empty dataset.

    Raises:
        DatasetError: a row cannot be read; a merge never skips rows silently.
    """
    announce(f"reading {path}")
    done = store_flat(dataset, parquet.FORMAT.read(path), None, checked=False)
    if done.unreadable:
        raise DatasetError(
            f"{several(done.unreadable, 'row')} of {path} cannot be read ({'; '.join(done.problems[:2])}); nothing was "
            "changed. 'op-profiler import' takes the others into a dataset"
        )


@contextlib.contextmanager
def _temporary() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="op_profiler-merge-") as folder:
        yield f"sqlite:///{folder}/dataset.db"
