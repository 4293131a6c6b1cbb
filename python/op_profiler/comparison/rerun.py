"""Comparison of two runs by measuring the kernels of both again, alternately, on this machine."""

from __future__ import annotations

import dataclasses
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from op_profiler.building.prepared_model import PreparedModel, in_words
from op_profiler.building.recipe import Recipe
from op_profiler.comparison.changes import of_pairs
from op_profiler.comparison.matching import Match, match
from op_profiler.comparison.result import RowComparison, RunComparison
from op_profiler.comparison.stored import differences, only, row_of
from op_profiler.comparison.turns import COPIES, PairedTimes, Side, Turns
from op_profiler.compilers.compiler import compiler_in_use
from op_profiler.cores import binding_order
from op_profiler.errors import ModelError, UsageError
from op_profiler.measure.background import report_background_load
from op_profiler.targets.target import resolve_target, use_build_for

if TYPE_CHECKING:
    from op_profiler.comparison.runs import TimedRun
    from op_profiler.compilers.compiled_model import BuiltModel
    from op_profiler.targets.machine import LoadedModel, Machine

MeasuredSide = tuple[Side, list[str]]
"""A loaded model, and the workload keys of its operators, in the order of the operators' numbers."""


def compare_in_turns(
    before: TimedRun,
    after: TimedRun,
    seconds: float,
    announce: Callable[[str], None],
    note: Callable[[str], None] = lambda text: None,
) -> RunComparison:
    """Measure two runs again alternately; the changes are not judged yet.

    Args:
        before, after: the runs.
        seconds: time limit of the measurement.
        announce: called with a text before each step that takes long.
        note: called with a text about processes that keep the processor busy, if the runs are of this machine's
            processor.

    Raises:
        OpProfilerError: a run cannot be built again, or cannot be built for this machine.
    """
    recipes = [_recipe(run) for run in (before, after)]
    threads = sorted(before.timings.keys() & after.timings.keys())
    if not threads:
        raise UsageError(f"{before.name} and {after.name} have no thread count in common; collect with --threads")
    one, other = (recipe.request for recipe in recipes)
    target = other.target
    if one.kind.name != other.kind.name:
        raise UsageError(f"--rerun measures on one machine, not {one.target} beside {target}")
    if one.compiler != other.compiler:
        raise UsageError(
            f"--rerun measures in one process, which has one TVM, not {one.compiler} beside {other.compiler}; "
            "without --rerun their stored times are compared"
        )
    other.kind.check_threads(tuple(threads), None)
    use_build_for(target, compiler=other.compiler)
    if other.on_host:
        report_background_load(binding_order()[: max(threads)], note)
    with PreparedModel(other, in_words(announce)) as job:
        job.begin_compiling()
        built = [recipe.build(announce) for recipe in recipes]
        doubts = [_doubt(run, recipe, one) for run, recipe, one in zip((before, after), recipes, built)]
        with tempfile.TemporaryDirectory(prefix="op_profiler-") as folder:
            sides = [
                _side(job.machine, recipe, one, Path(folder, name))
                for recipe, one, name in zip(recipes, built, ("before", "after"))
            ]
            matches = match(before.calls, after.calls)
            found = _measured(job.machine, before, after, sides, matches, threads, seconds, announce)
    return dataclasses.replace(found, warnings=(*found.warnings, *filter(None, doubts)))


