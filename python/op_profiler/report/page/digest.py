"""A summary of a report page in a few kilobytes of JSON, for assistants and scripts: the verdict, and the most
important results.

`docs/tutorials/report.md` describes the fields. Times are microseconds of one call, shares are from 0 to 1.
"""

from __future__ import annotations

from typing import Any

from op_profiler.report.page.document import ModelPart, OperatorPart, Report, RooflinePart

_MOST_OPERATORS = 20


def digest(report: Report) -> dict[str, Any]:
    """Return a JSON-serializable dictionary with, for each model of a report, the verdict, the warnings, the runs, and
    the operators that take most of the time."""
    return {
        "made_at": report.made_at,
        "version": report.version,
        "units": "times in microseconds of one call, shares from 0 to 1, sizes in bytes",
        "models": [_model(model) for model in report.models],
    }


def _model(model: ModelPart) -> dict[str, Any]:
    threads = max((run.threads for run in model.runs), default=0)
    totals = {one.key: _us(one, threads) * len(one.calls) for one in model.operators}
    total = sum(totals.values())
    ranked = sorted(model.operators, key=lambda one: -totals[one.key])
    roofline = next((one for one in model.rooflines if one.threads == threads), None)
    shown = ranked[:_MOST_OPERATORS]
    return {
        "model": model.title,
        "key": model.key,
        "device": model.device.processor,
        "run": dict(model.about),
        "verdict": model.verdict,
        "warnings": model.warnings,
        "notes": model.notes,
        "runs": [
            {
                "threads": run.threads,
                "us": run.whole.median_us,
                "interval_us": [run.whole.low_us, run.whole.high_us],
                "sum_of_operators_us": run.sum_us,
                "error": run.whole.error,
            }
            for run in model.runs
        ],
        "threads_of_operators": threads,
        "operators": [_operator(one, threads, totals[one.key] / total if total else None, roofline) for one in shown],
        "operators_left_out": len(ranked) - len(shown),
        "share_of_operators_left_out": sum(totals[one.key] for one in ranked[len(shown) :]) / total if total else None,
        "unknown": model.unknown,
    }


def _us(operator: OperatorPart, threads: int) -> float:
    time = operator.times.get(str(threads))
    return (time.median_us if time is not None else None) or 0.0


def _operator(
    operator: OperatorPart, threads: int, share: float | None, roofline: RooflinePart | None
) -> dict[str, Any]:
    time = operator.times.get(str(threads))
    found = operator.explained.found if operator.explained is not None else None
    loss = found.losses[0] if found is not None and found.losses else None
    return {
        "operator": operator.title,
        "layers": sorted({layer for call in operator.layers for layer in call}),
        "output": operator.outputs,
        "key": operator.key,
        "calls": len(operator.calls),
        "share": share,
        "us": time.median_us if time is not None else None,
        "interval_us": [time.low_us, time.high_us] if time is not None else None,
        "settled": time.settled if time is not None else None,
        "disturbed_by": time.disturbed_by if time is not None else None,
        "error": time.error if time is not None else None,
        "us_by_threads": {count: one.median_us for count, one in operator.times.items()},
        "flops": operator.flops,
        "bytes": operator.bytes,
        **_of_peak(operator, _us(operator, threads), roofline),
        "schedule": operator.schedule.template if operator.schedule is not None else None,
        "loses_most_to": loss.cause if loss is not None else None,
        "lost_us": loss.lost_us if loss is not None else None,
        "source_lines": operator.source_lines,
        "why": found.sentence if found is not None else None,
        "try": found.advice.command if found is not None and found.advice is not None else None,
    }


def _of_peak(operator: OperatorPart, us: float, roofline: RooflinePart | None) -> dict[str, float | None]:
    """Return the shares of the peaks of arithmetic and of memory that an operator reaches; None if the peaks or its
    time are unknown."""
    if roofline is None or not us:
        return {"of_peak_arithmetic": None, "of_peak_memory": None}
    memory = next(roof for roof in roofline.roofs if roof.level == "memory")
    return {
        "of_peak_arithmetic": operator.flops / us / roofline.flops_per_us,
        "of_peak_memory": operator.bytes / us / memory.bytes_per_us,
    }
