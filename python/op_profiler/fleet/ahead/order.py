"""What is built ahead, and by whom."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from op_profiler.collection.request import CollectRequest, Studies
from op_profiler.collection.sampling.draw import Draw
from op_profiler.compilers.tvm_build import DEFAULT_BUILD
from op_profiler.fleet.ahead import maker
from op_profiler.fleet.ahead.delivery import ORDER, Promise
from op_profiler.fleet.machine import Compiles, FleetMachine
from op_profiler.fleet.needs import Needs, meets
from op_profiler.fleet.tasks import CollectTask, CorunTask, SampleTask, Task
from op_profiler.parallel.corun.request import AUTO, CorunRequest
from op_profiler.schedules import records
from op_profiler.targets.target import kind_of

if TYPE_CHECKING:
    from distributed import Future

    from op_profiler.fleet.cluster import Cluster, Workers
    from op_profiler.fleet.jobs import Job
    from op_profiler.fleet.workforce import Workforce

_AFTER_MEASURING = -1  # Dask's priority; that of tasks is 0


def order_for(task: Task, machines: Sequence[FleetMachine]) -> maker.Order | None:
    """What to build ahead for the machines that may measure a task.

    None where they build it themselves: it is a dry run or for a GPU, or the machines are of several kinds, and nobody
    knows yet which of them will be free. Schedule records are those of the machine that measures, so what is built
    elsewhere is built without.
    """
    if isinstance(task, CorunTask):
        compiler, targets, dry_run = task.request.compiler, task.request.targets, False
    else:
        build = task.request.build
        compiler, targets, dry_run = build.compiler, (build.target,), task.request.dry_run
    alike = {machine.compilers.get(compiler) for machine in machines}
    one = alike.pop() if len(alike) == 1 else None
    if one is None or dry_run or any(kind_of(target).tvm_build != DEFAULT_BUILD for target in targets):
        return None
    if isinstance(task, CorunTask):
        return maker.Order(compiler, one, models=_side_by_side(task.request, one))
    request = dataclasses.replace(task.request.of(schedules=records.NONE), studies=Studies())
    target = _in_full(request.build.target, one)
    known = [machine.measures[request.build.kind.name] for machine in machines] if request.build.on_host else []
    identities = tuple(dict.fromkeys(known))
    if isinstance(task, CollectTask):  # a study begins with the model under default schedules, too
        return maker.Order(compiler, one, models=(maker.Model(request, target, machines=identities),))
    processors = {machine.processor for machine in machines}
    if len(processors) > 1:  # a batch is named for one
        return None
    if isinstance(task, SampleTask):
        draw, first, count = task.draw, task.number, 1
    else:
        draw, first, count = Draw(label="calibrate", seed=task.seed, telling=True), 0, None
    batches = maker.Batches(request, target, identities, processors.pop(), draw, first, count)
    return maker.Order(compiler, one, batches=batches)


def _in_full(target: str, one: Compiles) -> str:
    return one.llvm if target.strip() == "llvm" else target


def _side_by_side(request: CorunRequest, one: Compiles) -> tuple[maker.Model, ...]:
    """Each model for each target, and with merged operators where these are tried."""
    merges = len(request.targets) == 1 and request.plan is None and (request.merge or request.policy == AUTO)
    return tuple(
        maker.Model(CollectRequest(build=build), _in_full(target, one), merge)
        for merge in ((False, True) if merges else (False,))
        for target in request.targets
        for build in dict.fromkeys(dataclasses.replace(plain, schedules=records.NONE) for plain in request.on(target))
    )


@dataclasses.dataclass(frozen=True)
class Ordered:
    """An order that a worker has got.

    Attributes:
        builder: its address.
        promise: for the worker that measures, encoded.
        future: to be kept, since a scheduler forgets what nobody waits for.
    """

    builder: str
    promise: bytes
    future: Future[None]


class Builders:
    """The workers that may build ahead for others."""

    def __init__(self, cluster: Cluster, workforce: Workforce) -> None:
        self._cluster, self._workforce = cluster, workforce

    def order(
        self, task: Task, needs: Needs, key: str, out: Mapping[Future[bytes], Job], waiting: Sequence[Job]
    ) -> Ordered | None:
        """Have a task's builds made by a machine that has nothing to measure.

        None where those that may measure it have nothing else to do and build as fast, or where nobody else is free:
        on a cluster of one machine nothing travels.

        Args:
            needs: of those that may measure the task.
            key: of the task.
            out: what was handed out before.
            waiting: what is handed out next.
        """
        everybody = self._workforce.all()
        if len({machine.host_id for machine, _ in everybody.values()}) < 2:
            return None
        able = {address: machine for address, (machine, about) in everybody.items() if meets(about["resources"], needs)}
        order = order_for(task, list(able.values()))
        if order is None or (
            order.count is not None and _is_one_idle([everybody[address][1]["resources"] for address in able], out)
        ):
            return None
        there = {machine.host_id for machine in able.values()}
        builders = {
            address: machine
            for address, (machine, _) in everybody.items()
            if machine.host_id not in there and order.can_be_built_by(machine)
        }
        soon = [job.needs for job in waiting] if order.count is None else []  # it lasts longer than they wait
        free = dict(self._free(everybody, builders, out, soon)) if builders else {}
        if not free:
            return None
        address = max(free, key=free.__getitem__)
        future = self._cluster.client.submit(
            maker.carry_out,
            msgspec.msgpack.encode(order),
            key=ORDER + key,
            workers=[address],
            priority=_AFTER_MEASURING,
        )
        promise = Promise(builders[address].host, address, future.key, order.count)
        return Ordered(address, msgspec.msgpack.encode(promise), future)

    def _free(
        self,
        everybody: Workers,
        builders: Mapping[str, FleetMachine],
        out: Mapping[Future[bytes], Job],
        soon: Sequence[Needs],
    ) -> Iterator[tuple[str, int]]:
        """Those whose machine has nothing to measure, and how many orders more they may get."""
        processing = self._cluster.processing()
        measuring = {
            everybody[address][0].host_id
            for address, keys in processing.items()
            if address in everybody and not all(key.startswith(ORDER) for key in keys)
        }
        given = {key for keys in processing.values() for key in keys}
        ordered = [job.ordered for job in out.values() if job.ordered is not None]
        on_their_way = [*soon, *(job.needs for future, job in out.items() if future.key not in given)]
        for address, machine in builders.items():
            resources = everybody[address][1]["resources"]
            if machine.host_id in measuring or any(meets(resources, needs) for needs in on_their_way):
                continue
            mine = sum(one.builder == address and not one.future.done() for one in ordered)
            others = sum(key.startswith(ORDER) for key in processing.get(address, ()))
            left = machine.builds - max(mine, others)
            if left > 0:
                yield address, left


def _is_one_idle(offered: Sequence[Needs], out: Mapping[Future[bytes], Job]) -> bool:
    """Whether one of those that may measure a task has nothing else to do."""
    return sum(any(meets(one, job.needs) for one in offered) for job in out.values()) < len(offered)
