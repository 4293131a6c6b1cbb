"""A worker that builds ahead for others."""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import functools
import itertools
import platform
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import msgspec

from op_profiler.building.parcel import pack
from op_profiler.collection.lookup import stored_for
from op_profiler.collection.request import CollectRequest
from op_profiler.collection.sampling.draw import Draw
from op_profiler.errors import OpProfilerError
from op_profiler.fleet.ahead.delivery import ORDER, Delivery, SampledBatch
from op_profiler.fleet.events import Announcing
from op_profiler.fleet.machine import Compiles, FleetMachine
from op_profiler.fleet.tasks import batch_of
from op_profiler.measure.turns import PROCESSOR, is_wanted

if TYPE_CHECKING:
    from distributed import Worker

    from op_profiler.collection.sampling.batch import Batch

_AHEAD = 2  # batches that nobody has asked for yet
_BEGIN_SECONDS = 10.0  # within which a worker that has nothing else to do begins an order
_ASKED_SECONDS = 300.0  # after which nobody comes for batches any more
_MOST_ORDERS = 256  # that are remembered
_EVERY_SECONDS = 0.1


class Model(msgspec.Struct, frozen=True):
    """A model to build.

    Attributes:
        request: as whoever measures has it, but without schedule records.
        target: in full.
        merge: with its parallel operators merged; nothing is built where there are none.
        machines: `Device.identity` of those that may measure it; nothing is built where the dataset has it of all.
    """

    request: CollectRequest
    target: str
    merge: bool = False
    machines: tuple[str, ...] = ()


class Batches(msgspec.Struct, frozen=True):
    """Batches of sampled operators to make and to build.

    Attributes:
        request, target, machines: as of a `Model`; the request has none.
        processor: of those that measure.
        first: number of the first.
        count: how many; None for as many as are asked for.
    """

    request: CollectRequest
    target: str
    machines: tuple[str, ...]
    processor: str
    draw: Draw
    first: int
    count: int | None


class Order(msgspec.Struct, frozen=True):
    """What a worker is to build: models, or batches of sampled operators.

    Attributes:
        compiler: by its name.
        compiles: that of the machines that measure.
    """

    compiler: str
    compiles: Compiles
    models: tuple[Model, ...] = ()
    batches: Batches | None = None

    @property
    def count(self) -> int | None:
        """Of builds; None where that is not known before."""
        return self.batches.count if self.batches is not None else len(self.models)

    def can_be_built_by(self, machine: FleetMachine) -> bool:
        """Whether it has the same TVM for the same kind of processors, and the same code of this package."""
        there = machine.compilers.get(self.compiler)
        like = self.compiles
        return machine.builds > 0 and there is not None and (there.tvm, there.code) == (like.tvm, like.code)


@dataclasses.dataclass(frozen=True)
class _Made:
    """What became of a build.

    Attributes:
        place: where the cache keeps it; empty where there is none.
        batch: name of the sampled operators that it is of.
        reason: why there is none; empty where every machine has measured it before.
        messages: notes and problems on the way.
    """

    place: str = ""
    batch: str = ""
    reason: str = ""
    messages: tuple[str, ...] = ()


@dataclasses.dataclass
class _Work:
    """An order of this worker.

    Attributes:
        made: by number.
        asked: the highest number that somebody came for, and when; -1 for none.
        over: nothing is made any more.
    """

    made: dict[int, _Made] = dataclasses.field(default_factory=dict)
    asked: int = -1
    asked_at: float = dataclasses.field(default_factory=time.monotonic)
    over: bool = False


class _Desk:
    """The orders of this process: threads of its worker build, and the worker's event loop answers who asks."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._works: collections.OrderedDict[str, _Work] = collections.OrderedDict()

    def open(self, key: str) -> _Work | None:
        """Begin an order; None where somebody came for it too early, or measures on this machine."""
        with self._lock:
            if key in self._works:
                return None
            work = self._add(key, _Work(over=is_wanted(PROCESSOR)))
        return None if work.over else work

    def find(self, key: str) -> _Work | None:
        """An order that has begun, or never will."""
        return self._works.get(key)

    def close(self, key: str) -> None:
        """Build nothing of an order that has not begun."""
        with self._lock:
            if key not in self._works:
                self._add(key, _Work(over=True))

    def _add(self, key: str, work: _Work) -> _Work:
        self._works[key] = work
        if len(self._works) > _MOST_ORDERS:
            self._works.popitem(last=False)
        return work


_desk = _Desk()


def carry_out(encoded: bytes) -> None:
    """Build what an `Order` asks for; runs in a worker. A task that the worker gets meanwhile runs beside it, and waits
    for the machine's lock no longer than the build takes that has begun."""
    from distributed import get_worker, secede

    secede()  # a worker has one thread, which is for who measures
    worker = get_worker()
    key = str(worker.get_current_task())
    work = _desk.open(key)
    if work is None:
        return
    progress = Announcing(platform.node())
    progress.tell()
    try:
        order = msgspec.msgpack.decode(encoded, type=Order)
        for number, make in enumerate(_builds(order, progress)):
            if number and not _may_go_on(order, number, work, worker, key):
                return
            work.made[number] = _attempt(make, progress)
    finally:
        work.over = True


