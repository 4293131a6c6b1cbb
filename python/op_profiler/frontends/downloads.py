"""Downloads files and unpacks archives into the cache folder."""

from __future__ import annotations

import hashlib
import http.client
import json
import tarfile
import urllib.error
import urllib.parse
import urllib.request
import zlib
from pathlib import Path, PurePosixPath
from typing import IO

from op_profiler.cache import cache_folder
from op_profiler.errors import ModelError
from op_profiler.files import atomic_file, atomic_folder, write_whole
from op_profiler.frontends.fingerprints import hash_files

_TIMEOUT_SECONDS = 20
_LARGEST_BYTES = 16 << 30
_MOST_FILES = 10_000
_CHUNK = 1 << 20
_STATE = "state.json"
_VALIDATORS = {"ETag": "If-None-Match", "Last-Modified": "If-Modified-Since"}  # response headers, and request headers


def is_address(name: str) -> bool:
    """Return whether a model's name is an http(s) address."""
    return name.lower().startswith(("http://", "https://"))


def download(address: str, *, again: bool = False) -> Path:
    """Return the file at an address, downloaded once and stored in the cache folder with the digest of its content.

    The stored file is used as long as its content has this digest, so no network is needed afterwards.

    Args:
        again: ask the server whether the file has changed, and download it if it has.

    Raises:
        ModelError: the server does not respond, or does not send a file; the stored file is not changed.
    """
    folder = cache_folder() / "downloads" / hashlib.sha256(address.encode()).hexdigest()[:16]
    file, state = folder / _file_name(address), folder / _STATE
    kept = _kept(file, state)
    if kept is not None and not again:
        return file
    if_changed = {asked: str(kept[name]) for name, asked in _VALIDATORS.items() if kept is not None and name in kept}
    request = urllib.request.Request(address, headers={"User-Agent": "op_profiler"} | if_changed)
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as answer:
            digest = _copy_whole(answer, file, address)
            validators = {k: answer.headers[k] for k in _VALIDATORS if answer.headers[k]}
            write_whole(state, json.dumps({"address": address, "sha256": digest} | validators))
    except urllib.error.HTTPError as error:
        if error.code == 304 and kept is not None:
            return file
        raise ModelError(f"{address} answers {error.code} {error.reason}") from error
    except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise ModelError(f"{address} does not answer: {reason}") from error
    except OSError as error:
        raise ModelError(f"{address} cannot be kept in {folder}: {error.strerror or error}") from error
    return file


def _file_name(address: str) -> str:
    """Return a file name for an address: its last part, which shows the kind of file; ``model`` if that is not usable.

    Raises:
        ModelError: `address` is not a valid address.
    """
    try:
        name = PurePosixPath(urllib.parse.urlsplit(address).path).name
    except ValueError as error:
        raise ModelError(f"{address} is no http or https address: {error}") from error
    return "model" if name in ("", "..", _STATE) else name


def _kept(file: Path, state: Path) -> dict[str, str] | None:
    """Return the stored facts about a downloaded file; None if the file is missing, incomplete or changed."""
    try:
        known = json.loads(state.read_text())
        if isinstance(known, dict) and hash_files([file]) == known.get("sha256"):
            return known
    except (OSError, ValueError):
        pass
    return None


def _copy_whole(answer: http.client.HTTPResponse, file: Path, address: str) -> str:
    """Download a file and return the digest of its content; an incomplete download raises an error."""
    with atomic_file(file) as partial:
        with partial.open("wb") as out:
            _copy(answer, out, _LARGEST_BYTES, address)
        announced = answer.headers["Content-Length"]
        if announced and partial.stat().st_size != int(announced):
            raise ModelError(f"{address} broke off after {partial.stat().st_size} of {announced} bytes")
        return hash_files([partial])


def _copy(source: http.client.HTTPResponse | IO[bytes], out: IO[bytes], limit: int, name: str) -> int:
    copied = 0
    while chunk := source.read(_CHUNK):
        copied += len(chunk)
        if copied > limit:
            raise ModelError(f"{name} holds more than {_LARGEST_BYTES >> 30} GB")
        out.write(chunk)
    return copied


def unpack(archive: Path, digest: str) -> Path:
    """Return the folder with the unpacked files of a .tar.gz; links, devices and paths outside the folder are rejected.

    Args:
        digest: hash of the archive's content; the files are stored under it.

    Raises:
        ModelError: the archive is damaged, unsafe or too large, or the file is not an archive.
    """
    folder = cache_folder() / "archives" / digest
    if folder.is_dir():
        return folder
    try:
        with atomic_folder(folder) as partial, tarfile.open(archive, "r:gz") as tar:
            _unpack_members(tar, partial, archive)
    except (tarfile.TarError, EOFError, OSError, ValueError, zlib.error) as error:  # gzip's; a name may hold a NUL
        raise ModelError(f"{archive} cannot be unpacked: {error}") from error
    return folder


def _unpack_members(tar: tarfile.TarFile, folder: Path, archive: Path) -> None:
    left = _LARGEST_BYTES
    for count, member in enumerate(tar):
        path = PurePosixPath(member.name)
        if path.is_absolute() or ".." in path.parts or "\\" in member.name:
            raise ModelError(f"{archive} contains a path that leads out of it: {member.name}")
        if not (member.isreg() or member.isdir()):
            raise ModelError(f"{archive} holds {member.name}, which is a link or no plain file")
        if count >= _MOST_FILES:
            raise ModelError(f"{archive} holds more than {_MOST_FILES} files")
        target = folder.joinpath(*path.parts)
        if member.isdir():
            target.mkdir(parents=True, exist_ok=True)
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        source = tar.extractfile(member)
        assert source is not None  # a regular file
        with target.open("wb") as out:
            left -= _copy(source, out, left, str(archive))
