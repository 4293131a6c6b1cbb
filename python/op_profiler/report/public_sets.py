"""Prints the errors of the methods on public sets, next to published errors."""

from __future__ import annotations

from collections.abc import Sequence

from op_profiler.prediction.sets.public_set import Published
from op_profiler.prediction.sets.scores import SetResult, SetScore
from op_profiler.report.tables import numbers, print_line, screen, show_table, texts


def show_results(results: Sequence[SetResult], quiet: bool) -> None:
    """Print a table with a row per public set and split, then the skipped rows of each set, or the command that fetches
    the set if it is absent.

    Args:
        quiet: print one line per split instead of the table, and no skipped rows.
    """
    scores = [score for result in results for score in result.scores]
    console = screen()
    if quiet:
        for score in scores:
            print(f"{score.set}, {score.split}: MAPE {score.mape:.1%}, published {published_text(score.published)}")
    elif scores:
        headings = [
            *texts("set", "split"),
            *numbers("rows", rank=4),
            *numbers("MAPE", "median"),
            *texts("published"),
            *numbers("trees", "one factor", rank=1),
            *numbers("within 10 %", "in 90 % interval"),
            *numbers("Spearman", rank=2),
            *numbers("bias", rank=3),
            *numbers("s", rank=5),
        ]
        show_table(console, "error on public sets, relative to the measured time", headings, [*map(_row, scores)])
    for result in results:
        if result.fetch is not None:
            print_line(console, f"{result.set} is absent; fetch it with: {result.fetch}")
        elif not quiet:
            skipped = ", ".join(f"{count} {reason}" for reason, count in result.skipped.items()) or "none"
            print_line(console, f"{result.set} (licence: {result.licence}): rows skipped: {skipped}")


def published_text(published: Published | None) -> str:
    """Return the published error as text, followed by its measure if this is not MAPE; a dash if nothing was
    published."""
    if published is None:
        return "-"
    number = f"{published.percent:.3f}" if published.measure == "Spearman" else f"{published.percent:.1f}%"
    return number if published.measure == "MAPE" else f"{number} {published.measure}"


def _row(score: SetScore) -> list[str]:
    inside = "-" if score.coverage_90 is None else f"{score.coverage_90:.1%}"
    ranks = "-" if score.spearman is None else f"{score.spearman:.3f}"
    errors = [f"{score.mape:.1%}", f"{score.median:.1%}", published_text(score.published)]
    others = [f"{score.trees:.1%}", f"{score.factor:.1%}", f"{score.within_10:.1%}", inside, ranks]
    return [score.set, score.split, str(score.tested), *errors, *others, f"{score.bias:+.1%}", f"{score.seconds:.0f}"]