def _may_go_on(order: Order, number: int, work: _Work, worker: Worker, key: str) -> bool:
    """Whether another build is to begin, once that shows: batches without end are made as they are asked for."""
    while order.count is None and number > work.asked + _AHEAD:
        if time.monotonic() > work.asked_at + _ASKED_SECONDS or not _is_awaited(worker, key):
            return False
        time.sleep(_EVERY_SECONDS)
    return _is_awaited(worker, key) and not is_wanted(PROCESSOR)


def _is_awaited(worker: Worker, key: str) -> bool:
    """Whether the client still keeps the order: its task is not over."""
    task = worker.state.tasks.get(key)
    return task is not None and task.state in ("executing", "long-running")


def _builds(order: Order, progress: Announcing) -> Iterator[Callable[[], _Made]]:
    if order.batches is None:
        for model in order.models:
            yield functools.partial(_model, model, progress)
        return
    asked = order.batches
    batches: Iterable[Batch]
    if asked.count is None:
        batches = itertools.islice(asked.draw.batches(), asked.first, None)
    else:  # the next order goes on in the same draw
        numbers = range(asked.first, asked.first + asked.count)
        batches = itertools.chain.from_iterable(batch_of(asked.draw, number) for number in numbers)
    for batch in batches:
        yield functools.partial(_batch, asked, batch, progress)


def _attempt(make: Callable[[], _Made], progress: Announcing) -> _Made:
    told = len(progress.messages)
    try:
        made = make()
    except Exception as error:  # whatever it is, the machine that measures may be without it
        made = _Made(reason=why(error))
    return dataclasses.replace(made, messages=tuple(progress.messages[told:]))


def why(error: Exception) -> str:
    """For people."""
    return str(error) if isinstance(error, OpProfilerError) else f"{type(error).__name__}: {error}"


def _model(asked: Model, progress: Announcing) -> _Made:
    from op_profiler.collection.supervisor import build_only

    if _is_measured(asked.request, asked.machines):
        return _Made()
    return _Made(build_only(_in_full(asked.request, asked.target), progress, merge=asked.merge))


def _batch(asked: Batches, batch: Batch, progress: Announcing) -> _Made:
    from op_profiler.collection.sampling.run import of_batch, written
    from op_profiler.collection.supervisor import build_only

    build = asked.request.build
    name = written(batch, build, progress, target=asked.target, processor=asked.processor)
    request = of_batch(batch, name, asked.request)
    if _is_measured(request, asked.machines):
        return _Made(batch=name)
    return _Made(build_only(_in_full(request, asked.target), progress), name)


def _in_full(request: CollectRequest, target: str) -> CollectRequest:
    return request.of(target=target, threads=request.build.threads or (1,))  # these are no part of a build


def _is_measured(request: CollectRequest, machines: tuple[str, ...]) -> bool:
    """Whether the dataset has all that is asked for of each machine, which then needs no build."""
    threads = set(request.build.threads)
    if not machines or not threads:  # those that suit a machine are not known here
        return False
    stored = stored_for(request, machines)
    return all(machine in stored and stored[machine].answered >= threads for machine in machines)


async def send(worker: Worker, key: str, number: int, packed: bool) -> bytes:
    """An encoded `Delivery`, once it is there; of Dask's handlers in every worker of ours.

    Args:
        key: of the order.
        number: of the build in the order, from 0.
        packed: with the files; else only whether there are some.
    """
    asked_at = time.monotonic()
    while True:
        work = _desk.find(key)
        if work is not None:
            work.asked, work.asked_at = max(work.asked, number), time.monotonic()
            if number in work.made:
                delivery = await asyncio.to_thread(_delivery, work.made[number], packed)
                return msgspec.msgpack.encode(delivery)
            if work.over:
                return msgspec.msgpack.encode(Delivery(last=True))
        elif _measures(worker) or time.monotonic() > asked_at + _BEGIN_SECONDS:
            _desk.close(key)
        await asyncio.sleep(_EVERY_SECONDS)


def _measures(worker: Worker) -> bool:
    """Whether it carries out a task, before which no order begins."""
    return any(not str(task.key).startswith(ORDER) for task in worker.state.executing)


def _delivery(made: _Made, packed: bool) -> Delivery:
    there = bool(made.place or made.batch)
    if not packed:
        return Delivery(is_there=there, reason=made.reason, messages=made.messages)
    parcel = pack(made.place) if made.place else None
    return Delivery(parcel=parcel, batch=SampledBatch.of(made.batch) if made.batch else None, is_there=there)
