"""A kept build as one file, for a machine that measures what another one built.

What arrives is data: it is put into the cache folder, where only files that are as they were written are read, and
reading them runs nothing of them (`compilers.relay.compiled_files`). A build for another target, by another TVM or by
other code of this package lies under another name there, and is not found.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import tarfile
from pathlib import Path

import msgspec

from op_profiler import cache
from op_profiler.building.build_cache import folder_of, is_whole
from op_profiler.errors import OpProfilerError

_MOST_BYTES = 1 << 30  # a larger one is built where it is measured: it would be held in memory several times
_NAME = re.compile(r"\w[\w.-]{0,99}")


class Parcel(msgspec.Struct, frozen=True):
    """A kept build on its way.

    Attributes:
        place: where the cache keeps it, as `BuildCache.place` told it.
        digest: SHA-256 of the archive.
        archive: tar of its files.
    """

    place: str
    digest: str
    archive: bytes


def pack(place: str) -> Parcel:
    """The build that the cache keeps at a place.

    Raises:
        OpProfilerError: it is not there any more, or too large to be sent.
    """
    out = io.BytesIO()
    try:
        files = sorted(folder_of(place).iterdir())
        size = sum(file.stat().st_size for file in files)
        if size > _MOST_BYTES:
            raise OpProfilerError(f"a build of {size >> 20} MiB is not sent, only up to {_MOST_BYTES >> 20}")
        with tarfile.open(fileobj=out, mode="w") as tar:
            for file in files:
                tar.add(file, file.name, recursive=False)
    except (OSError, ValueError) as error:
        raise OpProfilerError(f"the build is not in the cache folder any more: {error}") from error
    archive = out.getvalue()
    return Parcel(place, hashlib.sha256(archive).hexdigest(), archive)


def unpack(parcel: Parcel) -> None:
    """Put a build into this machine's cache folder; one that is there stays.

    Raises:
        OpProfilerError: it is not as it was sent, or holds what no build has; nothing is kept.
    """
    if hashlib.sha256(parcel.archive).hexdigest() != parcel.digest:
        raise OpProfilerError("its digest is not that of what was sent")
    try:
        files = _files(parcel.archive)
        about = json.loads(files[cache.ABOUT])
        folder = folder_of(parcel.place)
        if not isinstance(about["digest"], str) or not isinstance(about["files"], dict):
            raise ValueError("it does not say of which files")
        if set(about["files"]) != set(files) - {cache.ABOUT}:
            raise ValueError("its list of files is of other files")
    except (OSError, ValueError, KeyError, TypeError, tarfile.TarError) as error:
        raise OpProfilerError(f"it is no build: {error}") from error

    def fill(partial: Path) -> None:
        for name, content in files.items():
            (partial / name).write_bytes(content)
        if not is_whole(partial, about):
            raise OpProfilerError("a file in it is not as it was written")

    cache.keep(folder, fill)


def _files(archive: bytes) -> dict[str, bytes]:
    """The members of a tar by their names, plain files of one folder.

    Raises:
        ValueError: there is something else.
    """
    files: dict[str, bytes] = {}
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:") as tar:
        for member in tar:
            content = tar.extractfile(member) if member.isreg() else None
            if content is None or member.issparse() or not _NAME.fullmatch(member.name) or member.name in files:
                raise ValueError(f"{member.name!r} is no plain file of a build")
            files[member.name] = content.read()
    return files
