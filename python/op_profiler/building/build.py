"""From models to kernels, with the schedule records that a request asks for; an earlier build is used again."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from op_profiler.schedules.schedule import Schedule

if TYPE_CHECKING:
    from op_profiler.building.request import BuildRequest
    from op_profiler.compilers.compiled_model import CompiledModel, Occurrence
    from op_profiler.compilers.relay.relay_model import RelayModel
    from op_profiler.schedules.chosen import ChosenSchedules
    from op_profiler.schedules.usable_records import UsableRecords


@dataclasses.dataclass(frozen=True)
class BuiltModel:
    """A built model.

    Attributes:
        schedules: what the build gave to the operators, by workload key.
        asked: computations that it looked for schedule records of.
        notes: what the user should know about the build and the records that it took.
    """

    compiled: CompiledModel
    schedules: dict[str, Schedule]
    asked: frozenset[str]
    notes: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class FusedOperators:
    """The operators that a build would compile.

    Attributes:
        occurrences: in the order of the calls.
        asked: computations that the build would look for schedule records of.
        notes: what the user should know about the records that it would take.
    """

    occurrences: Sequence[Occurrence]
    asked: frozenset[str]
    notes: tuple[str, ...]


def build_model(request: BuildRequest, model: RelayModel, target: Any) -> BuiltModel:
    """Build a model, or read what an earlier build of the same left behind.

    Args:
        request: says for which conditions and for which executor.
        model: in its precision; what was made of it (`compilers.relay.merge_parallel`) is part of its name.
        target: `tvm.target.Target`.

    Raises:
        ModelError: the compiler refuses it.
    """
    from op_profiler.building.build_cache import BuildCache

    records = request.usable_records()
    kept = BuildCache(request, model, target, records)
    built = kept.find()
    if built is None:
        compiled, choices, asked = _compile(model, target, records, "vm" if request.executor == "vm" else "graph")
        schedules = {o.operator.key: choices.schedule_of(o) for o in compiled.by_label.values()}
        built = BuiltModel(compiled, schedules, asked)
        kept.keep(built)
    return dataclasses.replace(built, notes=(*built.compiled.notes, *records.notes(built.asked)))


def build_operator(occurrence: Occurrence, target: Any, records: UsableRecords) -> tuple[RelayModel, BuiltModel]:
    """Build an operator as a model of its own, whose inputs its weights are among.

    Raises:
        ModelError: the compiler refuses it.
    """
    from op_profiler.compilers.relay.lower import single_operator_model

    model = single_operator_model(occurrence)
    compiled, choices, asked = _compile(model, target, records)
    return model, BuiltModel(compiled, {occurrence.operator.key: choices.schedule_of(occurrence)}, asked)


def _compile(
    model: RelayModel, target: Any, records: UsableRecords, executor: str = "graph"
) -> tuple[CompiledModel, ChosenSchedules, frozenset[str]]:
    """The kernels, the schedules that the compiler chose, and what it looked for records of."""
    from op_profiler.compilers.relay.lower import compile_model
    from op_profiler.schedules.chosen import chosen_schedules

    with records.applied() as asked, chosen_schedules() as choices:
        compiled = compile_model(model, target, executor)
    return compiled, choices, frozenset(asked)


def fuse_model(request: BuildRequest, model: RelayModel, target: Any) -> FusedOperators:
    """The operators of a model, without building it.

    Raises:
        ModelError: the compiler refuses it.
    """
    from op_profiler.compilers.relay.lower import optimize

    return fuse_operators(request.usable_records(), target, lambda: optimize(model, target))


def fuse_operators(records: UsableRecords, target: Any, lower: Callable[[], Sequence[Occurrence]]) -> FusedOperators:
    """What lowering gives under schedule records.

    A build asks records of more computations than lowering does, since a record of Winograd's changes what is lowered
    once there is one; it is made to ask for all of them.
    """
    from op_profiler.schedules.chosen import weigh_all

    with records.applied() as asked:
        occurrences = lower()
        weigh_all(occurrences, target)
    return FusedOperators(occurrences, frozenset(asked), records.notes(asked))
