"""Tables and sentences about checked predictions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from op_profiler.report.page.amounts import half_width, us_text
from op_profiler.report.tables import numbers, screen, show_table, texts

if TYPE_CHECKING:
    from op_profiler.collection.checking import CheckResult
    from op_profiler.prediction.latency.checks import Check, HeldChecks


def show_checked(checked: CheckResult) -> None:
    """Print a table of the network and its operators, then the names of the operators that were not compared."""
    everything = [*([checked.network] if checked.network else []), *checked.operators]
    headings = [
        *texts("operator"),
        *numbers("predicted us", "90 % interval", "measured us"),
        *texts("verdict", "source"),
    ]
    rows = [
        [
            one.name,
            us_text(one.predicted_us, half_width(one.low_us, one.high_us)),
            interval(one),
            us_text(one.measured_us),
            one.verdict,
            one.tier,
        ]
        for one in everything
    ]
    show_table(screen(), "predictions compared with measurements on this machine", headings, rows)
    if checked.not_compared:
        print(f"not compared, without an estimate or a measurement: {', '.join(dict.fromkeys(checked.not_compared))}")


def summary(checked: CheckResult) -> str:
    """Return the verdict of the network, and how many operators have a measured time in the predicted interval."""
    counted = [one for one in checked.operators if one.verdict != "disturbed"]
    held = sum(one.verdict == "held" for one in counted)
    disturbed = len(checked.operators) - len(counted)
    more = f"; {disturbed} disturbed, not counted" if disturbed else ""
    network = checked.network
    if network is None:
        text = "network: no verdict, since it has no predicted or no measured total"
    else:
        text = (
            f"network: {network.verdict}, {us_text(network.measured_us)} us measured, {interval(network)} us predicted"
        )
    return f"{text}. Operators: {held} of {len(counted)} held{more}"


def interval(one: Check) -> str:
    """Return the predicted interval as text; a lower bound if there is no upper end."""
    return (
        f"{us_text(one.low_us)} to {us_text(one.high_us)}"
        if one.high_us is not None
        else f"at least {us_text(one.low_us)}"
    )


def show_coverage(coverage: Sequence[HeldChecks]) -> None:
    """Print a table with a row per processor, thread count, predictor and kind (networks or operators): the number of
    checks, and how many of the measured times were in the predicted interval."""
    if not coverage:
        print("no prediction was checked on this machine yet: op-profiler check MODEL")
        return
    rows = [
        [
            f"{one.kind}s",
            one.processor,
            str(one.threads),
            one.predictor,
            str(one.checked),
            str(one.held),
            f"{one.held / one.checked:.1%}" if one.checked else "-",
            str(one.disturbed),
        ]
        for one in coverage
    ]
    headings = [
        *texts("checked", "processor"),
        *numbers("threads"),
        *texts("predictor"),
        *numbers("checks", "held", "in 90 % interval", "disturbed"),
    ]
    show_table(screen(), "checked predictions on this machine", headings, rows)
