"""Prints a comparison with other runtimes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from op_profiler.comparison.peers.result import OURS
from op_profiler.option_values import threads_text
from op_profiler.report.page.amounts import half_width, us_text
from op_profiler.report.tables import numbers, print_line, screen, show_table, texts

if TYPE_CHECKING:
    from rich.console import Console

    from op_profiler.comparison.peers.result import AtThreads, PeerComparison, PeerLayer, RuntimeTime

_SHOWN_LAYERS = 10
_LEAST_LOST = 0.005
"""Share of the model's time; a layer that loses less is not printed."""


def show(found: PeerComparison) -> None:
    """Print tables of the runtimes and of the layers at each thread count, then notes and verdicts."""
    console = screen()
    for at in found.at:
        _runtimes(console, found, at)
        _layers(console, at)
    for line in (*(f"note: {note}" for note in found.notes), *verdicts(found)):
        print_line(console, line)


def _runtimes(console: Console, found: PeerComparison, at: AtThreads) -> None:
    title = f"{found.model} on {found.processor}, {threads_text(at.threads)}, {at.rounds} rounds in turns"
    headings = [
        *texts("runtime"),
        *numbers("us", "default / this"),
        *numbers("interval", rank=1),
        *numbers("threads", "that worked", rank=2),
        *numbers("largest difference", rank=3),
        *texts("outputs", rank=1),
    ]
    show_table(console, title, headings, [_cells(one) for one in at.runtimes if not one.problem])
    for one in at.runtimes:
        if one.problem:
            print_line(console, f"{one.name} was not measured: {one.problem}")
    if at.foreign_load:
        print_line(console, "note: other programs used the machine; measure again when it is idle")


def _cells(one: RuntimeTime) -> list[str]:
    name = f"{one.name} ({one.version})" if one.name in OURS else f"{one.name} {one.version}".strip()
    narrow = one.ratio_low is not None and one.ratio_high is not None and one.ratio != 1.0
    outputs = "-" if one.agree is None else "agree" if one.agree else "differ"
    far = "-" if one.difference is None else "none alike" if math.isinf(one.difference) else f"{one.difference:.1e}"
    return [
        name,
        us_text(one.median_us, _half_us(one) if narrow else None),
        f"{one.ratio:.2f}",
        f"{one.ratio_low:.2f} to {one.ratio_high:.2f}" if narrow else "-",
        str(one.threads),
        "-" if one.busy_threads is None else str(one.busy_threads),
        far,
        outputs,
    ]


def _half_us(one: RuntimeTime) -> float | None:
    """Return the half width of a runtime's time in microseconds, computed from the interval of its ratio; None without
    an interval."""
    half = half_width(one.ratio_low, one.ratio_high)
    return None if half is None or one.median_us is None or not one.ratio else half / one.ratio * one.median_us


def _layers(console: Console, at: AtThreads) -> None:
    if not at.best:
        print_line(console, "no runtime here has times of layers; onnxruntime, openvino and torch have")
        return
    rows = _shown(at)
    names = list(at.elsewhere_us)
    headings = [*texts("layer"), *numbers("lost us", f"{at.build} us", *(f"{name} us" for name in names))]
    cells = [
        [layer.layer or "(no name)", *map(us_text, (layer.lost_us, layer.ours_us, *layer.peers_us.values()))]
        for layer in rows
    ]
    if rows:
        show_table(console, f"layers that lose most against {at.best}", headings, cells)
    else:
        print_line(console, f"no layer loses {_LEAST_LOST:.1%} of the model's time against {at.best}")
    advice: dict[tuple[str, str], list[str]] = {}
    for layer in rows:
        advice.setdefault((layer.advice, layer.command), []).append(layer.layer)
    for (text, command), layers in advice.items():
        if text:
            print_line(console, ": ".join(filter(None, (", ".join(layers), text, command))))
    for line in _profilers(at):
        print_line(console, f"note: {line}")


def _shown(at: AtThreads) -> list[PeerLayer]:
    whole = sum(layer.ours_us for layer in at.layers)
    return [layer for layer in at.layers[:_SHOWN_LAYERS] if (layer.lost_us or 0.0) > _LEAST_LOST * whole]


def _profilers(at: AtThreads) -> list[str]:
    """Return sentences on the accuracy of the times of layers."""
    lines = []
    for one in at.runtimes:
        if one.distortion is not None and one.median_us is not None:
            elsewhere = at.elsewhere_us.get(one.name, 0.0) / one.median_us
            lines.append(
                f"the profiler of {one.name} makes a run take {one.distortion:.2f} times as long; its times of layers "
                f"are scaled to a run without it, and {elsewhere:.0%} of them belong to no layer of ours"
            )
    return lines


def verdicts(found: PeerComparison) -> list[str]:
    """Return the result in one sentence per thread count."""
    lines = []
    for at in found.at:
        measured = [one for one in at.runtimes if one.busy_threads is not None and one.agree]
        ours = next(one for one in at.runtimes if one.name == at.build)
        where = f"{found.model}, {threads_text(at.threads)}"
        if not measured or ours.median_us is None:
            lines.append(f"{where}: no other runtime was measured that computes the same")
            continue
        best = min(measured, key=lambda one: one.median_us or math.inf)
        times = ours.median_us / (best.median_us or math.nan)
        sentence = f"{where}: this build ({at.build}) takes {times:.2f} times as long as {best.name}, the fastest other"
        wrong = [one.name for one in at.runtimes if one.agree is False]
        lines.append(sentence + (f"; outputs differ from those of {', '.join(wrong)}" if wrong else ""))
    return lines
