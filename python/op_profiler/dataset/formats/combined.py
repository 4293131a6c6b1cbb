"""Datasets and Parquet files, in any combination, made one."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from op_profiler.dataset.address import absolute_address, parse_url
from op_profiler.dataset.formats.exporting import export_table
from op_profiler.dataset.formats.importing import import_table, refuse_nothing
from op_profiler.dataset.merging import merge
from op_profiler.dataset.store import Dataset
from op_profiler.errors import DatasetError, UsageError

_PARQUET = "parquet"


def combine(sources: Sequence[str], into: str) -> dict[str, int]:
    """`merge` of datasets by their addresses, and of Parquet files and folders by their paths.

    A Parquet file holds measurements with their models, not failures beside times, code of kernels and groups that ran
    side by side: what goes through one keeps these no more.

    Args:
        into: where all goes. What it holds already counts among the sources.

    Returns:
        What `merge` does, by table.

    Raises:
        UsageError: `into` is one of the sources, or a folder.
        DatasetError: a database or a file cannot be read or written; then nothing was changed.
    """
    if any(_same(into, source) for source in sources):
        raise UsageError(f"--into {into} is one of the sources; leave it out there, it keeps what it holds")
    if not is_parquet(into):
        return _merged(sources, into)
    path = Path(into)
    if path.is_dir():
        raise UsageError(f"--into {into} is a folder; name a file that ends with .parquet")
    with _temporary() as kept:
        written = _merged([*([into] if path.exists() else []), *sources], kept)
        with Dataset.open(kept, read_only=True) as dataset:
            export_table(dataset, path, format=_PARQUET)
    return written


def is_parquet(place: str) -> bool:
    """Whether a place is a path of Parquet files rather than the address of a database."""
    return "://" not in place and (place.endswith(f".{_PARQUET}") or Path(place).is_dir())


def _same(one: str, other: str) -> bool:
    if is_parquet(one) or is_parquet(other):
        return is_parquet(one) and is_parquet(other) and Path(one).resolve() == Path(other).resolve()
    return parse_url(absolute_address(one)) == parse_url(absolute_address(other))


def _merged(sources: Sequence[str], into: str) -> dict[str, int]:
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(_opened(source)) for source in sources]
        return merge(opened, stack.enter_context(Dataset.open(into)))


@contextlib.contextmanager
def _opened(source: str) -> Iterator[Dataset]:
    """A source for reading; what a Parquet file holds is put into a dataset for that long."""
    if not is_parquet(source):
        with Dataset.open(source, create=False, read_only=True) as dataset:
            yield dataset
        return
    path = Path(source)
    if not path.exists():
        raise DatasetError(f"there is no {path}")
    with _temporary() as url, Dataset.open(url) as dataset:
        refuse_nothing(import_table(dataset, path, format=_PARQUET), path, _PARQUET)
        yield dataset


@contextlib.contextmanager
def _temporary() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="op_profiler-merge-") as folder:
        yield f"sqlite:///{folder}/dataset.db"
