"""`Plan` and its file format: order, cores and thread count of each operator, and which operators run side by side."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from op_profiler.errors import OpProfilerError
from op_profiler.option_values import several, threads_text
from op_profiler.schedules.schedule import Schedule

if TYPE_CHECKING:
    from op_profiler.parallel.planning.graph import KernelGraph

FORMAT = "op_profiler plan"
VERSION = 1
BLOCKS, ROWS = "blocks", "rows"


class PlanError(OpProfilerError):
    """Raised if a plan does not fit the models or the device, or cannot be run; the message gives the reason."""

    exit_code = 2


@dataclasses.dataclass(frozen=True)
class Step:
    """One operator in a plan.

    Attributes:
        node: number of the operator's call in the `KernelGraph`.
        threads: thread count; the operator runs on the first `threads` cores of its group.
        schedule: schedule with which the operator is built again; None for the kernel of the model's build.
    """

    node: int
    threads: int
    schedule: Schedule | None = dataclasses.field(default=None, hash=False)


@dataclasses.dataclass(frozen=True)
class Group:
    """Operators that run one after the other on the same cores.

    Attributes:
        steps: the operators in order; at least one.
        cores: numbers of the cores, each once (on a GPU: the number of one stream); at least one.
    """

    steps: tuple[Step, ...]
    cores: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Stage:
    """Groups that run side by side, on different cores.

    Each operator waits for the operators whose output it reads, and for earlier operators of the plan on its cores.
    There is no other barrier between stages.
    """

    groups: tuple[Group, ...]

    @property
    def steps(self) -> Iterator[Step]:
        """Yield all steps, group after group."""
        for group in self.groups:
            yield from group.steps


@dataclasses.dataclass(frozen=True)
class Plan:
    """A plan for running a `KernelGraph` on a device.

    Attributes:
        policy: name of the policy that made the plan.
        models: names of the models, in the order of the graph.
        graph: `KernelGraph.digest` of the graph.
        device: key of the device (`Device.key`).
        processor: name of the device's processor, for messages.
        stages: the stages, which together contain every node of the graph exactly once.
        predicted_us: predicted time of the plan, microseconds; None if it was not predicted.
        merged: kinds of operators that were merged into one kernel before the model was built (parallel type ``full``).
        split: how an operator with several threads is cut into parts: ``blocks``, as TVM does it, mostly by channels;
            or ``rows`` (see `op_profiler.parallel.planning.rows`), so that cores read data that they wrote themselves.
    """

    policy: str
    models: tuple[str, ...]
    graph: str
    device: str
    processor: str
    stages: tuple[Stage, ...]
    predicted_us: float | None = None
    merged: tuple[str, ...] = ()
    split: str = BLOCKS

    @property
    def steps(self) -> Iterator[tuple[Step, Group]]:
        """Yield all steps in the order of the plan, each with its group."""
        for stage in self.stages:
            for group in stage.groups:
                for step in group.steps:
                    yield step, group

    @property
    def as_built(self) -> bool:
        """Return whether all kernels are those of the model's build, so that outputs are equal bit for bit."""
        return not self.merged and all(step.schedule is None for step, _ in self.steps)

    @property
    def title(self) -> str:
        """Return a title: the policy, the merged kinds of operators, and whether operators are cut by rows."""
        rows = ("by rows",) if self.split == ROWS else ()
        return ", ".join((self.policy, *(f"{kind} merged" for kind in self.merged), *rows))

    @property
    def cores(self) -> tuple[int, ...]:
        """Return all cores that the plan uses, in ascending order."""
        return tuple(sorted({core for stage in self.stages for group in stage.groups for core in group.cores}))

    def check(self, graph: KernelGraph, *, device: str, processor: str, cores: tuple[int, ...]) -> None:
        """Check that the plan fits the graph and the device, and can be run.

        Whether an operator can be built with the schedule of its step is not checked; `Variants.function` finds out.

        Args:
            device: key of the device.
            processor: name of its processor, for messages.
            cores: cores that the plan may use.

        Raises:
            PlanError: the plan is for other models or another device, uses a core that is not in `cores`, lacks or
                repeats an operator, has a stage with groups that share a core, or runs an operator before another one
                whose output it reads.
        """
        self.check_models(graph.models)
        if self.device != device:
            raise PlanError(f"the plan is for device {self.device} ({self.processor}); this is {device} ({processor})")
        self._check_nodes(graph)
        if self.graph != graph.digest:
            raise PlanError(
                f"the plan is for another build of {', '.join(self.models)}: its graph is {self.graph}, "
                f"this one {graph.digest} (another input size, precision, version of TVM, or schedule records?)"
            )
        strange = sorted(set(self.cores) - set(cores))
        if strange:
            raise PlanError(f"the plan uses cores {strange}; this process may use {list(cores)}")
        for number, stage in enumerate(self.stages):
            _check_stage(number, stage)
        check_order(graph, self.stages)

    def check_models(self, names: tuple[str, ...]) -> None:
        """Check that the plan is for models with these names; no model has to be loaded.

        Raises:
            PlanError: the names differ; the message contains both.
        """
        if self.models != names:
            raise PlanError(f"the plan is for {', '.join(self.models)}, not for {', '.join(names)}")

    def _check_nodes(self, graph: KernelGraph) -> None:
        there = [step.node for step, _ in self.steps]
        unknown = sorted(set(there) - set(range(len(graph))))
        if unknown:
            raise PlanError(f"the plan names operators {unknown[:5]}; the model has 0 to {len(graph) - 1}")
        missing = sorted(set(range(len(graph))) - set(there))
        if missing:
            names = ", ".join(f"{n} ({graph.nodes[n].name})" for n in missing[:5])
            raise PlanError(f"the plan leaves out {len(missing)} operator{'s' * (len(missing) != 1)}: {names}")
        twice = sorted({node for node in there if there.count(node) > 1}) if len(there) > len(graph) else []
        if twice:
            raise PlanError(f"the plan runs operators {twice[:5]} more than once")

    def to_json(self, graph: KernelGraph | None = None) -> dict[str, Any]:
        """Return the plan as a JSON-serializable dictionary; with a graph, it also contains the operators' names."""
        stages = [
            [_FileGroup(list(group.cores), [_written(step, graph) for step in group.steps]) for group in stage.groups]
            for stage in self.stages
        ]
        plain: dict[str, Any] = msgspec.to_builtins(
            _File(stages=stages, **{name: getattr(self, name) for name in _SAME})
        )
        return plain

    @classmethod
    def from_json(cls, found: Any) -> Plan:
        """Return the plan from a dictionary that `to_json` returned.

        Raises:
            PlanError: a field is missing or of the wrong type; the message names the field and its position.
        """
        if not isinstance(found, dict) or found.get("format") != FORMAT:
            raise PlanError(f'this is no plan of op_profiler: "format" has to be "{FORMAT}"')
        if found.get("version") != VERSION:
            raise PlanError(f"the plan is of version {found.get('version')!r}; this op_profiler reads {VERSION}")
        try:
            file = msgspec.convert(found, _File)
        except (msgspec.ValidationError, RecursionError) as error:
            raise PlanError(f"the plan cannot be read: {error}") from error
        if file.split not in (BLOCKS, ROWS):
            raise PlanError(f'the plan cannot be read: "split" is {file.split!r}; it has to be "{BLOCKS}" or "{ROWS}"')
        stages = tuple(
            Stage(tuple(Group(tuple(_read(one) for one in group.operators), tuple(group.cores)) for group in stage))
            for stage in file.stages
        )
        return cls(stages=stages, **{name: getattr(file, name) for name in _SAME})


