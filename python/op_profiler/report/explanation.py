"""Explanations as text: the verdict, advice by command, a table of losses, and a sentence per operator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from op_profiler.option_values import several, threads_text
from op_profiler.report.layers import layers_text
from op_profiler.report.page.amounts import time_text, us_text
from op_profiler.report.tables import numbers, print_line, screen, show_table, texts

if TYPE_CHECKING:
    from rich.console import Console

    from op_profiler.analysis.explain.explanation import Baseline, ModelExplanation, OperatorExplanation

_SHOWN_LOSSES, _LEAST_SHOWN_US = 3, 0.05
_NO_LOSS = "none detectable"


def show(found: ModelExplanation, *, tables: bool) -> None:
    """Print an explanation.

    Args:
        tables: whether to print the table of operators and the notes too; False: print only the verdict, the advice and
            a sentence per operator.
    """
    console = screen()
    _verdict(console, found)
    if tables:
        print_line(console, "")
        _table(console, found)
        for note in found.notes:
            print_line(console, f"note: {note}")
    for operator in found.operators:
        print_line(console, f"\n{operator.sentence}" if tables else operator.sentence)


def _verdict(console: Console, found: ModelExplanation) -> None:
    took = f"{found.model} on {found.processor}, {threads_text(found.threads)}: {time_text(found.whole_model_us)}"
    print_line(console, took)
    print_line(console, found.verdict)
    for baseline in found.baselines:
        print_line(console, f"- {_beside(baseline)}")
    titles = {one.key: one.title or one.name.removeprefix("fused_") for one in found.operators}
    for one in found.advice:
        text = f"{one.action} {several(len(one.operators), 'operator')}"
        if one.gain_us is not None and one.gain_low_us is not None and one.gain_high_us is not None:
            text += f", predicted to save {one.gain_us:.1f} us a run ({one.gain_low_us:.1f} to {one.gain_high_us:.1f})"
        text += f": {', '.join(f'{titles[key]} ({key})' for key in one.operators)}"
        print_line(console, f"- {text}" + (f"; {one.text}" if one.text else ""))
        if one.command:
            print_line(console, f"    {one.command}")


def _beside(one: Baseline) -> str:
    name = f"{one.name} build ({one.version})" if one.agree is None else f"{one.name} {one.version}".strip()
    if one.median_us is None or one.ratio is None:
        return f"{one.name} was not measured: {one.problem}"
    text = f"{name}: {time_text(one.median_us)} in turns"
    if one.agree is None:
        return text
    text += f", {one.ratio:.2f} times as fast as the default build"
    if one.ratio_low is not None and one.ratio_high is not None:
        text += f" ({one.ratio_low:.2f} to {one.ratio_high:.2f})"
    return text if one.agree else f"{text}; its outputs differ"


def _table(console: Console, found: ModelExplanation) -> None:
    title = f"the {len(found.operators)} operators that take most"
    rows = [
        [
            f"{one.model_share:.0%}",
            one.title or one.name.removeprefix("fused_"),
            layers_text(one.layers),
            "x".join(map(str, one.output)),
            one.key,
            us_text(one.time_us),
            "\n".join(_shown_losses(one)) or _NO_LOSS,
            str(one.calls),
            f"{one.compute_share:.0%}" if one.compute_share is not None else "-",
            _traffic(one),
            f"{one.code.vector_share:.0%}" if one.code is not None else "-",
        ]
        for one in found.operators
    ]
    headings = [
        *numbers("share"),
        *texts("operator"),
        *texts("layers", rank=1),
        *numbers("output", rank=1),
        *numbers("key", "us"),
        *texts("losses, us"),
        *numbers("calls", rank=2),
        *numbers("of compute peak", rank=2),
        *texts("of traffic peak", rank=3),
        *numbers("vectors", rank=4),
    ]
    show_table(console, title, headings, rows)
    if any(share > 1 for one in found.operators for share in one.traffic_shares.values()):
        print_line(console, "note: >100% of a traffic peak: a cache nearer to the core kept some of its tensors")


def _shown_losses(one: OperatorExplanation) -> list[str]:
    """Return the largest losses, without those that would be shown as 0.0."""
    return [
        f"{loss.cause} {loss.lost_us:.1f}" for loss in one.losses[:_SHOWN_LOSSES] if loss.lost_us >= _LEAST_SHOWN_US
    ]


def _traffic(one: OperatorExplanation) -> str:
    return ", ".join(
        f"{level} {share:.0%}" if share <= 1 else f"{level} >100%" for level, share in one.traffic_shares.items()
    )
