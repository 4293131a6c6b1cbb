"""The collector's screen: one progress bar while it works, then the tables."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING

from op_profiler.dataset import hardware_table, operator_table
from op_profiler.measure.measurement import SHORT_KERNEL_US
from op_profiler.report.layers import layer_table
from op_profiler.report.studies import show_studies
from op_profiler.report.tables import at_counts, numbers, screen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console
    from rich.progress import Progress, TaskID

    from op_profiler.collection.summary import ModelReport
    from op_profiler.dataset import Dataset
    from op_profiler.operators.layers import CallLayers
    from op_profiler.operators.operator import Operator


_LAYERS_WIDTH = 40
_SHORT = "~"
"""Before a time of which the systematic error of the device is a large part."""
_REFRESH_PER_SECOND = 2  # drawing takes processor time away from what is being measured


_COLUMNS = ("threads", "whole model us", "float32 / this", "relative error", "largest error", "cosine", "same top-1")


class Screen:
    """Progress on stderr, results on stdout; with `quiet`, neither (errors are still printed)."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._progress: Progress | None = None
        self._task: TaskID | None = None

    def note(self, text: str) -> None:
        """One line that the user should see before the results."""
        if not self._quiet:
            self._print_error(f"note: {text}")

    def problem(self, text: str) -> None:
        """One line about something that failed; printed even when quiet."""
        self._print_error(text)

    def _print_error(self, text: str) -> None:
        if self._progress is not None:
            self._progress.console.print(text, markup=False, highlight=False, soft_wrap=True)
        else:
            print(text, file=sys.stderr)

    def start(self, models: int) -> None:
        """Begin showing progress over `models` models."""
        if self._quiet:
            return
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            Progress,
            TaskProgressColumn,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        console = Console(stderr=True)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            TaskProgressColumn(),
            TextColumn("elapsed"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            refresh_per_second=_REFRESH_PER_SECOND,
            transient=True,
        )
        self._progress.start()
        self._task = self._progress.add_task("starting", total=models)

    def step(self, description: str, done_models: float) -> None:
        """Say what is being done, and how many models (with a fraction) are behind."""
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, description=description, completed=done_models)

    def stop(self) -> None:
        """Take the progress bar off the screen."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None

    def show(
        self, reports: Sequence[ModelReport], describe: Dataset | None = None, *, layer_depth: int | None = None
    ) -> None:
        """Print the tables of every model.

        Args:
            describe: the dataset, for the two tables that describe its operators and hardware too.
            layer_depth: for the time by layer too, how much of a layer's path is kept; 0 for all.
        """
        if self._quiet:
            return
        console = screen()
        for report in reports:
            show_model(console, report)
            show_studies(console, report)
            if layer_depth is not None and any(thread.measurements for thread in report.threads.values()):
                console.print(layer_table(report, layer_depth), markup=False)
            if describe is not None and report.operators:
                _show_details(console, describe, report)
        _show_precisions(console, reports)


def show_model(console: Console, report: ModelReport) -> None:
    """Print the tables of one model, and what failed."""
    request = report.request
    title = f"{report.label}, {request.build.precision}, {request.build.target}"
    title += request.measuring.resources_label
    if report.error is not None:
        console.print(f"{title}: {report.error}", markup=False, highlight=False)
        if not report.operators:
            return
    console.print(_operator_table(report, title))
    for note in report.notes:
        console.print(f"note: {note}", markup=False, highlight=False)
    if report.agreement is not None:
        console.print(str(report.agreement), markup=False, highlight=False)
    if report.threads:
        console.print(_model_table(report))
    for operator, error in _failures(report):
        console.print(f"failed: {operator.name}: {error}", markup=False, highlight=False)
    for kept in report.kept_failures:
        what = f"{kept.operator_name or 'the model'} at {kept.settings.threads} threads"
        console.print(
            f"failed on {kept.failed_at[:16]}: {what}: {kept.error}; the time of {(kept.timed_at or '')[:16]} stands",
            markup=False,
            highlight=False,
        )
    console.print()


def _operator_table(report: ModelReport, title: str) -> object:
    from rich.table import Column, Table

    counts = sorted(report.threads)
    heavy = report.heavy() if counts else report.ranked()
    covered = sum(report.share(operator.key) or 0.0 for operator, _ in heavy)
    what = f"{len(heavy)} of {len(report.operators)} operators, {covered:.0%} of the time"
    table = Table(
        *numbers("share"),
        "operator",
        Column("output", no_wrap=True),
        *numbers("calls"),
        *([Column("layers", overflow="fold", max_width=_LAYERS_WIDTH)] if report.layers else []),
        *(*numbers("MFLOP"), *at_counts(counts)),
        *(["schedule"] if report.templates else []),
        *(numbers("blocks x threads") if report.launches else []),
        *(numbers("GFLOP/s", "GB/s") if counts else []),
        title=f"{title}\n{what if counts else f'{len(heavy)} operators, not measured'}",
        title_justify="left",
    )
    for operator, calls in heavy:
        share = report.share(operator.key)
        cells = [
            "" if share is None else f"{share:.1%}",
            operator.name.removeprefix("fused_"),
            "x".join(map(str, operator.outputs[0].shape)) if operator.outputs else "",
            str(calls),
            *([_layers(report.layers.get(operator.key, ()))] if report.layers else []),
            f"{operator.flops / 1e6:.1f}",
        ]
        times = _times(report, operator, counts)
        template = [report.templates.get(operator.key, "-")] if report.templates else []
        launch = [_launch(report.launches.get(operator.key, []))] if report.launches else []
        table.add_row(*cells, *times[: len(counts)], *template, *launch, *times[len(counts) :])
    return table


def _layers(calls: CallLayers) -> str:
    """The layers of the first call, and to which layers the others belong, as far as there is room for it."""
    if not calls:
        return ""
    first = calls[0][0] if calls[0] else "not known"
    inside = f" (+{len(calls[0]) - 1})" if len(calls[0]) > 1 else ""
    return first + inside + (f", {len(calls) - 1} more calls" if len(calls) > 1 else "")


def _launch(launches: list[dict[str, list[int]]]) -> str:
    """Blocks and threads of the largest launch, and how many others there are."""
    if not launches:
        return "-"
    sizes = [(math.prod(one["grid"]), math.prod(one["block"])) for one in launches]
    blocks, threads = max(sizes, key=lambda size: size[0] * size[1])
    return f"{blocks} x {threads}" + (f" (+{len(sizes) - 1})" if len(sizes) > 1 else "")


def _times(report: ModelReport, operator: Operator, counts: list[int]) -> list[str]:
    """Latency per thread count, then the rates at the largest one."""
    cells = []
    last: float | None = None
    for count in counts:
        measurement = report.threads[count].measurements.get(operator.key)
        last = measurement.median_us if measurement else None
        if measurement is not None and measurement.error is not None:
            cells.append("failed")
        else:
            timing = report.threads[count].timing
            mark = _SHORT if timing is not None and timing.is_short(last) else ""
            cells.append("-" if last is None else f"{mark}{last:.1f}")
    if counts:
        moved = operator.bytes_read + operator.bytes_written
        cells += ["-", "-"] if not last else [f"{operator.flops / last / 1e3:.1f}", f"{moved / last / 1e3:.1f}"]
    return cells


def _model_table(report: ModelReport) -> object:
    from rich.table import Table

    energy = any(t.timing is not None and t.timing.whole_model.energy_mj is not None for t in report.threads.values())
    gaps = any(t.timing is not None and t.timing.launch_gap_us is not None for t in report.threads.values())
    table = Table(
        *numbers("threads", "whole model us", "+-", "another run", "before", "after", "sum of operators us"),
        *numbers(*(["waits for launches us"] if gaps else []), "ratio", "measured", "reused", "failed", "rounds"),
        *numbers("discarded", "quiet", *(["energy mJ"] if energy else [])),
        "remarks",
        title="whole model beside its operators",
        title_justify="left",
    )
    for count, thread in sorted(report.threads.items()):
        timing = thread.timing
        whole = timing.whole_model if timing else None
        cells = ["-"] * 7
        if timing is not None and timing.sum_of_operators_us is not None:
            cells[5] = f"{timing.sum_of_operators_us:.1f}"
        rounds = discarded = quiet = "-"
        if timing is not None and whole is not None and whole.median_us is not None:
            cells = [
                f"{whole.median_us:.1f}",
                _half_width(whole.median_us, whole.ci_low_us, whole.ci_high_us),
                _half_width(whole.median_us, whole.again_low_us, whole.again_high_us),
                f"{timing.before_us:.1f}" if timing.before_us is not None else "-",
                f"{timing.after_us:.1f}" if timing.after_us is not None else "-",
                cells[5] if timing.sum_of_operators_us is not None else "incomplete",
                f"{timing.ratio:.3f}" if timing.ratio is not None else "none" if timing.not_a_pair else "-",
            ]
            rounds = str(timing.details.get("rounds", "-"))
            discarded = "-" if whole.discarded_share is None else f"{whole.discarded_share:.0%}"
            quiet = "-" if whole.quiet_share is None else f"{whole.quiet_share:.0%}"
        if gaps:
            gap_us = timing.launch_gap_us if timing is not None else None
            cells.insert(6, "-" if gap_us is None else f"{gap_us:.1f}")
        counted = [str(n) for n in (thread.measured, thread.reused, thread.failed)]
        used = (
            [f"{whole.energy_mj:.2f}" if whole is not None and whole.energy_mj is not None else "-"] if energy else []
        )
        table.add_row(
            str(count) if count else "-", *cells, *counted, rounds, discarded, quiet, *used, _remarks(report, count)
        )
    return table


def _half_width(median_us: float, low_us: float | None, high_us: float | None) -> str:
    return "-" if low_us is None or high_us is None else f"{(high_us - low_us) / 2 / median_us:.1%}"


def _remarks(report: ModelReport, count: int) -> str:
    thread = report.threads[count]
    remarks = []
    if thread.timing is not None:
        if thread.timing.whole_model.foreign_load:
            remarks.append("under foreign load")
        if thread.timing.disturbed_by:
            remarks.append(f"{thread.timing.disturbed_by}; repeat it with --remeasure noisy")
        remarks += thread.timing.placement(count)
        if thread.timing.held_back_by:
            remarks.append(f"the GPU's clock was held back: {', '.join(thread.timing.held_back_by)}")
        if thread.short:
            systematic = f"systematic error up to {thread.timing.kernel_uncertainty_us:.2f} us"
            remarks.append(f"{thread.short} operators under {SHORT_KERNEL_US:.0f} us ({_SHORT}): {systematic}")
        if thread.timing.whole_model.settled is False:
            remarks.append("not all intervals under 1 %")
        if thread.timing.not_a_pair:
            remarks.append(f"{thread.timing.not_a_pair}; repeat it with --remeasure noisy")
        if thread.timing.unmeasured:
            remarks.append(f"{len(thread.timing.unmeasured)} operators not in the sum")
        if thread.timing.whole_model.error:
            remarks.append(thread.timing.whole_model.error)
    return "; ".join(remarks)


def _failures(report: ModelReport) -> list[tuple[Operator, str]]:
    errors: dict[str, str] = {}
    for thread in report.threads.values():
        errors |= {key: m.error for key, m in thread.measurements.items() if m.error is not None}
    return [(operator, errors[operator.key]) for operator, _ in report.operators if operator.key in errors]


def _show_details(console: Console, dataset: Dataset, report: ModelReport) -> None:
    """The two tables that describe what ran: the operators with their data, and the hardware settings."""
    from rich.table import Table

    tables = {"operators": operator_table, "hardware settings": hardware_table}
    for title, make in tables.items():
        content = make(dataset, model_key=report.model_key)
        table = Table(*content.headers, title=title, title_justify="left")
        for row in content.rows:
            table.add_row(*map(str, row))
        console.print(table, markup=False)


def _show_precisions(console: Console, reports: Sequence[ModelReport]) -> None:
    """Print a table for each model that was measured in more than one precision."""
    models: dict[str, list[ModelReport]] = {}
    for report in reports:
        label = f"{report.label}{report.request.measuring.resources_label}"
        models.setdefault(label, []).append(report)
    for label, group in models.items():
        if len({report.request.build.precision for report in group}) > 1 and any(report.threads for report in group):
            console.print(_table(f"{label}: precisions, outputs against float32", group))


def _table(title: str, group: Sequence[ModelReport]) -> object:
    from rich.table import Table

    table = Table("precision", *numbers(*_COLUMNS), title=title, title_justify="left")
    base = {n: _whole_us(r, n) for r in group if r.request.build.precision == "float32" for n in r.threads}
    for report in group:
        if not report.threads:
            table.add_row(report.request.build.precision, *["-"] * len(_COLUMNS))
        for threads in sorted(report.threads):
            table.add_row(report.request.build.precision, *_cells(report, threads, base.get(threads)))
    return table


def _whole_us(report: ModelReport, threads: int) -> float | None:
    timing = report.threads[threads].timing
    return timing.whole_model.median_us if timing is not None else None


def _cells(report: ModelReport, threads: int, float32_us: float | None) -> list[str]:
    timing = report.threads[threads].timing
    whole = _whole_us(report, threads)
    accuracy = (timing.details.get("accuracy") if timing is not None else None) or {}
    cells = [
        str(threads) if threads else "-",
        "failed" if whole is None else f"{whole:.1f}",
        "-" if whole is None or float32_us is None else f"{float32_us / whole:.2f}",
    ]
    for name, form in (("relative_error", ".2e"), ("largest_error", ".2e"), ("cosine", ".5f")):
        cells.append(format(accuracy[name], form) if name in accuracy else "-")
    cells.append({True: "yes", False: "no"}.get(accuracy.get("same_top1"), "-"))  # type: ignore[arg-type]
    return cells
