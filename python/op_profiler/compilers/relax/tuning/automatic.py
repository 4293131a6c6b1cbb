"""MetaSchedule's automatic space: the sketches of a function, with the decisions of each as knobs.

A sketch is a trace whose decisions are open. MetaSchedule draws them at random; here they are knobs, so that every
tuner of this package can search them, in this package's processes and with the same columns in the dataset:

====================  ==========================================================================================
``tile_<axis>``       parts that a spatial axis is split into, the outermost first
``split_<axis>``      parts that a reduction axis is split into, the outermost first
``compute_at_<name>`` position of a block: the number of a loop of its reader, -1 the root, -2 inline
``unroll``            largest number of unrolled steps of a loop
====================  ==========================================================================================

If several blocks are tiled, the names of the later ones contain the block. The template identifies the sketch.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

from op_profiler.compilers.relax.rules.blocks import REDUCTION, TVM_ERRORS
from op_profiler.compilers.relax.tuning.finished_loops import with_loops
from op_profiler.compilers.relax.tuning.function_task import FunctionTask, Knobs, plain
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.compilers.tvm_errors import last_line
from op_profiler.cores import usable_cores
from op_profiler.lean_imports import standing_in
from op_profiler.schedules.factors import Factors
from op_profiler.schedules.metaschedule_database import OTHER_TEMPLATE
from op_profiler.schedules.schedule import Schedule
from op_profiler.tuning.task import InvalidPointError

if TYPE_CHECKING:
    from op_profiler.compilers.tvm_types import Target
    from op_profiler.tuning.candidate import TaskSpec

PREFIX = f"{OTHER_TEMPLATE}."
"""Prefix of the templates of sketches, before their number."""
_SEED = 1
_KIND = "llvm"
_ROOT, _INLINE = -1, -2
_NAMED = {_ROOT: "root", _INLINE: "inline"}
_MOST_PLACES = 40  # loops of a block's reader; a sketch of a convolution has about 28
_UNROLL = "meta_schedule.unroll_explicit"

Sketch = tuple[list[Any], list[Any]]
"""Instructions and decisions of a trace, as JSON."""


def sketches(module: Any, target: Target) -> list[str]:
    """Return the sketches of a function as JSON, with the knobs of each; sketches without open decisions are left out.

    Args:
        module: ``tvm.IRModule`` with the function as ``main``.
    """
    context = _context(module, target)
    found = []
    for schedule in context.generate_design_space():
        instructions, decisions = plain(schedule.trace.as_json())
        knobs = _knobs(module, (instructions, decisions))
        if knobs:
            found.append(json.dumps([instructions, decisions, knobs]))
    return found


def factors_of_sketch(knobs: Mapping[str, Any]) -> Factors:
    """Return the schedule factors of knob values; the tile of an axis is its innermost part.

    MetaSchedule decides by sizes which loops are parallel or vectorized; these factors are read from the loops
    (`with_loops`).
    """
    tile, split, where = {}, {}, []
    for name, value in knobs.items():
        kind, _, axis = name.partition("_")
        if kind == "tile":
            tile[axis] = int(value[-1])
        elif kind == "split":
            split[axis] = int(value[-1])
        elif kind == "compute":
            where.append(_NAMED.get(value, f"loop {value}"))
    unroll = knobs.get("unroll")
    return Factors(
        tile=tile or None,
        split=split or None,
        compute_at=" ".join(where) or None,
        unroll=f"at most {unroll}" if unroll else None,
    )


class SketchTask(FunctionTask):
    """Search task for the schedules of one sketch of a function.

    Args:
        spec: spec whose last argument is a sketch from `sketches`.
    """

    def __init__(self, spec: TaskSpec, target: Target) -> None:
        super().__init__(spec, target)
        instructions, decisions, knobs = json.loads(spec.arguments[-1])
        self._sketch: Sketch = (instructions, decisions)
        self._numbers = {name: number for name, (number, _) in knobs.items()}
        self.knobs = {name: values for name, (_, values) in knobs.items()}

    def is_valid(self, point: int) -> bool:
        """Return True: only applying the decisions shows whether they are compatible."""
        return True

    def factors(self, knobs: Mapping[str, Any]) -> Factors:
        """Derive the factors from the knobs alone, without loops (`factors_of_sketch`)."""
        return factors_of_sketch(knobs)

    def applied(self, point: int) -> Schedule:
        """Return the schedule of a point, with the factors that its loops have; if the point is invalid, only with the
        factors of its knobs."""
        schedule = self.schedule(point)
        try:
            made = self._scheduled(schedule.knobs)
        except InvalidPointError:
            return schedule
        return dataclasses.replace(schedule, factors=with_loops(schedule.factors, made))

    def default(self) -> Schedule:
        """Return the schedule with the decisions that MetaSchedule drew when it generated the sketch."""
        drawn = dict(self._sketch[1])
        knobs = {name: self._value(name, drawn[number]) for name, number in self._numbers.items()}
        return Schedule(self.spec.template, knobs, "trial", factors_of_sketch(knobs))

    def _value(self, name: str, decision: Any) -> Any:
        """Return the value of a decision; for a choice, the decision is an index into the values."""
        return self.knobs[name][decision] if name == "unroll" else decision

    def _scheduled(self, knobs: Knobs) -> Any:
        chosen = {
            number: self.knobs[name].index(knobs[name]) if name == "unroll" else knobs[name]
            for name, number in self._numbers.items()
        }
        instructions, drawn = self._sketch
        wanted = [[number, chosen.get(number, decision)] for number, decision in drawn]
        try:
            schedule = _applied(self._module, (instructions, wanted))
            decided = plain(schedule.trace.as_json())[1]
            schedule.enter_postproc()
            finished = all(step.apply(schedule) for step in _postprocessing())
        except TVM_ERRORS as error:
            raise InvalidPointError(last_line(error)) from error
        if decided != wanted:  # TVM uses the position before an impossible one
            raise InvalidPointError("a block cannot be computed there")
        if not finished:
            raise InvalidPointError("MetaSchedule refuses what it becomes")
        return schedule


def _context(module: Any, target: Target) -> Any:
    tvm = load_tvm()
    meta_schedule = tvm.s_tir.meta_schedule
    known = tvm.target.Target({**dict(target.export()), "num-cores": usable_cores()})
    generator = meta_schedule.space_generator.PostOrderApply(sch_rules=_KIND, postprocs=_KIND, mutator_probs=_KIND)
    intrinsics = "tvm.s_tir.tensor_intrin"
    # an empty module, because importing the intrinsics takes twenty seconds, and these rules do not use them
    with standing_in(intrinsics, ModuleType(intrinsics)):
        return meta_schedule.TuneContext(
            module, target=known, space_generator=generator, rand_state=_SEED, num_threads=1
        )


@functools.cache
def _postprocessing() -> list[Any]:
    """Return the steps that MetaSchedule applies to every schedule for a processor; these need no context."""
    Postproc = load_tvm().s_tir.meta_schedule.postproc.Postproc
    return list(Postproc.create(_KIND))


def _applied(module: Any, sketch: Sketch) -> Any:
    s_tir = load_tvm().s_tir
    schedule = s_tir.Schedule(module)
    s_tir.schedule.Trace.apply_json_to_schedule(list(sketch), schedule)
    return schedule


def _knobs(module: Any, sketch: Sketch) -> dict[str, tuple[int, list[Any]]]:
    """Return for each knob with several values the number of the instruction that decides it, and the values."""
    instructions, decisions = sketch
    names = _Names(module, instructions)
    found: dict[str, tuple[int, list[Any]]] = {}
    for number, decision in decisions:
        kind, inputs, attrs, outputs = instructions[number]
        values: list[Any]
        if kind == "SamplePerfectTile":
            name, values = names.of_loop(inputs[0]), _partitions(decision, int(attrs[1]))
        elif kind == "SampleCategorical" and _UNROLL in names.used_as(outputs[0]):
            name, values = "unroll", list(attrs[0])
        elif kind == "SampleComputeLocation":
            name, values = f"compute_at_{names.of_block(inputs[0])}", _places(module, sketch, number)
        else:
            continue
        if len(values) > 1 and name not in found:
            found[name] = (number, values)
    return found


class _Names:
    """Meanings of the variables of a trace."""

    def __init__(self, module: Any, instructions: list[Any]) -> None:
        s_tir = load_tvm().s_tir
        schedule = s_tir.Schedule(module)
        self._blocks: dict[str, str] = {}
        self._loops: dict[str, tuple[str, str, bool]] = {}
        self._uses: dict[str, list[str]] = {}
        for kind, inputs, attrs, outputs in instructions:
            if kind == "GetSBlock":
                self._blocks[outputs[0]] = str(attrs[0])
            elif kind == "GetLoops":
                self._note_loops(schedule, inputs[0], outputs)
            elif kind == "Annotate":
                self._uses.setdefault(str(inputs[1]), []).append(str(attrs[0]))
        self._tiled = list(dict.fromkeys(block for block, _, _ in self._loops.values()))

    def _note_loops(self, schedule: Any, block: str, loops: list[str]) -> None:
        try:
            axes = schedule.get(schedule.get_sblock(self._blocks[block])).iter_vars
        except (KeyError, *TVM_ERRORS):  # a block that the sketch itself makes
            axes = []
        if len(axes) != len(loops):
            axes = [None] * len(loops)
        for place, (axis, loop) in enumerate(zip(axes, loops)):
            name = str(place) if axis is None else str(axis.var.name).removeprefix("v_")
            self._loops.setdefault(
                loop, (self.of_block(block), name, axis is not None and int(axis.iter_type) == REDUCTION)
            )

    def of_block(self, variable: str) -> str:
        return self._blocks.get(variable, variable)

    def of_loop(self, variable: str) -> str:
        block, axis, reduces = self._loops.get(variable, ("", variable, False))
        kind = "split" if reduces else "tile"
        return f"{kind}_{axis}" if block in ("", *self._tiled[:1]) else f"{kind}_{block}_{axis}"

    def used_as(self, variable: str) -> list[str]:
        """Return the keys of the annotations whose value is this variable."""
        return self._uses.get(variable, [])


def _partitions(drawn: list[int], most: int) -> list[list[int]]:
    """Return all ways to split an axis into as many parts with the same product, the last part at most `most`."""

    def parts(left: int, count: int) -> Iterator[tuple[int, ...]]:
        if count == 1:
            yield (left,)
            return
        for first in (size for size in range(1, left + 1) if left % size == 0):
            for rest in parts(left // first, count - 1):
                yield (first, *rest)

    return [list(found) for found in parts(math.prod(map(int, drawn)), len(drawn)) if found[-1] <= most]


def _places(module: Any, sketch: Sketch, number: int) -> list[int]:
    """Return the positions at which a block can be computed, with all other decisions as in the sketch."""
    instructions, decisions = sketch
    found = []
    for place in range(_INLINE, _MOST_PLACES):
        wanted = [[one, place if one == number else decision] for one, decision in decisions]
        try:
            made = dict(plain(_applied(module, (instructions, wanted)).trace.as_json())[1])[number]
        except TVM_ERRORS:
            made = None
        if made == place:
            found.append(place)
    return found
