"""Kept builds as one file: what is not as it was sent is refused, and leads nowhere."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from op_profiler import cache
from op_profiler.building import build_cache
from op_profiler.building.parcel import Parcel, pack, unpack
from op_profiler.errors import OpProfilerError

PLACE = f"{'0' * 32}/default"


@pytest.fixture
def parcel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Parcel:
    """Of a build of two files, for a cache folder that has none."""
    monkeypatch.setenv("OP_PROFILER_CACHE", str(tmp_path / "here"))
    folder = build_cache.folder_of(PLACE)
    folder.mkdir(parents=True)
    for name in ("graph.json", "library0.bc"):
        (folder / name).write_text(f"this is {name}")
    build_cache.write_about(folder, {"title": "two files", "asked": []})
    sent = pack(PLACE)
    monkeypatch.setenv("OP_PROFILER_CACHE", str(tmp_path / "there"))
    return sent


def changed(parcel: Parcel, change: Callable[[tarfile.TarFile], object]) -> Parcel:
    """With more in its archive, and the digest of that."""
    out = io.BytesIO(parcel.archive)
    with tarfile.open(fileobj=out, mode="a") as tar:
        change(tar)
    return msgspec.structs.replace(parcel, archive=out.getvalue(), digest=hashlib.sha256(out.getvalue()).hexdigest())


def member(name: str, content: bytes = b"", **about: object) -> Callable[[tarfile.TarFile], object]:
    told = tarfile.TarInfo(name)
    told.size = len(content)
    for field, value in about.items():
        setattr(told, field, value)
    return lambda tar: tar.addfile(told, io.BytesIO(content))


def test_what_was_packed_is_there(parcel: Parcel) -> None:
    unpack(parcel)
    folder = build_cache.folder_of(PLACE)
    assert {path.name for path in folder.iterdir()} == {"graph.json", "library0.bc", cache.ABOUT}
    assert (folder / "graph.json").read_text() == "this is graph.json"
    assert pack(PLACE).place == PLACE
    unpack(parcel)  # what is there stays


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (member("../stolen", b"x"), "'../stolen' is no plain file"),
        (member("/stolen", b"x"), "'/stolen' is no plain file"),
        (member(".hidden", b"x"), "'.hidden' is no plain file"),
        (member("link", type=tarfile.SYMTYPE, linkname="/etc/passwd"), "'link' is no plain file"),
        (member("hard", type=tarfile.LNKTYPE, linkname="graph.json"), "'hard' is no plain file"),
        (member("folder", type=tarfile.DIRTYPE), "'folder' is no plain file"),
        (member("graph.json", b"another"), "'graph.json' is no plain file"),
        (member("more.bc", b"x"), "its list of files is of other files"),
    ],
)
def test_what_no_build_has_is_refused(
    change: Callable[[tarfile.TarFile], object], sentence: str, parcel: Parcel, tmp_path: Path
) -> None:
    with pytest.raises(OpProfilerError, match=sentence):
        unpack(changed(parcel, change))
    assert [path for path in (tmp_path / "there").rglob("*") if path.is_file()] == []
    assert not (tmp_path / "stolen").exists()


@pytest.mark.parametrize("about", [[], {"digest": "0", "files": ["graph.json", "library0.bc"]}, {"files": {}}])
def test_what_says_of_itself_what_no_build_says_is_refused(about: object, parcel: Parcel) -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        member("graph.json")(tar)
        member("library0.bc")(tar)
        member(cache.ABOUT, json.dumps(about).encode())(tar)
    with pytest.raises(OpProfilerError, match="it is no build"):
        unpack(Parcel(PLACE, hashlib.sha256(out.getvalue()).hexdigest(), out.getvalue()))


def test_what_was_changed_on_the_way_is_refused(parcel: Parcel) -> None:
    archive = parcel.archive.replace(b"this is graph.json", b"that is graph.json")
    assert archive != parcel.archive
    with pytest.raises(OpProfilerError, match="its digest is not that"):
        unpack(msgspec.structs.replace(parcel, archive=archive))
    digest = hashlib.sha256(archive).hexdigest()
    with pytest.raises(OpProfilerError, match="a file in it is not as it was written"):
        unpack(Parcel(PLACE, digest, archive))
    for place in ("../../stolen/default", "0/default", ""):
        with pytest.raises(OpProfilerError, match="is no place of a build"):
            unpack(msgspec.structs.replace(parcel, place=place))
    with pytest.raises(OpProfilerError, match="it is no build"):
        unpack(Parcel(PLACE, hashlib.sha256(b"no tar").hexdigest(), b"no tar"))
    with pytest.raises(OpProfilerError, match="not in the cache folder any more"):
        pack(PLACE)
    assert not build_cache.folder_of(PLACE).exists()
