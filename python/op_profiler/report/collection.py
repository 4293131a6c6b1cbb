"""`Screen`: the progress bar and tables of ``op-profiler collect``."""

from __future__ import annotations

import itertools
import math
import sys
from collections import Counter
from typing import TYPE_CHECKING

from op_profiler.dataset import hardware_table, operator_table
from op_profiler.measure.disturbance import disturbed_text, spoils
from op_profiler.measure.measurement import SHORT_KERNEL_US
from op_profiler.operators.titles import title_of
from op_profiler.option_values import several, threads_text
from op_profiler.report.layers import layers_text, show_layers
from op_profiler.report.page.amounts import half_width, time_text, us_text
from op_profiler.report.status import progress_line
from op_profiler.report.studies import show_studies
from op_profiler.report.tables import Heading, at_counts, numbers, print_line, screen, show_table, texts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console
    from rich.progress import Progress, TaskID

    from op_profiler.collection.summary import ModelReport, ThreadReport
    from op_profiler.dataset import Dataset
    from op_profiler.operators.operator import Operator


_SHORT = "~"
"""Mark in front of a time in which the systematic error of the device is a large part."""
_NOISY = "!"
"""Mark in front of a time that is disturbed or did not converge."""
_REFRESH_PER_SECOND = 2  # drawing takes processor time away from what is being measured


_COLUMNS = ("threads", "whole model, us", "float32 / this", "relative error", "largest error", "cosine", "same top-1")


