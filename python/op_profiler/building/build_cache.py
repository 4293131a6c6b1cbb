"""Built models in the cache folder. A repeated run, and a run at other thread counts, use the same build."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from op_profiler import cache
from op_profiler.cache import cache_folder
from op_profiler.compilers.compiled_model import BuiltModel
from op_profiler.compilers.compiler import NotKept, compiler_in_use
from op_profiler.compilers.pipelines import DEFAULT_PIPELINE, pipeline_identity
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.frontends.fingerprints import hash_files
from op_profiler.schedules.factors import Factors
from op_profiler.schedules.schedule import Schedule
from op_profiler.targets.target import tvm_identity

if TYPE_CHECKING:
    from op_profiler.building.request import BuildRequest
    from op_profiler.compilers.imported_model import ImportedModel
    from op_profiler.compilers.tvm_types import Target
    from op_profiler.schedules.usable_records import UsableRecords

BUILDS_GO_THROUGH = ("compilers", "operators", "schedules")
"""Parts of this package that affect builds: a build of other code is not reused."""
_FORMAT = 1
_PLACE = re.compile(r"[0-9a-f]{32}/(default|[0-9a-f]{16})")
_DEFAULT = "default"  # name of a build without schedule records


_handed_over: dict[Path, BuiltModel] = {}


def hand_over(built: BuiltModel) -> None:
    """Keep a build in memory for the next `BuildCache.find` of this process, which then need not read its files."""
    _handed_over.clear()
    if built.kept:
        _handed_over[folder_of(built.kept).parent] = built


class BuildCache:
    """The builds of one model for one request: a folder, with a subfolder for each set of schedule records.

    Args:
        target: `tvm.target.Target`.
        records: records that a build would use today.
    """

    def __init__(self, request: BuildRequest, model: ImportedModel, target: Target, records: UsableRecords) -> None:
        self._request = request
        self._content = model.content
        self._folder = _builds() / _base(request, model, target)
        self._records = records

    def find(self) -> BuiltModel | None:
        """Return a stored build with the schedule records that a build would use today; None if none is stored."""
        handed_over = _handed_over.pop(self._folder, None)
        if handed_over is not None and self.place(handed_over.asked) == handed_over.kept:
            return handed_over
        for place in sorted(self._folder.glob("[!.]*")):
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                if self._name(json.loads((place / cache.ABOUT).read_text())["asked"]) == place.name:
                    built = read_kept(f"{self._folder.name}/{place.name}")
                    if built is not None:
                        return built
        return None

    def place(self, asked: frozenset[str]) -> str:
        """Return the path of the build with the records that a build would use today; empty if it is not stored.

        Args:
            asked: computations for which a build looks up records.
        """
        name = self._name(asked)
        return f"{self._folder.name}/{name}" if (self._folder / name).is_dir() else ""

    def keep(self, built: BuiltModel) -> None:
        """Write the build if the model can be identified again and there is enough space."""
        if not self._content or cache.limit_bytes() == 0:
            return
        request = self._request

        def fill(folder: Path) -> None:
            compiler_in_use().write(folder, built.compiled)
            about: dict[str, Any] = {
                "title": f"{request.model.source}:{request.model.title}, batch {request.model.batch_size}, "
                f"{request.precision}, {request.target}",
                "asked": sorted(built.asked),
                "refused": sorted(built.refused),
                "schedules": {key: dataclasses.asdict(schedule) for key, schedule in built.schedules.items()},
            }
            write_about(folder, about)

        with contextlib.suppress(NotKept):  # what it was built into has no form as files; it is built again next time
            place = self._folder / self._name(built.asked)
            damaged = place.is_dir() and read_kept(f"{self._folder.name}/{place.name}") is None
            cache.keep(place, fill, damaged=damaged)

    def _name(self, asked: frozenset[str] | list[str]) -> str:
        return self._records.digest(asked) or _DEFAULT


def read_kept(place: str) -> BuiltModel | None:
    """Return the build at a path, whatever request created it; None if it is missing or changed.

    Args:
        place: result of `BuildCache.place`.
    """
    try:
        folder = folder_of(place)
        about = json.loads((folder / cache.ABOUT).read_text())
        if not is_whole(folder, about):
            return None
        schedules = {key: _schedule(fields) for key, fields in about["schedules"].items()}
        asked, refused = (frozenset(about[name]) for name in ("asked", "refused"))
        built = BuiltModel(compiler_in_use().read(folder), schedules, asked, refused, kept=place)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    cache.touch(folder)
    return built


def write_about(folder: Path, about: dict[str, Any]) -> None:
    """Write the last file of a build's folder: the description `about`, with the digests of all files in the folder."""
    fields = about | {"files": {path.name: _hash(path) for path in sorted(folder.iterdir())}}
    (folder / cache.ABOUT).write_text(json.dumps(fields | {"digest": _digest(fields)}))


def folder_of(place: str) -> Path:
    """Return the folder of a build.

    Args:
        place: result of `BuildCache.place`.

    Raises:
        ValueError: `place` is not a result of `BuildCache.place`, and could lead to another folder.
    """
    if not _PLACE.fullmatch(place):
        raise ValueError(f"{place!r} is no place of a build")
    return _builds() / place


def _builds() -> Path:
    return cache_folder() / "built"


def _base(request: BuildRequest, model: ImportedModel, target: Target) -> str:
    """Return a digest of everything that determines a build except the records: model, target, TVM, and the parts of
    this package."""
    parts = [
        _FORMAT,
        model.content,
        str(target),
        request.precision,
        request.executor,
        tvm_identity(request.target, request.compiler),
        str(load_tvm().__version__),  # the TVM with CUDA, once imported, compiles for processors too
    ]
    if request.pipeline != DEFAULT_PIPELINE:
        parts.append(pipeline_identity(request.pipeline))
    if request.input_data is not None and request.precision == "int8":
        parts.append(hashlib.sha256(Path(request.input_data).read_bytes()).hexdigest())
    return hashlib.sha256(json.dumps([*parts, cache.code_digest(*BUILDS_GO_THROUGH)]).encode()).hexdigest()[:32]


def _schedule(fields: dict[str, Any]) -> Schedule:
    return Schedule(**(fields | {"factors": Factors(**fields["factors"])}))


def is_whole(place: Path, about: dict[str, Any]) -> bool:
    """Return whether the description `about` of a build and all its files are unchanged."""
    return _digest(about) == about["digest"] and all(_hash(place / name) == h for name, h in about["files"].items())


def _digest(about: dict[str, Any]) -> str:
    fields = {name: value for name, value in about.items() if name != "digest"}
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


def _hash(path: Path) -> str:
    return hash_files([path])
