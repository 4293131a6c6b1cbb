"""The sentences at the top of a page that sum up a collection, and its warnings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from op_profiler.option_values import several
from op_profiler.report.page.amounts import amount_text, rate_text, time_text

if TYPE_CHECKING:
    from op_profiler.report.page.document import OperatorPart, RooflinePart, RunPart


def verdict(runs: Sequence[RunPart], operators: Sequence[OperatorPart], rooflines: Sequence[RooflinePart]) -> list[str]:
    """Return sentences that sum up a collection, the most important first."""
    timed = [run for run in runs if run.whole.median_us]
    if not timed:
        return ["The whole model has no time." if runs else "Nothing of this model was measured."]
    last = timed[-1]
    sentences = [_speeds(timed), _sum(last, operators)]
    sentences += [_rate(last, operators, rooflines), _heaviest(last, operators)]
    return [sentence for sentence in sentences if sentence]


def warnings(runs: Sequence[RunPart], operators: Sequence[OperatorPart]) -> list[str]:
    """Return sentences that limit how far the numbers can be trusted."""
    found = []
    for run in runs:
        at = f"At {several(run.threads, 'thread')}" if run.threads else "The model"
        if run.whole.error is not None:
            found.append(f"{at} the whole model has no time: {run.whole.error}")
        if run.whole.foreign_load:
            found.append(
                f"{at} others used the machine, and repeating the rounds did not help: take the times with care."
            )
        if run.whole.disturbed_by is not None:
            share = run.whole.quiet_share
            of = "" if share is None else f" The times are of the {share:.0%} of the rounds that are quiet."
            found.append(
                f"{at} the rounds were disturbed: {run.whole.disturbed_by}.{of} "
                "To measure again, use --remeasure noisy."
            )
        if run.whole.discarded_share:
            found.append(f"{at} {run.whole.discarded_share:.0%} of the rounds were disturbed, discarded and repeated.")
        if run.whole.settled is False:
            found.append(f"{at} not all operators converged; to measure again, use --remeasure noisy.")
        if run.remark is not None:
            found.append(f"{at}: {run.remark}.")
        if run.missing:
            are = "is" if len(run.missing) == 1 else "are"
            missing = f"{several(len(run.missing), 'operator')} {are} missing from the sum: {_some(run.missing)}"
            found.append(f"{at} {missing}.")
        failed = [
            o.title for o in operators if (t := o.times.get(str(run.threads))) is not None and t.error is not None
        ]
        if failed:
            found.append(f"{at} {several(len(failed), 'operator')} failed: {_some(failed)}.")
    return found


def _speeds(runs: Sequence[RunPart]) -> str:
    first, last = runs[0], runs[-1]
    assert first.whole.median_us is not None and last.whole.median_us is not None
    parts = [f"{_precise(run)} with {several(run.threads, 'thread')}" if run.threads else _precise(run) for run in runs]
    text = f"One run takes {', '.join(parts[:-1])}{' and ' if parts[:-1] else ''}{parts[-1]}"
    if first is last:
        return text + "."
    gain = first.whole.median_us / last.whole.median_us
    return (
        f"{text}, {gain:.2f} times as fast."
        if gain > 1
        else f"{text}: more threads make it {1 / gain:.2f} times slower."
    )


def _precise(run: RunPart) -> str:
    """Return the median as text, with the half width of its interval as a share of the median."""
    whole = run.whole
    assert whole.median_us is not None
    if whole.low_us is None or whole.high_us is None:
        return time_text(whole.median_us)
    return f"{time_text(whole.median_us)} (± {(whole.high_us - whole.low_us) / 2 / whole.median_us:.1%})"


def _sum(run: RunPart, operators: Sequence[OperatorPart]) -> str:
    calls = sum(len(operator.calls) for operator in operators)
    who = f"Its {several(len(operators), 'operator')}, called {calls:,} times,"
    at = f" at {several(run.threads, 'thread')}" if run.threads else ""
    if run.sum_us is None:
        return f"{who} do not all have a time{at}, so there is no sum."
    if run.ratio is None:
        return f"{who} add up to {time_text(run.sum_us)}{at}."
    return f"{who} add up to {time_text(run.sum_us)}{at}, which is {run.ratio:.1%} of the whole model."


def _rate(run: RunPart, operators: Sequence[OperatorPart], rooflines: Sequence[RooflinePart]) -> str:
    flops = sum(operator.flops * len(operator.calls) for operator in operators)
    if not flops or not run.whole.median_us:
        return ""
    rate = flops / run.whole.median_us
    line = next((line for line in rooflines if line.threads == run.threads), None)
    peak = line.flops_per_us if line is not None else None
    of_peak = f", {rate / peak:.0%} of what the processor's multiply-adds give" if peak else ""
    winograd = any(one.schedule is not None and "winograd" in one.schedule.template for one in operators)
    why = " (Winograd needs fewer operations than are counted)" if peak and rate > peak and winograd else ""
    if line is not None and line.attained_by:
        why += f" (the peak is what {line.attained_by} attains, more than the probe)"
    return f"It computes {amount_text(flops, 'FLOP')} at {rate_text(rate, 'FLOP')}{of_peak}{why}."


def _heaviest(run: RunPart, operators: Sequence[OperatorPart]) -> str:
    timed = [
        (o.times[str(run.threads)].median_us or 0.0, len(o.calls)) for o in operators if str(run.threads) in o.times
    ]
    times = [us * calls for us, calls in timed]
    total = sum(times)
    if not total:
        return ""
    ranked = sorted(times, reverse=True)
    half, reached = 0, 0.0
    while reached < total / 2:
        reached += ranked[half]
        half += 1
    return f"Half of the time goes to {several(half, 'operator')}; the heaviest takes {ranked[0] / total:.1%}."


def _some(names: Sequence[str], most: int = 3) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