class _FileSchedule(msgspec.Struct):
    template: str
    knobs: dict[str, Any]


class _FileStep(msgspec.Struct, omit_defaults=True):
    op: int
    threads: int
    schedule: _FileSchedule | None = None
    name: str | None = None


class _FileGroup(msgspec.Struct):
    cores: list[int]
    operators: list[_FileStep]


class _File(msgspec.Struct, kw_only=True):
    """A plan as its file stores it; msgspec checks the types of all fields."""

    format: str = FORMAT
    version: int = VERSION
    policy: str
    models: tuple[str, ...]
    graph: str
    device: str
    processor: str
    predicted_us: float | None
    merged: tuple[str, ...]
    split: str = BLOCKS  # the first plan files do not have this field
    stages: list[list[_FileGroup]]


_SAME = ("policy", "models", "graph", "device", "processor", "predicted_us", "merged", "split")
"""Fields of `Plan` that its file stores unchanged."""


def _written(step: Step, graph: KernelGraph | None) -> _FileStep:
    schedule = None if step.schedule is None else _FileSchedule(step.schedule.template, step.schedule.knobs)
    return _FileStep(step.node, step.threads, schedule, None if graph is None else graph.nodes[step.node].name)


def _read(step: _FileStep) -> Step:
    schedule = None if step.schedule is None else Schedule(step.schedule.template, step.schedule.knobs, "trial")
    return Step(step.op, step.threads, schedule)


def placed(stages: Sequence[Stage]) -> Iterator[tuple[int, Step, tuple[int, ...]]]:
    """Yield all steps in the order of a plan, each with the number of its stage and the cores that it runs on."""
    for number, stage in enumerate(stages):
        for group in stage.groups:
            for step in group.steps:
                yield number, step, group.cores[: step.threads]


def check_order(graph: KernelGraph, stages: tuple[Stage, ...]) -> None:
    """Check that every operator runs after the operators whose output it reads.

    Raises:
        PlanError: an operator reads the output of an operator that is later in the plan or in another group of the same
            stage; the message names both.
    """
    place: dict[int, tuple[int, int]] = {}
    for number, stage in enumerate(stages):
        for at, group in enumerate(stage.groups):
            for step in group.steps:
                for source in graph.nodes[step.node].inputs:
                    before = place.get(source)
                    if before is None or (before[0] == number and before[1] != at):
                        here, there = graph.nodes[step.node], graph.nodes[source]
                        raise PlanError(
                            f"stage {number}: {here.index} ({here.name}) reads the output of {there.index} "
                            f"({there.name}), which "
                            + ("is in another group of the stage" if before else "has not run by then: a cycle")
                        )
                place[step.node] = (number, at)


def _check_stage(number: int, stage: Stage) -> None:
    used: set[int] = set()
    if not stage.groups:
        raise PlanError(f"stage {number} is empty")
    for group in stage.groups:
        if not group.steps or not group.cores:
            raise PlanError(f"stage {number} has a group without operators or without cores")
        if len(set(group.cores)) < len(group.cores) or used & set(group.cores):
            raise PlanError(f"stage {number}: two groups share a core, or one names it twice: {group.cores}")
        used |= set(group.cores)
        for step in group.steps:
            if not 1 <= step.threads <= len(group.cores):
                raise PlanError(
                    f"stage {number}: operator {step.node} is to have {threads_text(step.threads)} on "
                    f"{several(len(group.cores), 'core')}"
                )


def read_plan(path: Path) -> Plan:
    """Read a plan from a file.

    Raises:
        PlanError: the file cannot be read, or does not contain a plan.
    """
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise PlanError(f"{path} is no plan that can be read: {error}") from error
    return Plan.from_json(found)
