"""Comparison of two runs by their stored times, which were measured at different moments.

The compared times are those at the machine's reference state (`measure.between_runs`). Their intervals are between-run
intervals: the spread of runs between which nothing changed. Both runs give an estimate of this spread; the deviation of
a change is the root mean square of the two. The reference kernels, whose code never changes, are timed in both runs.
The difference between their times shows how much the machine itself changed, and is added to the deviation. Two
compilers generate different code for the reference kernels, so nothing is known about the machine in that case.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from op_profiler.comparison.changes import Estimate
from op_profiler.comparison.matching import Match, match
from op_profiler.comparison.result import OnlyOne, RowComparison, RunComparison
from op_profiler.errors import UsageError
from op_profiler.measure.disturbance import spoils
from op_profiler.operators.titles import title_of
from op_profiler.option_values import threads_text

if TYPE_CHECKING:
    from op_profiler.comparison.runs import TimedRun
    from op_profiler.dataset.row import StoredTiming
    from op_profiler.measure.measurement import Measurement
    from op_profiler.schedules.schedule import Schedule

_TWO_SIDED_95 = 1.96
_EFFICIENCY = 0.37
"""Relative efficiency of the median absolute deviation: it needs this many times the values of a standard deviation."""
_FEWEST_DEGREES = 3.0
_QUIET = 0.1
_TOLD_SHIFT = 0.03


def compare_stored(before: TimedRun, after: TimedRun) -> RunComparison:
    """Compare the stored times of two runs; the changes are not judged yet.

    Raises:
        UsageError: the runs are of different machines or have no thread count in common.
    """
    for what, one, other in _incomparable(before, after):
        raise UsageError(
            f"{before.name} and {after.name} cannot be compared by their stored times: {what} {one} before, {other} "
            "after. With --rerun both are measured here"
        )
    threads = sorted(before.timings.keys() & after.timings.keys())
    if not threads:
        counts = [",".join(map(str, sorted(run.timings))) for run in (before, after)]
        raise UsageError(f"no thread count in common: {counts[0]} before, {counts[1]} after; collect with --threads")
    matches = match(before.calls, after.calls)
    rows: list[RowComparison] = []
    for count in threads:
        shift = _machine_shift(before, after, count)
        rows.append(_whole(before, after, count, shift))
        rows += [_operator(before, after, one, count, shift) for one in matches]
    return RunComparison(
        before=before.known,
        after=after.known,
        warnings=(*differences(before, after), *_disturbed(before, after)),
        rows=tuple(rows),
        only_before=only(before, {one.before for one in matches}),
        only_after=only(after, {one.after for one in matches}),
    )


def differences(before: TimedRun, after: TimedRun) -> tuple[str, ...]:
    """Return sentences about everything that differs between two runs, except the code of their kernels."""
    found = [f"{what} differs: {one} before, {other} after" for what, one, other in _different(before, after)]
    for side, run, other in (("before", before, after), ("after", after, before)):
        missing = sorted(run.timings.keys() - other.timings.keys())
        if missing:
            found.append(f"only {side} has times at {threads_text(*missing)}")
    return tuple(found)


def only(run: TimedRun, matched: set[str]) -> tuple[OnlyOne, ...]:
    """Return the operators of a run whose keys are not in `matched`."""
    return tuple(
        OnlyOne(
            name=operator.name,
            title=title_of(operator.op_names),
            key=key,
            calls=run.times_called[key],
            times_us={
                threads: float(time)
                for threads, rows in run.measurements.items()
                if key in rows and (time := rows[key].measurement.median_us) is not None
            },
        )
        for key, operator in run.operators.items()
        if key not in matched
    )


def row_of(before: TimedRun, after: TimedRun, one: Match, threads: int, **fields: Any) -> RowComparison:
    """Return the row of a matched operator at one thread count.

    Args:
        fields: fields of the row that do not follow from the runs and the match, such as ``estimate``.
    """
    shares = [_share(run, key, threads) for run, key in ((before, one.before), (after, one.after))]
    operator = after.operators[one.after]
    layers = tuple(call.layers[0] for call in after.calls if call.key == one.after and call.layers)
    return RowComparison(
        name=operator.name,
        title=title_of(operator.op_names),
        layer=next(iter(layers), ""),
        layers=layers,
        output=operator.outputs[0].shape,
        threads=threads,
        keys=(one.before, one.after),
        how=one.how,
        calls=(before.times_called[one.before], after.times_called[one.after]),
        share=max((share for share in shares if share is not None), default=None),
        schedules=_schedules(before, after, one, threads),
        **fields,
    )


def _machine_shift(before: TimedRun, after: TimedRun, threads: int) -> float | None:
    """Return by how much the reference kernels changed between two runs, as the logarithm of after over before.

    The larger of the changes of the two reference kernels is returned; None if the reference kernels were not timed in
    both runs, or differ in size or code.
    """
    if _builder(before) != _builder(after):
        return None
    sides = [run.timings[threads].timing.details for run in (before, after)]
    windows = [np.array(side.get("gauge_windows_us") or []) for side in sides]
    if any(one.ndim != 2 or one.shape[1] != 3 for one in windows):
        return None
    if sides[0].get("gauge_bytes") != sides[1].get("gauge_bytes"):
        return None
    quiet = [np.quantile(one[:, 1:], _QUIET, axis=0) for one in windows]
    logs = np.log(quiet[1] / quiet[0])
    return float(logs[np.argmax(np.abs(logs))])


def _builder(run: TimedRun) -> tuple[str, str | None]:
    """Return the compiler and its version that generated the code of a run's reference kernels."""
    return run.device.compiler, run.device.llvm_version