def _measured(
    machine: Machine,
    before: TimedRun,
    after: TimedRun,
    sides: Sequence[MeasuredSide],
    matches: Sequence[Match],
    threads: Sequence[int],
    seconds: float,
    announce: Callable[[str], None],
) -> RunComparison:
    numbers = (
        _numbers(before, sides[0][1], [one.before for one in matches]),
        _numbers(after, sides[1][1], [one.after for one in matches]),
    )
    matched = list(zip(*numbers))
    turns = Turns(
        machine,
        (sides[0][0], sides[1][0]),
        threads=threads,
        cache="model",
        matched=matched,
        comparisons=len(threads) * (len(matches) + 1),
    )
    announce(f"measuring {after.model.name} in turns, up to {seconds:.0f} s")
    found = turns.measure(seconds)
    rows: list[RowComparison] = []
    for count in threads:
        times = found.times[count]
        rows.append(
            RowComparison(name=None, threads=count, share=1.0, estimate=of_pairs(times.whole[:, 0], times.whole[:, 1]))
        )
        rows += [_row(before, after, one, pair, count, times) for one, pair in zip(matches, matched)]
    warnings = [*differences(before, after)]
    if found.foreign_load:
        warnings.append("others used the machine meanwhile, although what they disturbed was measured again")
    return RunComparison(
        before=before.known,
        after=after.known,
        warnings=tuple(warnings),
        rows=tuple(rows),
        only_before=only(before, {one.before for one in matches}),
        only_after=only(after, {one.after for one in matches}),
        foreign_load=found.foreign_load,
    )


def _numbers(run: TimedRun, built: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """Return the number of each wanted operator in the model as it was built again on this machine.

    Args:
        built: workload keys of the built model's operators, by number.
        wanted: workload keys of the operators.

    Raises:
        UsageError: the built model lacks one of the wanted operators.
    """
    number = {key: place for place, key in enumerate(built)}
    missing = [key for key in wanted if key not in number]
    if missing:
        raise UsageError(
            f"{run.name} lacks {len(missing)} of its operators as it is built here, {missing[0]} among them; "
            "collect it again, or compare without --rerun"
        )
    return [number[key] for key in wanted]


def _row(
    before: TimedRun, after: TimedRun, one: Match, numbers: tuple[int, int], threads: int, times: PairedTimes
) -> RowComparison:
    estimate = of_pairs(times.operators[0][:, numbers[0]], times.operators[1][:, numbers[1]])
    problem = "" if estimate is not None else "it is not distinguishable from the cost of a call, or it failed"
    return row_of(before, after, one, threads, estimate=estimate, problem=problem)


def _recipe(run: TimedRun) -> Recipe:
    if run.model.recipe is None:
        raise UsageError(
            f"{run.name} cannot be built again: an older version collected it, or it does not run as a whole in "
            "the graph executor. Collect it again, or compare without --rerun"
        )
    recipe = Recipe.from_json(run.model.recipe)
    if recipe.request.place is not None:
        raise UsageError(f"--rerun measures on this machine; {run.name} is of the board at {recipe.request.place.host}")
    return recipe


def _doubt(run: TimedRun, recipe: Recipe, built: BuiltModel) -> str:
    """Return why the kernels of a new build may differ from those of the run; empty if they are the same.

    Raises:
        ModelError: the kernels differ, because op_profiler or TVM has changed.
    """
    then, now = (place.split("/")[0] for place in (recipe.kept, built.kept))  # the digest of all that a build is of
    if then and then == now:
        return ""
    if then and now and run.device.target == str(resolve_target(recipe.request.target)):
        raise ModelError(
            f"op_profiler or TVM is not what it was when {run.name} was collected, and its build is no longer in the "
            "cache folder. Collect it again (by the op_profiler of then, if its kernels are wanted), or compare "
            "without --rerun"
        )
    return f"{run.name} was built again here, maybe for another target or by other code: its kernels may be others"


def _side(machine: Machine, recipe: Recipe, built: BuiltModel, folder: Path) -> MeasuredSide:
    """Return a side whose `load` loads the model from new files each time, and the workload keys of its operators.

    New files are needed because an open file is not mapped a second time: its code would have the same addresses as in
    the previous pair.
    """
    compiler, inputs = compiler_in_use(), recipe.input_arrays()
    folder.mkdir()
    compiler.write(folder, built.compiled)

    def load() -> LoadedModel:
        with tempfile.TemporaryDirectory(dir=folder.parent) as copy:
            shutil.copytree(folder, copy, dirs_exist_ok=True)
            return machine.load(compiler.read(Path(copy), built.compiled), inputs, COPIES)

    keys = [built.compiled.by_label[label].operator.key for label in load().labels]
    order = list(dict.fromkeys(keys))
    return Side(load, np.array([order.index(key) for key in keys], dtype=np.intp)), order
