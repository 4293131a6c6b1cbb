"""Stores the times of operators that ran side by side in the dataset."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from op_profiler.dataset import Dataset
from op_profiler.dataset.row import CorunMember
from op_profiler.measure.measurement import Settings
from op_profiler.operators.layers import by_operator
from op_profiler.parallel.planning.plan import BLOCKS, Step, placed
from op_profiler.schedules.schedule import UNKNOWN

if TYPE_CHECKING:
    from op_profiler.building.request import BuildRequest
    from op_profiler.parallel.corun.comparison import PlanRun
    from op_profiler.parallel.corun.costs import Profile
    from op_profiler.parallel.corun.models import Models
    from op_profiler.parallel.planning.plan import Plan


def record_coruns(
    db: str, requests: Sequence[BuildRequest], models: Models, profile: Profile, plan: Plan, run: PlanRun
) -> int:
    """Store the stages of a plan in which operators ran side by side, and every operator next to copies of itself.

    Args:
        db: address of the dataset.
        requests: build requests of the models, in order.
        profile: times of the operators in isolation, and next to copies.
        run: run of the plan.

    Returns:
        Number of groups that were stored.
    """
    both = [_keys(request, models, number) for number, request in enumerate(requests)]
    keys = [key for _, key in both]
    groups = [(members, run.load) for members in _stages(models, profile, plan, run, keys)]
    groups += [(members, profile.load) for members in _beside_copies(models, profile, keys)]
    with Dataset.open(db, was_open=True) as dataset, dataset.transaction():  # waits, so that no times are lost
        dataset.add_device(models.machine.device)
        for number, ((base_key, key), request) in enumerate(zip(both, requests, strict=True)):
            _add_model(dataset, base_key, key, request, models, number)
        for members, load in groups:
            dataset.record_corun(
                models.machine.device,
                members,
                load_before=load.before,
                load_after=load.after,
                foreign_load=load.foreign,
            )
    return len(groups)


def _keys(request: BuildRequest, models: Models, number: int) -> tuple[str, str]:
    """Return the base key (without schedule records) and the key of a model in the dataset."""
    content = models.contents[number]
    base_key = request.base_key(
        content if models.split == BLOCKS else f"{content} by rows", models.machine.device.identity
    )
    return base_key, request.model_key(base_key, models.asked[number])


def _add_model(dataset: Dataset, base_key: str, key: str, request: BuildRequest, models: Models, number: int) -> None:
    """Store a model, unless it is stored with all its operators: a collection then stored more than a co-run does."""
    there = dataset.find_model(key)
    if there is not None and there.extracted:
        return
    nodes = models.graph.nodes[models.graph.slice_of(number)]
    positions: dict[str, list[int]] = {}
    for position, node in enumerate(nodes):
        positions.setdefault(node.operator.key, []).append(position)
    operators = {node.operator.key: node.operator for node in nodes}
    dataset.add_model(
        key=key,
        name=request.model.name,
        source=request.model.source,
        batch_size=models.batch_sizes[number],
        precision=request.precision,
        executor=request.executor,
        target=request.target,
        notes=(*(f"merged: {kind}" for kind in models.merged), *([] if models.split == BLOCKS else ["cut by rows"])),
        device_key=models.machine.device.key,
        base_key=base_key,
        asked=models.asked[number],
    )
    compiled = models.compiled[number]
    labels = [call.label for call in compiled.calls]
    found = [(operators[key], tuple(places)) for key, places in positions.items()]
    locations = by_operator([node.operator.key for node in nodes], compiled.locations_of(labels))
    dataset.add_operators(key, found, models.schedules, locations=locations)


def _stages(
    models: Models, profile: Profile, plan: Plan, run: PlanRun, keys: Sequence[str]
) -> Iterator[list[CorunMember]]:
    for stage in plan.stages:
        if len(stage.groups) < 2:
            continue
        members = []
        for _, step, cores in placed((stage,)):
            alone = profile.alone(step)
            if alone is not None:
                settings = _settings(models, cores, run.bound_to, int(run.threads_used[step.node]))
                members.append(_member(models, step, settings, alone, run.durations_us[:, step.node], keys))
        if members:
            yield members


def _beside_copies(models: Models, profile: Profile, keys: Sequence[str]) -> Iterator[list[CorunMember]]:
    """Yield a group for every distinct operator: one thread per core, each running a copy of the operator.

    If an operator occurs several times, the times of its first call are used.
    """
    if not profile.together_us.size:
        return
    seen: set[str] = set()
    for node in models.graph.nodes:
        if node.operator.key in seen:
            continue
        seen.add(node.operator.key)
        step = Step(node.index, 1)
        alone, together = profile.alone_us[1][:, node.index], profile.together_us[:, :, node.index]
        yield [
            _member(models, step, _settings(models, (core,), profile.bound_to, 1), alone, together[:, copy], keys)
            for copy, core in enumerate(models.cores)
        ]


def _settings(models: Models, cores: tuple[int, ...], bound_to: dict[int, int | None], threads_used: int) -> Settings:
    """Return the settings of an operator with one lane per core.

    Args:
        cores: requested cores.
        bound_to: core that the lane of each core was bound to; these are the effective cores.
        threads_used: effective thread count.
    """
    effective = tuple(sorted({found for core in cores if (found := bound_to.get(core)) is not None}))
    return Settings(
        threads=len(cores),
        threads_effective=threads_used,
        core_set=cores,
        core_set_effective=effective,
        cache_mechanism="in-graph",
        parallel_type="full" if models.merged else "stream",
        executor="lanes",
    )


def _member(
    models: Models, step: Step, settings: Settings, alone: np.ndarray, together: np.ndarray, keys: Sequence[str]
) -> CorunMember:
    operator = models.graph.nodes[step.node].operator
    return CorunMember(
        operator_key=operator.key,
        schedule=step.schedule or models.schedules.get(operator.key, UNKNOWN),
        settings=settings,
        model_key=keys[models.graph.nodes[step.node].model],
        alone_samples_us=tuple(float(v) for v in alone.round(3)),
        together_samples_us=tuple(float(v) for v in together.round(3)),
    )