def _whole(before: TimedRun, after: TimedRun, threads: int, shift: float | None) -> RowComparison:
    sides = before.timings[threads], after.timings[threads]
    measured = sides[0].timing.whole_model, sides[1].timing.whole_model
    problem = _problem(*measured) or _spoilt(*sides)
    estimate = None if problem else _estimate(*measured, shift, _degrees(*sides))
    return RowComparison(name=None, threads=threads, share=1.0, estimate=estimate, problem=problem)


def _operator(before: TimedRun, after: TimedRun, one: Match, threads: int, shift: float | None) -> RowComparison:
    rows = before.measurements[threads].get(one.before), after.measurements[threads].get(one.after)
    sides = before.timings[threads], after.timings[threads]
    if rows[0] is None or rows[1] is None:
        side = "before" if rows[0] is None else "after"
        return row_of(before, after, one, threads, problem=f"not measured {side}")
    measured = rows[0].measurement, rows[1].measurement
    problem = _problem(*measured) or _spoilt(*sides)
    estimate = None if problem else _estimate(*measured, shift, _degrees(*sides))
    return row_of(before, after, one, threads, estimate=estimate, problem=problem)


def _estimate(before: Measurement, after: Measurement, shift: float | None, degrees: float) -> Estimate | None:
    """Estimate a change by the times at the reference state if both runs have them, otherwise by the medians.

    Nothing is known about the spread of medians between runs.
    """
    times = before.steady_us, after.steady_us
    spreads = _spread(before), _spread(after)
    if times[0] and times[1] and spreads[0] is not None and spreads[1] is not None:
        deviation = math.sqrt((spreads[0] ** 2 + spreads[1] ** 2) / 2 + (shift or 0.0) ** 2)
        return Estimate(times[0], times[1], math.log(times[1] / times[0]), deviation, degrees)
    if not before.median_us or not after.median_us:
        return None
    return Estimate(before.median_us, after.median_us, math.log(after.median_us / before.median_us), None)


def _spread(measurement: Measurement) -> float | None:
    """Return the standard deviation between runs, on a logarithmic scale; None if there is no between-run interval."""
    if not measurement.steady_us or not measurement.steady_high_us:
        return None
    return math.log(measurement.steady_high_us / measurement.steady_us) / _TWO_SIDED_95


def _degrees(before: StoredTiming, after: StoredTiming) -> float:
    """Return the degrees of freedom of the spread, from the number of windows in both runs."""
    windows = [len(one.timing.details.get("gauge_windows_us") or ()) for one in (before, after)]
    return max(_EFFICIENCY * sum(max(count - 1, 0) for count in windows), _FEWEST_DEGREES)


def _problem(before: Measurement, after: Measurement) -> str:
    failed = [f"failed {s}: {m.error}" for s, m in (("before", before), ("after", after)) if m.error is not None]
    return "; ".join(failed)


