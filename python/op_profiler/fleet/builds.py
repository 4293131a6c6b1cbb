"""Models that one worker builds for others, which measure: a machine that measures is not to wait for a compiler.

A build travels as a tar with a digest (`building.parcel`), from worker to worker. Who measures puts it into its cache
and collects as ever: what it finds there it uses, and only a build for its own target, by its own TVM and by the same
code of this package is found. Whatever goes wrong with it, the machine that measures builds by itself.
"""

from __future__ import annotations

import contextlib
import platform
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from op_profiler.building.parcel import Parcel, pack, unpack
from op_profiler.collection.request import CollectRequest
from op_profiler.compilers.tvm_build import DEFAULT_BUILD
from op_profiler.errors import DatasetError, OpProfilerError
from op_profiler.fleet import settings
from op_profiler.fleet.events import Announcing
from op_profiler.fleet.needs import Needs
from op_profiler.fleet.tasks import CollectTask

if TYPE_CHECKING:
    from op_profiler.fleet.machine import FleetMachine
    from op_profiler.fleet.tasks import Task


class Build(msgspec.Struct, frozen=True):
    """What a worker that builds is asked for.

    Attributes:
        request: as whoever measures gets it.
        target: of the machines that measure it, in full.
        tvm: that they compile with (`Compiles.tvm`).
        machines: `Device.identity` of those that may measure it; empty where that is not known before.
    """

    request: CollectRequest
    target: str
    tvm: str
    machines: tuple[str, ...]

    @property
    def needs(self) -> Needs:
        """What a worker has to have."""
        return {settings.builds_with(self.tvm): 1}


class Built(msgspec.Struct, frozen=True):
    """What became of it.

    Attributes:
        host: that built.
        parcel: None where there is none.
        reason: why; empty where every machine has measured it before.
    """

    host: str
    parcel: Parcel | None = None
    reason: str = ""


def build_for(task: Task, machines: Sequence[FleetMachine]) -> Build | None:
    """What to build ahead for the machines that may measure a task.

    None where they build it themselves: it is no plain collection of a model, it is for a GPU, or the machines are of
    several kinds, and which of them will be free is not known yet.
    """
    if not isinstance(task, CollectTask) or not machines:
        return None
    request, build = task.request, task.request.build
    compilers = {machine.compilers.get(build.compiler) for machine in machines}
    one = compilers.pop()
    if compilers or one is None or request.studies or request.dry_run or build.kind.tvm_build != DEFAULT_BUILD:
        return None
    target = one.llvm if build.target.strip() == "llvm" else build.target
    known = [machine.measures[build.kind.name] for machine in machines] if build.on_host else []
    return Build(request, target, one.tvm, tuple(dict.fromkeys(known)))


def carry_out(encoded: bytes) -> bytes:
    """Build a `Build`; runs in a worker that builds. It waits while somebody measures on its machine.

    Returns:
        A `Built`, whatever happened.
    """
    asked = msgspec.msgpack.decode(encoded, type=Build)
    host = platform.node()
    try:
        built = Built(host) if _is_measured(asked) else Built(host, pack(_build(asked, Announcing(host))))
    except OpProfilerError as error:
        built = Built(host, reason=str(error))
    return msgspec.msgpack.encode(built)


def _build(asked: Build, progress: Announcing) -> str:
    """Where the cache of this machine keeps the build."""
    from op_profiler.collection.supervisor import build_only

    progress.tell()
    threads = asked.request.build.threads or (1,)  # they are no part of a build
    return build_only(asked.request.of(target=asked.target, threads=threads), progress)


def _is_measured(asked: Build) -> bool:
    """Whether the dataset has the model of each machine, which then has the build too."""
    from op_profiler.collection import lookup
    from op_profiler.dataset import Dataset
    from op_profiler.frontends import FRONTENDS

    request, model = asked.request, asked.request.build.model
    content = FRONTENDS.get(model.source).fingerprint(model)
    if content is None or not asked.machines:
        return False
    with contextlib.suppress(DatasetError), Dataset.open(request.db, read_only=True) as dataset:
        keys = [request.base_key(content, machine) for machine in asked.machines]
        return all(lookup.find(dataset, request, key, since="") for key in keys)
    return False


def take_in(encoded: bytes, name: str, problem: Callable[[str], None]) -> None:
    """Put what another worker built into the cache of this machine.

    Args:
        encoded: a `Built`.
        name: of the task.
        problem: told why there is nothing to put there.
    """
    built = msgspec.msgpack.decode(encoded, type=Built)
    if built.reason:
        problem(f"{name} could not be built on {built.host} ({built.reason}); it is built where it is measured")
    if built.parcel is None:
        return
    try:
        unpack(built.parcel)
    except OpProfilerError as error:
        problem(f"the build of {name} by {built.host} is refused: {error}; it is built where it is measured")
