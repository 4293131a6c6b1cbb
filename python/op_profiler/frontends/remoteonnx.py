"""ONNX models from an address, a path, or from inside the onnx package; plain or in a .tar.gz."""

from __future__ import annotations

import hashlib
import os
import shutil
import tarfile
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path, PurePosixPath

from op_profiler.errors import ModelError, UnknownNameError
from op_profiler.frontends import _onnx, _zoo
from op_profiler.frontends._base import Frontend, ModelRequest, RelayModel
from op_profiler.frontends._content import check_file, fingerprint
from op_profiler.frontends.cache import cache_folder

_TIMEOUT_SECONDS = 30
_LARGEST_BYTES = 4 << 30
_CHUNK_BYTES = 1 << 20


class RemoteOnnxFrontend(Frontend):
    """``--modelname`` is an http(s) address, a path, or the name of a graph that the onnx package ships."""

    source = "remoteonnx"
    summary = "ONNX by http(s) address, path, or name of a graph inside the onnx package; .onnx or .tar.gz"

    def names(self) -> list[str]:
        return sorted(_shipped())

    def default_names(self) -> list[str]:
        return self.names()

    def check(self, request: ModelRequest) -> None:
        name = request.name
        if _is_address(name) or name in _shipped():
            return
        path = Path(name)
        if not path.exists() and not name.endswith((".onnx", ".tar.gz", ".tgz")):
            raise UnknownNameError("ONNX model", name, self.names(), "Give an http(s) address or a path.")
        check_file(path)

    def fingerprint(self, request: ModelRequest) -> str:
        return fingerprint(request, packages=("onnx",), files=[_local_file(request.name)])

    def load(self, request: ModelRequest) -> RelayModel:
        self.check(request)
        path = _local_file(request.name)
        if path.name.endswith((".tar.gz", ".tgz")):
            with tempfile.TemporaryDirectory(prefix="op_profiler-onnx-") as folder:
                return _onnx.lower(_extract(path, Path(folder)), request)
        return _onnx.lower(path, request)


FRONTEND = RemoteOnnxFrontend()


def _shipped() -> dict[str, Path]:
    """Real graphs of well-known networks that come with the onnx package; they make their own weights."""
    folder = _zoo._folder("onnx")
    if folder is None:
        return {}
    light = folder / "backend" / "test" / "data" / "light"
    return {p.stem: p for p in sorted(light.glob("light_*.onnx"))}


def _is_address(name: str) -> bool:
    return name.startswith(("http://", "https://"))


def _local_file(name: str) -> Path:
    if _is_address(name):
        return _download(name)
    return _shipped().get(name, Path(name))


def _download(address: str) -> Path:
    """Fetch once into the cache; a download that breaks off leaves nothing behind.

    Raises:
        ModelError: the address does not answer, or answers with an error; names it.
    """
    base = PurePosixPath(urllib.parse.urlparse(address).path).name or "model.onnx"
    folder = cache_folder() / "downloads" / hashlib.sha256(address.encode()).hexdigest()[:16]
    target = folder / base
    if target.exists():
        return target
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f".{base}.{os.getpid()}"
    try:
        with urllib.request.urlopen(address, timeout=_TIMEOUT_SECONDS) as answer, partial.open("wb") as file:
            _copy(answer, file, address)
        partial.replace(target)
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise ModelError(f"{address} cannot be fetched: {reason}") from error
    finally:
        partial.unlink(missing_ok=True)
    return target


def _copy(answer: object, file: object, address: str) -> None:
    size = 0
    while chunk := answer.read(_CHUNK_BYTES):  # type: ignore[attr-defined]
        size += len(chunk)
        if size > _LARGEST_BYTES:
            raise ModelError(f"{address} is larger than {_LARGEST_BYTES >> 30} GiB")
        file.write(chunk)  # type: ignore[attr-defined]


def _extract(archive: Path, folder: Path) -> Path:
    """The one .onnx file of an archive, and the data files beside it.

    Only plain files whose paths stay inside the archive are taken out: no links, no devices, nothing above.
    """
    check_file(archive)
    try:
        with tarfile.open(archive, "r:gz") as tar:
            members = tar.getmembers()
            if sum(m.size for m in members) > _LARGEST_BYTES:
                raise ModelError(f"{archive} unpacks to more than {_LARGEST_BYTES >> 30} GiB")
            for member in members:
                _take_out(tar, member, folder, archive)
    except (tarfile.TarError, EOFError, OSError) as error:
        raise ModelError(f"{archive} is not a readable .tar.gz: {error}") from error
    models = sorted(p for p in folder.rglob("*.onnx") if not p.name.startswith("."))
    if len(models) != 1:
        raise ModelError(f"{archive} holds {len(models)} .onnx files; exactly one is needed")
    return models[0]


def _take_out(tar: tarfile.TarFile, member: tarfile.TarInfo, folder: Path, archive: Path) -> None:
    path = PurePosixPath(member.name)
    if path.is_absolute() or ".." in path.parts:
        raise ModelError(f"{archive} holds the path {member.name!r}, which leads out of it; it is refused")
    if member.isdir():
        return
    if not member.isfile():
        raise ModelError(f"{archive} holds {member.name!r}, which is no plain file; it is refused")
    target = folder / path
    target.parent.mkdir(parents=True, exist_ok=True)
    content = tar.extractfile(member)
    assert content is not None, "a plain file has content"
    with content, target.open("wb") as file:
        shutil.copyfileobj(content, file)
