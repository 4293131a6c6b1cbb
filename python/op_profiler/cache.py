"""The cache folder: its entries, its size limit, and the removal of the entries that were used least recently."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import functools
import hashlib
import json
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import platformdirs

from op_profiler.errors import OpProfilerError, UsageError
from op_profiler.files import atomic_folder

ABOUT = "about.json"
"""Name of the file that is written last into the folder of an entry: a JSON object with the ``title`` of the entry."""
KINDS = {
    "built": "built models",
    "relay": "lowered models",
    "networks": "lowered models, for predictions",
    "outputs": "outputs in float32, to compare other precisions with",
    "agreements": "which models compute what their own frameworks compute",
    "loops": "loops of operators, for predictions",
    "predictors": "fitted predictors",
    "samples": "batches of sampled operators",
    "downloads": "downloaded models",
    "archives": "unpacked archives",
    "live": "models that Python programs gave",
    "processor": "what this processor is, until the next boot",
    "peaks": "peaks of this processor",
    "states": "states that this processor was found in",
    "lanes": "the runtime of plans",
    "driver-stub": "the stand-in for NVIDIA's driver",
}
"""Folders in the cache folder, with a description of their contents."""
_DEPTHS = {"built": 2, "relay": 2}
"""Depth of the entries below the folder of a kind, for kinds whose depth is not 1."""
LIMITED = ("built", "relay")
"""Kinds with a common size limit; the other kinds stay small, or cannot be created again without the network."""
MODELS = (*LIMITED, "networks")
"""Kinds of built and lowered models, which are created again when they are needed."""
_LIMIT_VARIABLE = "OP_PROFILER_CACHE_GIB"
_DEFAULT_LIMIT_GIB = 8.0
_ABANDONED_SECONDS = 24 * 3600.0


def cache_folder() -> Path:
    """Return the path of the cache folder.

    It is ``OP_PROFILER_CACHE``; otherwise ``op_profiler`` in the user's cache folder; or a temporary folder, if that
    folder cannot be written.

    Raises:
        OpProfilerError: the user's cache folder cannot be written, and other users can write to the temporary folder.
    """
    given = os.environ.get("OP_PROFILER_CACHE")
    if given:
        return Path(given)
    ensure_home()
    return _writable(platformdirs.user_cache_path("op_profiler"))


def data_folder() -> Path:
    """Return ``op_profiler`` in the user's data folder, for permanent files such as schedule records."""
    ensure_home()
    return platformdirs.user_data_path("op_profiler")


def ensure_home() -> None:
    """Set ``HOME`` for this process and its children if the user has no home folder (unknown user in a container)."""
    if os.path.expanduser("~") == "~":
        os.environ["HOME"] = str(_temporary_folder())


@functools.cache
def _writable(folder: Path) -> Path:
    """Return the folder, or a temporary folder if it cannot be created or written."""
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            return folder
    return _temporary_folder()


def _temporary_folder() -> Path:
    folder = Path(tempfile.gettempdir()) / f"op_profiler-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    about = folder.lstat()
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.getuid() or about.st_mode & 0o022:
        # libraries are loaded from there
        raise OpProfilerError(f"{folder} can be written by others; let OP_PROFILER_CACHE name a folder of your own")
    return folder


@dataclasses.dataclass(frozen=True)
class CacheEntry:
    """One entry of the cache folder.

    Attributes:
        title: what the entry is for, from the file `ABOUT` of the entry; the name of `path` if that file has no title.
        used: UTC time at which the entry was last written or read.
    """

    kind: str
    path: Path
    title: str
    size_bytes: int
    used: datetime.datetime

    @property
    def half(self) -> bool:
        """Whether the entry is incomplete: a process is writing or removing it, or was killed while doing so."""
        return self.path.name.startswith(".")