def _spoilt(before: StoredTiming, after: StoredTiming) -> str:
    """Return what disturbed the runs so much that their times are not compared; empty if nothing did."""
    reasons = (("before", before.timing.disturbed_by), ("after", after.timing.disturbed_by))
    return "; ".join(f"disturbed {side}: {reason}" for side, reason in reasons if spoils(reason))


def _share(run: TimedRun, key: str, threads: int) -> float | None:
    """Return the share of an operator in the summed time of all operators of the run; None if it is unknown."""
    shares = run.shares.get(threads)
    return None if shares is None else shares.get(key, 0.0)


def _schedules(before: TimedRun, after: TimedRun, one: Match, threads: int) -> tuple[str, ...]:
    """Return the template and the differing knobs of both schedules as texts.

    Returns:
        One text (the template) if the schedules are equal; empty if an operator has no time in one of the runs.
    """
    rows = before.measurements.get(threads, {}).get(one.before), after.measurements.get(threads, {}).get(one.after)
    if rows[0] is None or rows[1] is None:
        return ()
    first, second = rows[0].schedule, rows[1].schedule
    if first.key == second.key:
        return (first.template,)
    return _text(first, second), _text(second, first)


def _text(schedule: Schedule, other: Schedule) -> str:
    missing = object()
    knobs = [f"{k}={v}" for k, v in schedule.knobs.items() if other.knobs.get(k, missing) != v]
    return " ".join([schedule.template, *knobs])


def _incomparable(before: TimedRun, after: TimedRun) -> Iterator[tuple[str, object, object]]:
    one, other = before.device, after.device
    if one.kind != other.kind:
        yield "the kind of target is", one.kind, other.kind
    if one.host_fingerprint != other.host_fingerprint or one.processor != other.processor:
        yield "the machine is", one.processor, other.processor
    elif one.machine_id != other.machine_id:
        yield "the machine is of the same kind, but another one:", one.machine_id, other.machine_id


def _different(before: TimedRun, after: TimedRun) -> Iterator[tuple[str, object, object]]:
    values: list[tuple[str, object, object]] = [
        (what, getattr(before.model, name), getattr(after.model, name))
        for what, name in (
            ("the model", "name"),
            ("the batch size", "batch_size"),
            ("the precision", "precision"),
            ("the executor", "executor"),
        )
    ]
    of_code = (("the target", "target"), ("LLVM", "llvm_version"))
    values += [
        (what, getattr(before.device, name), getattr(after.device, name))
        for what, name in (
            ("the processor", "processor"),
            *(of_code if before.compiler == after.compiler else ()),  # each compiler writes these in a way of its own
            ("the compiler", "compiler"),
            ("TVM", "tvm_version"),
            ("the driver", "driver"),
        )
    ]
    for threads in sorted(before.timings.keys() & after.timings.keys()):
        sides = [run.timings[threads].settings for run in (before, after)]
        for name in ("threads_effective", "core_set_effective", "governor_effective", "numa_node_effective"):
            values.append((f"{name} at {threads_text(threads)}", *(getattr(side, name) for side in sides)))
    for what, one, other in values:
        if one != other:
            yield what, one, other


def _disturbed(before: TimedRun, after: TimedRun) -> Iterator[str]:
    """Yield disturbances of either run that may have changed the times."""
    for side, run in (("before", before), ("after", after)):
        foreign = [n for n, timing in sorted(run.timings.items()) if timing.timing.whole_model.foreign_load]
        if foreign:
            yield f"{side} was measured under background load ({threads_text(*foreign)})"
        spoilt: dict[str | None, list[int]] = {}
        for threads, timing in sorted(run.timings.items()):
            if spoils(timing.timing.disturbed_by):
                spoilt.setdefault(timing.timing.disturbed_by, []).append(threads)
        for reason, counts in spoilt.items():
            yield (
                f"{side} was disturbed at {threads_text(*counts)} ({reason}), so nothing is compared there: collect it "
                "again with --remeasure noisy, or compare with --rerun"
            )
    if _builder(before) != _builder(after):
        yield "how far the state of the machine changed between the runs is unknown: another version read it"
    for threads in sorted(before.timings.keys() & after.timings.keys()):
        shift = _machine_shift(before, after, threads)
        if shift is not None and abs(shift) > _TOLD_SHIFT:
            yield (
                f"the machine itself moved between the runs: kernels that never change took {math.expm1(shift):+.0%} "
                f"after ({threads_text(threads)}); --rerun measures both in turns"
            )
