"""Models that one worker builds for others, which measure: a machine that measures is not to wait for a compiler.

A build lies in the cache of the machine that made it until whoever measures asks for it: a tar with a digest
(`building.parcel`), from worker to worker. Who measures puts it into its own cache and collects as ever: what it finds
there it uses, and only a build for its own target, by its own TVM and by the same code of this package is found.
Whatever goes wrong with it, the machine that measures builds by itself.
"""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from op_profiler.building.parcel import Parcel, pack, unpack
from op_profiler.collection.lookup import stored_for
from op_profiler.collection.request import CollectRequest
from op_profiler.compilers.tvm_build import DEFAULT_BUILD
from op_profiler.errors import OpProfilerError
from op_profiler.fleet import settings
from op_profiler.fleet.events import Announcing
from op_profiler.fleet.needs import Needs
from op_profiler.fleet.tasks import CollectTask
from op_profiler.measure.turns import compiling

if TYPE_CHECKING:
    from op_profiler.fleet.machine import FleetMachine
    from op_profiler.fleet.tasks import Task

_SENDING_SECONDS = 300


class Build(msgspec.Struct, frozen=True):
    """What a worker that builds is asked for.

    Attributes:
        request: as whoever measures gets it.
        target: of the machines that measure it, in full.
        tvm, code: that they compile with (`Compiles`).
        machines: `Device.identity` of those that may measure it; empty where that is not known before.
    """

    request: CollectRequest
    target: str
    tvm: str
    code: str
    machines: tuple[str, ...]

    @property
    def needs(self) -> Needs:
        """What a worker has to have."""
        return {settings.builds_with(self.tvm, self.code): 1}


class Built(msgspec.Struct, frozen=True):
    """What became of it.

    Attributes:
        host, address: of the worker that was asked.
        place: where its cache keeps the build; empty where there is none.
        reason: why; empty where every machine has measured it before.
        messages: notes and problems on the way.
    """

    host: str
    address: str
    place: str = ""
    reason: str = ""
    messages: tuple[str, ...] = ()


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
    return Build(request, target, one.tvm, one.code, tuple(dict.fromkeys(known)))


def carry_out(encoded: bytes) -> bytes:
    """Build a `Build`; runs in a worker that builds. It waits while somebody measures on its machine.

    Returns:
        A `Built`, whatever happened.
    """
    from distributed import get_worker

    built = Built(platform.node(), get_worker().address)
    progress = Announcing(built.host)
    try:
        asked = msgspec.msgpack.decode(encoded, type=Build)
        if not _is_measured(asked):
            built = msgspec.structs.replace(built, place=_build(asked, progress))
    except Exception as error:  # whatever it is, the machine that measures may be without it
        built = msgspec.structs.replace(built, reason=_told(error))
    return msgspec.msgpack.encode(msgspec.structs.replace(built, messages=tuple(progress.messages)))


def _told(error: Exception) -> str:
    return str(error) if isinstance(error, OpProfilerError) else f"{type(error).__name__}: {error}"


def _build(asked: Build, progress: Announcing) -> str:
    """Where the cache of this machine keeps the build."""
    from op_profiler.collection.supervisor import build_only

    progress.tell()
    threads = asked.request.build.threads or (1,)  # they are no part of a build
    return build_only(asked.request.of(target=asked.target, threads=threads), progress)


def _is_measured(asked: Build) -> bool:
    """Whether the dataset has all that is asked for of each machine, which then needs no build."""
    threads = set(asked.request.build.threads)
    stored = stored_for(asked.request, asked.machines)
    return bool(asked.machines) and all(
        machine in stored and stored[machine].answered >= threads for machine in asked.machines
    )


async def send(place: str) -> dict[str, Any]:
    """The fields of a `Parcel`, for a worker that asks; of Dask's handlers in a worker that builds."""
    return msgspec.structs.asdict(await asyncio.to_thread(pack, place))


def take_in(encoded: bytes, name: str, progress: Announcing) -> None:
    """Put what another worker built into the cache of this machine, while nobody measures on it.

    Args:
        encoded: a `Built`.
        name: of the task.
        progress: told what the other one told, and why there is nothing to put there.
    """
    try:
        built = msgspec.msgpack.decode(encoded, type=Built)
        for message in built.messages:
            progress.problem(f"building on {built.host}: {message}")
        if built.reason:
            why = f"{name} could not be built on {built.host} ({built.reason})"
            progress.problem(f"{why}; it is built where it is measured")
        if built.place:
            with compiling(lambda text: progress.step(f"{name}: {text}", 0.0)):
                unpack(_sent(built))
    except Exception as error:  # whatever it is, this machine can build
        progress.problem(f"the build of {name} is refused: {_told(error)}; it is built where it is measured")


def _sent(built: Built) -> Parcel:
    """Ask the worker that built for it; a thread of a worker's waits for the worker's own."""
    from distributed import get_worker

    worker = get_worker()

    async def ask() -> object:
        return await worker.rpc(built.address).op_profiler_build(place=built.place)

    answer = asyncio.run_coroutine_threadsafe(ask(), worker.loop.asyncio_loop)
    try:
        return msgspec.convert(answer.result(_SENDING_SECONDS), Parcel)
    finally:
        answer.cancel()