class Screen:
    """Output of ``op-profiler collect``: progress and notes on stderr, results on stdout.

    Args:
        quiet: whether to print only errors.
    """

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._progress: Progress | None = None
        self._task: TaskID | None = None

    def note(self, text: str) -> None:
        """Print one line before the results."""
        if not self._quiet:
            self._print_error(f"note: {text}")

    def problem(self, text: str) -> None:
        """Print one line about a failure, even if quiet."""
        self._print_error(text)

    def _print_error(self, text: str) -> None:
        if self._progress is not None:
            print_line(self._progress.console, text)
        else:
            print(text, file=sys.stderr)

    def start(self, models: int) -> None:
        """Begin showing progress over `models` models."""
        if self._quiet:
            return
        self._progress = progress_line(bar=True, refresh_per_second=_REFRESH_PER_SECOND)
        self._progress.start()
        self._task = self._progress.add_task("starting", total=models)

    def step(self, description: str, done_models: float) -> None:
        """Show the current step, and how many models (with a fraction) are done."""
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, description=description, completed=done_models)

    def stop(self) -> None:
        """Remove the progress bar."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None

    def show(
        self, reports: Sequence[ModelReport], describe: Dataset | None = None, *, layer_depth: int | None = None
    ) -> None:
        """Print the tables of every model.

        Args:
            reports: results of the models.
            describe: the dataset, to also print the two tables that describe its operators and hardware; None: do not.
            layer_depth: number of parts of a layer's path that are kept in the table of the time by layer, 0 for all;
                None: do not print this table.
        """
        if self._quiet:
            return
        console = screen()
        for report in reports:
            show_model(console, report)
            show_studies(console, report)
            if layer_depth is not None and any(thread.measurements for thread in report.threads.values()):
                show_layers(console, report, layer_depth)
            if describe is not None and report.operators:
                _show_details(console, describe, report)
        _show_precisions(console, reports)


def show_model(console: Console, report: ModelReport) -> None:
    """Print the tables of one model, and its failures."""
    request = report.request
    title = f"{report.label}, {request.build.precision}, {request.build.target}"
    title += request.measuring.resources_label
    if report.error is not None:
        print_line(console, f"{title}: {report.error}")
        if not report.operators:
            return
    if any(thread.timing is not None for thread in report.threads.values()):
        print_line(console, _headline(report))
    _show_operators(console, report, title)
    for note in report.notes:
        print_line(console, f"note: {note}")
    if report.agreement is not None:
        print_line(console, str(report.agreement))
    if report.threads:
        _show_whole_model(console, report)
    for operator, error in _failures(report):
        print_line(console, f"failed: {operator.label(report.layers.get(operator.key, ()))}: {error}")
    for kept in report.kept_failures:
        what = f"{kept.operator_label or 'the model'} at {threads_text(kept.settings.threads)}"
        print_line(
            console,
            f"failed on {kept.failed_at[:16]}: {what}: {kept.error}; the time of {(kept.timed_at or '')[:16]} stands",
        )
    console.print()


def _headline(report: ModelReport) -> str:
    """Return a line with the time of the model, and the sum of its operators divided by it, at each thread count."""
    times, ratios = [], []
    for count, thread in sorted(report.threads.items()):
        timing = thread.timing
        median_us = timing.whole_model.median_us if timing is not None else None
        if timing is None or median_us is None:
            continue
        times.append(time_text(median_us) + (f" at {threads_text(count)}" if count else ""))
        if timing.ratio is not None:
            ratios.append(f"{timing.ratio:.1%}")
    if not times:
        return f"{report.label}: no time of the whole model"
    summed = f"; sum of operators / whole model: {', '.join(ratios)}" if ratios else ""
    return f"{report.label}: {', '.join(times)}{summed}"


def _show_operators(console: Console, report: ModelReport, title: str) -> None:
    counts = sorted(report.threads)
    heavy = report.heavy() if counts else report.ranked()
    covered = sum(report.share(operator.key) or 0.0 for operator, _ in heavy)
    what = f"{len(heavy)} of {len(report.operators)} operators, {covered:.0%} of the time"
    if not counts:
        what = f"{several(len(heavy), 'operator')}, not measured"
    headings = [
        *numbers("share"),
        *texts("operator"),
        *texts("layers", rank=2),
        *itertools.chain.from_iterable(map(_at_count, counts)),
        *numbers("output", rank=3),
        *numbers("calls", rank=4),
        *numbers("GFLOP/s", "GB/s", rank=5),
        *texts("schedule", rank=6),
        *numbers("blocks x threads", rank=6),
        *numbers("MFLOP", rank=7),
    ]
    rows = []
    for operator, calls in heavy:
        share = report.share(operator.key)
        rows.append(
            [
                "" if share is None else f"{share:.1%}",
                title_of(operator.op_names),
                layers_text(report.layers.get(operator.key, ())),
                *_times(report, operator, counts),
                "x".join(map(str, operator.outputs[0].shape)) if operator.outputs else "",
                str(calls),
                *_rates(report, operator, counts),
                report.templates.get(operator.key, "-"),
                _launch(report.launches.get(operator.key, [])),
                f"{operator.flops / 1e6:.1f}",
            ]
        )
    show_table(console, f"{title}\n{what}", headings, rows)
    shown = {operator.key for operator, _ in heavy}
    marked = (
        one.is_noisy for thread in report.threads.values() for key, one in thread.measurements.items() if key in shown
    )
    if any(marked):
        print_line(console, f"{_NOISY} the time is disturbed, or its interval did not converge")


def _at_count(count: int) -> list[Heading]:
    """Return the headings of the time at a thread count and of the half width of its interval."""
    return [*at_counts([count]), *numbers(f"+-, {threads_text(count)}" if count else "+-", rank=1)]


def _launch(launches: list[dict[str, list[int]]]) -> str:
    """Return blocks and threads of the largest launch, and the number of other launches."""
    if not launches:
        return "-"
    sizes = [(math.prod(one["grid"]), math.prod(one["block"])) for one in launches]
    blocks, threads = max(sizes, key=lambda size: size[0] * size[1])
    return f"{blocks} x {threads}" + (f" (+{len(sizes) - 1})" if len(sizes) > 1 else "")


def _times(report: ModelReport, operator: Operator, counts: list[int]) -> list[str]:
    """Return the latency and the half width of its interval, by thread count."""
    cells = []
    for count in counts:
        measurement = report.threads[count].measurements.get(operator.key)
        median_us = measurement.median_us if measurement else None
        if measurement is None or median_us is None:
            cells += ["failed" if measurement is not None and measurement.error is not None else "-", "-"]
            continue
        timing = report.threads[count].timing
        marks = _SHORT if timing is not None and timing.is_short(median_us) else ""
        marks += _NOISY if measurement.is_noisy else ""
        half_us = half_width(measurement.ci_low_us, measurement.ci_high_us)
        cells += [f"{marks}{us_text(median_us, half_us)}", _share(half_us, median_us)]
    return cells


def _rates(report: ModelReport, operator: Operator, counts: list[int]) -> tuple[str, str]:
    """Return GFLOP/s and GB/s at the largest thread count."""
    measurement = report.threads[counts[-1]].measurements.get(operator.key) if counts else None
    median_us = measurement.median_us if measurement else None
    if not median_us:
        return "-", "-"
    moved = operator.bytes_read + operator.bytes_written
    return f"{operator.flops / median_us / 1e3:.1f}", f"{moved / median_us / 1e3:.1f}"


_OF_MODEL = [
    *numbers("threads", "whole model, us"),
    *numbers("+-", rank=1),
    *numbers("sum of operators, us", "ratio"),
    *numbers("waits for launches, us", "energy, mJ", rank=2),
    *numbers("measured", "reused", "failed", rank=3),
    *numbers("rounds", "discarded", "quiet", rank=4),
    *numbers("between runs", "before, us", "after, us", rank=5),
]


def _show_whole_model(console: Console, report: ModelReport) -> None:
    rows = [_of_model(thread, count) for count, thread in sorted(report.threads.items())]
    show_table(console, "whole model beside its operators", _OF_MODEL, rows)
    remarks: dict[str, list[int]] = {}
    for count in sorted(report.threads):
        for remark in _remarks(report, count):
            remarks.setdefault(remark, []).append(count)
    for remark, counts in remarks.items():
        print_line(console, remark if counts == [0] else f"{threads_text(*counts)}: {remark}")
    threads = report.threads.values()
    disturbed = disturbed_text(sum(one.timings for one in threads), sum((one.disturbed for one in threads), Counter()))
    if disturbed is not None:
        print_line(console, disturbed)


def _of_model(thread: ThreadReport, count: int) -> list[str]:
    """Return the cells of the columns in `_OF_MODEL`."""
    timing = thread.timing
    whole = timing.whole_model if timing else None
    median_us = whole.median_us if whole else None
    total_us = timing.sum_of_operators_us if timing else None
    cells = dict.fromkeys((one.name for one in _OF_MODEL), "-") | {"threads": str(count) if count else "-"}
    cells |= {"measured": str(thread.measured), "reused": str(thread.reused), "failed": str(thread.failed)}
    if timing is None or whole is None:
        return list(cells.values())
    cells["sum of operators, us"] = us_text(total_us)
    cells["waits for launches, us"] = us_text(timing.launch_gap_us)
    cells["energy, mJ"] = "-" if whole.energy_mj is None else f"{whole.energy_mj:.2f}"
    if median_us is not None:
        half_us = half_width(whole.ci_low_us, whole.ci_high_us)
        cells |= {
            "whole model, us": us_text(median_us, half_us),
            "+-": _share(half_us, median_us),
            "sum of operators, us": "incomplete" if total_us is None else us_text(total_us),
            "ratio": f"{timing.ratio:.3f}" if timing.ratio is not None else "none" if timing.not_a_pair else "-",
            "rounds": str(timing.details.get("rounds", "-")),
            "discarded": "-" if whole.discarded_share is None else f"{whole.discarded_share:.0%}",
            "quiet": "-" if whole.quiet_share is None else f"{whole.quiet_share:.0%}",
            "between runs": _share(half_width(whole.again_low_us, whole.again_high_us), median_us),
            "before, us": us_text(timing.before_us),
            "after, us": us_text(timing.after_us),
        }
    return list(cells.values())


def _share(half_us: float | None, median_us: float) -> str:
    return "-" if half_us is None else f"{half_us / median_us:.1%}"


def _remarks(report: ModelReport, count: int) -> list[str]:
    thread = report.threads[count]
    remarks = []
    if thread.timing is not None:
        if thread.timing.whole_model.foreign_load:
            remarks.append("background load")
        if reasons := thread.timing.disturbed_by:
            remarks.append(reasons if spoils(reasons) else f"{reasons}; to measure again, use --remeasure noisy")
        remarks += thread.timing.placement(count)
        if thread.timing.held_back_by:
            remarks.append(f"the GPU's clock was held back: {', '.join(thread.timing.held_back_by)}")
        if thread.short:
            systematic = f"systematic error up to {thread.timing.kernel_uncertainty_us:.2f} us"
            remarks.append(
                f"{several(thread.short, 'operator')} under {SHORT_KERNEL_US:.0f} us ({_SHORT}): {systematic}"
            )
        if thread.timing.whole_model.settled is False:
            remarks.append("not all intervals under 1 %")
        if thread.timing.not_a_pair:
            remarks.append(thread.timing.not_a_pair)
        if thread.timing.unmeasured:
            remarks.append(f"{several(len(thread.timing.unmeasured), 'operator')} not in the sum")
        if thread.timing.whole_model.error:
            remarks.append(thread.timing.whole_model.error)
    return remarks


def _failures(report: ModelReport) -> list[tuple[Operator, str]]:
    errors: dict[str, str] = {}
    for thread in report.threads.values():
        errors |= {key: m.error for key, m in thread.measurements.items() if m.error is not None}
    return [(operator, errors[operator.key]) for operator, _ in report.operators if operator.key in errors]


def _show_details(console: Console, dataset: Dataset, report: ModelReport) -> None:
    """Print the two tables that describe the run: the operators with their data, and the hardware settings."""
    tables = {"operators": operator_table, "hardware settings": hardware_table}
    for title, make in tables.items():
        content = make(dataset, model_key=report.model_key)
        show_table(console, title, texts(*content.headers), [list(map(str, row)) for row in content.rows])


def _show_precisions(console: Console, reports: Sequence[ModelReport]) -> None:
    """Print a table for each model that was measured in more than one precision."""
    models: dict[str, list[ModelReport]] = {}
    for report in reports:
        label = f"{report.label}{report.request.measuring.resources_label}"
        models.setdefault(label, []).append(report)
    for label, group in models.items():
        if len({report.request.build.precision for report in group}) > 1 and any(report.threads for report in group):
            _show_beside_float32(console, f"{label}: precisions, outputs against float32", group)


def _show_beside_float32(console: Console, title: str, group: Sequence[ModelReport]) -> None:
    base = {n: _whole_us(r, n) for r in group if r.request.build.precision == "float32" for n in r.threads}
    rows = []
    for report in group:
        if not report.threads:
            rows.append([report.request.build.precision, *["-"] * len(_COLUMNS)])
        for threads in sorted(report.threads):
            rows.append([report.request.build.precision, *_cells(report, threads, base.get(threads))])
    show_table(console, title, [*texts("precision"), *numbers(*_COLUMNS)], rows)


def _whole_us(report: ModelReport, threads: int) -> float | None:
    timing = report.threads[threads].timing
    return timing.whole_model.median_us if timing is not None else None


def _cells(report: ModelReport, threads: int, float32_us: float | None) -> list[str]:
    timing = report.threads[threads].timing
    whole = _whole_us(report, threads)
    accuracy = (timing.details.get("accuracy") if timing is not None else None) or {}
    cells = [
        str(threads) if threads else "-",
        "failed" if whole is None else us_text(whole),
        "-" if whole is None or float32_us is None else f"{float32_us / whole:.2f}",
    ]
    for name, form in (("relative_error", ".2e"), ("largest_error", ".2e"), ("cosine", ".5f")):
        cells.append(format(accuracy[name], form) if name in accuracy else "-")
    cells.append({True: "yes", False: "no"}.get(accuracy.get("same_top1"), "-"))  # type: ignore[arg-type]
    return cells
