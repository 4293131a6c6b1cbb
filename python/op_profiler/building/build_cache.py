"""Models that were built before, kept in the cache folder: a run that was killed and one at other thread counts go on
with the same build."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import op_profiler
from op_profiler import cache
from op_profiler.cache import cache_folder
from op_profiler.compilers.relay.tvm_build import load_tvm
from op_profiler.frontends.fingerprints import hash_files
from op_profiler.schedules import records
from op_profiler.schedules.factors import Factors
from op_profiler.schedules.schedule import Schedule

if TYPE_CHECKING:
    from op_profiler.collection.request import CollectRequest
    from op_profiler.compilers.compiled_model import CompiledModel
    from op_profiler.compilers.relay.relay_model import RelayModel

_FORMAT = 1
_DEFAULT = "default"  # the name of a build that no schedule record had a part in


@dataclasses.dataclass(frozen=True)
class Built:
    """A built model.

    Attributes:
        schedules: what the build gave to the operators, by workload key.
        asked: computations that it looked for schedule records of.
    """

    compiled: CompiledModel
    schedules: dict[str, Schedule]
    asked: frozenset[str]


def build(request: CollectRequest, model: RelayModel, target: Any, record_file: Path | None) -> Built:
    """Build a model, or read what an earlier build of the same left behind.

    Args:
        request: says for which conditions and for which executor.
        model: in its precision; what was made of it (`compilers.relay.merge_parallel`) is part of its name.
        target: `tvm.target.Target`.
        record_file: schedule records to build with; None for none.

    Raises:
        ModelError: the compiler refuses it.
    """
    from op_profiler.compilers.relay.lower import compile_model
    from op_profiler.schedules.applied import applied
    from op_profiler.schedules.chosen import chosen_schedules

    folder = cache_folder() / "built" / _base(request, model, target)
    kept = _find(folder, request, record_file)
    if kept is not None:
        return kept
    with applied(record_file, request.conditions) as in_use, chosen_schedules() as choices:
        compiled = compile_model(model, target, "vm" if request.executor == "vm" else "graph")
    schedules = {o.operator.key: choices.schedule_of(o) for o in compiled.by_label.values()}
    built = Built(compiled, schedules, frozenset(in_use.asked))
    if model.content:
        _keep(folder / _name(request, record_file, built.asked), request, built)
    return built


def _base(request: CollectRequest, model: RelayModel, target: Any) -> str:
    """Of all that decides a build but the records: the model, the target, TVM, and this package's own part in it."""
    from op_profiler.targets.target import compiler_identity

    parts = [
        _FORMAT,
        model.content,
        str(target),
        request.precision,
        request.executor,
        compiler_identity(request.target),
    ]
    if request.input_data is not None and request.precision == "int8":
        parts.append(hashlib.sha256(Path(request.input_data).read_bytes()).hexdigest())
    return hashlib.sha256(json.dumps([*parts, _code()]).encode()).hexdigest()[:32]


@functools.cache
def _code() -> str:
    """SHA-256 of the parts of this package that a build goes through."""
    package = Path(op_profiler.__file__).parent
    digest = hashlib.sha256()
    folders = [package / name for name in ("compilers", "operators", "schedules")]
    for path in sorted(path for folder in folders for path in folder.glob("**/*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _name(request: CollectRequest, record_file: Path | None, asked: Iterable[str]) -> str:
    return records.digest(record_file, asked, request.conditions) or _DEFAULT


def _find(folder: Path, request: CollectRequest, record_file: Path | None) -> Built | None:
    """The kept build whose records are those that it would find today; None where there is none that can be used."""
    from op_profiler.compilers.relay.compiled_files import read_compiled

    for place in sorted(folder.glob("[!.]*")):
        try:
            about = json.loads((place / cache.ABOUT).read_text())
            if _name(request, record_file, about["asked"]) != place.name or not _is_whole(place, about):
                continue
            schedules = {key: _schedule(fields) for key, fields in about["schedules"].items()}
            built = Built(read_compiled(place), schedules, frozenset(about["asked"]))
        except (OSError, ValueError, KeyError, TypeError, load_tvm().TVMError):
            continue
        cache.touch(place)
        return built
    return None


def _schedule(fields: dict[str, Any]) -> Schedule:
    return Schedule(**(fields | {"factors": Factors(**fields["factors"])}))


def _is_whole(place: Path, about: dict[str, Any]) -> bool:
    """Whether every file is as it was written."""
    return _digest(about) == about["digest"] and all(_hash(place / name) == h for name, h in about["files"].items())


def _keep(place: Path, request: CollectRequest, built: Built) -> None:
    from op_profiler.compilers.relay.compiled_files import NotKept, write_compiled

    if cache.limit_bytes() == 0:
        return

    def fill(folder: Path) -> None:
        write_compiled(folder, built.compiled)
        about: dict[str, Any] = {
            "title": f"{request.model.source}:{request.model.name}, batch {request.model.batch_size}, "
            f"{request.precision}, {request.target}",
            "asked": sorted(built.asked),
            "schedules": {key: dataclasses.asdict(schedule) for key, schedule in built.schedules.items()},
            "files": {path.name: _hash(path) for path in sorted(folder.iterdir())},
        }
        (folder / cache.ABOUT).write_text(json.dumps(about | {"digest": _digest(about)}))

    try:
        cache.keep(place, fill)
    except (NotKept, load_tvm().TVMError):
        pass  # what it was built into has no form as files; it is built again next time


def _digest(about: dict[str, Any]) -> str:
    told = {name: value for name, value in about.items() if name != "digest"}
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def _hash(path: Path) -> str:
    return hash_files([path])