def limit_bytes() -> int:
    """Return the size limit of all entries of the kinds in `LIMITED` together.

    Raises:
        UsageError: the environment variable ``OP_PROFILER_CACHE_GIB`` is not a valid limit.
    """
    text = os.environ.get(_LIMIT_VARIABLE, "")
    try:
        limit = float(text) if text else _DEFAULT_LIMIT_GIB
    except ValueError:
        limit = -1.0
    if not 0.0 <= limit < float("inf"):
        raise UsageError(f"{_LIMIT_VARIABLE} is {text!r}; give the size of the cache in GiB, such as 8, or 0 for none")
    return int(limit * 2**30)


def entries(kinds: Iterable[str] = tuple(KINDS)) -> list[CacheEntry]:
    """Return the entries of these kinds, ordered by kind, least recently used first; includes incomplete entries."""
    found = [_entry(kind, path) for kind in kinds for path in _below(cache_folder() / kind, _DEPTHS.get(kind, 1))]
    order = list(KINDS)
    return sorted((e for e in found if e is not None), key=lambda e: (order.index(e.kind), e.used))


def _below(folder: Path, depth: int) -> Iterator[Path]:
    """Yield the paths at a depth below a folder; paths in a folder that another process removes meanwhile are left
    out."""
    try:
        found = list(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return
    for path in found:
        if depth == 1:
            yield path
        else:
            yield from _below(path, depth - 1)


def _entry(kind: str, path: Path) -> CacheEntry | None:
    """Return the entry of a path; None if it was removed meanwhile."""
    try:
        files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
        about = path / ABOUT
        newest = about if about.is_file() else path
        size = sum(file.stat().st_size for file in files)
        used = datetime.datetime.fromtimestamp(newest.stat().st_mtime, datetime.timezone.utc)
        return CacheEntry(kind, path, _title(about) or path.name, size, used)
    except OSError:
        return None


def _title(about: Path) -> str:
    try:
        return str(json.loads(about.read_text()).get("title", ""))
    except (OSError, ValueError, AttributeError):
        return ""


@functools.cache
def code_digest(*parts: str) -> str:
    """Return the SHA-256 of the Python files in these folders of this package; it changes whenever their code changes.

    Args:
        parts: paths of the folders, relative to the package.
    """
    digest = hashlib.sha256()
    for path in sorted(path for part in parts for path in (Path(__file__).parent / part).glob("**/*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def keep(folder: Path, fill: Callable[[Path], None], *, damaged: bool = False) -> None:
    """Store what `fill` writes as the cache entry `folder`; readers never see an incomplete entry.

    If the entry exists already (another process was faster), it is kept. If the disk is full or the cache cannot be
    written, nothing is stored.

    Args:
        fill: called with the folder to write to.
        damaged: the existing entry cannot be read and is replaced.
    """
    if damaged:
        _take_away(folder)
    with contextlib.suppress(OSError), atomic_folder(folder) as partial:
        fill(partial)
    trim()


def touch(folder: Path) -> None:
    """Record that an entry was used now."""
    with contextlib.suppress(OSError):
        os.utime(folder / ABOUT)


def trim() -> None:
    """Remove abandoned incomplete entries, and the least recently used entries of `LIMITED` until the rest fits
    `limit_bytes`."""
    everything = sorted(entries(LIMITED), key=lambda entry: entry.used)
    whole = [entry for entry in everything if not entry.half]
    for entry in everything:
        if entry.half and time.time() - entry.used.timestamp() > _ABANDONED_SECONDS:
            remove(entry)
    total, limit = sum(entry.size_bytes for entry in whole), limit_bytes()
    for entry in whole:
        if total <= limit:
            break
        remove(entry)
        total -= entry.size_bytes


def remove(entry: CacheEntry) -> None:
    """Remove an entry atomically: other processes see the whole entry or nothing."""
    with contextlib.suppress(OSError):
        _take_away(entry.path)
        if entry.kind in _DEPTHS:
            entry.path.parent.rmdir()  # where it was the last


def _take_away(path: Path) -> None:
    gone = path.with_name(f".{path.name}.gone-{os.getpid()}")
    with contextlib.suppress(OSError):
        path.rename(gone)
        if gone.is_dir():
            shutil.rmtree(gone, ignore_errors=True)
        else:
            gone.unlink()
