"""A predicted, unmeasured model on a page."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import TYPE_CHECKING

from op_profiler.option_values import several
from op_profiler.report.page.amounts import time_text
from op_profiler.report.page.document import (
    DevicePart,
    EstimatePart,
    ModelPart,
    OperatorPart,
    Prediction,
    Roof,
    RooflinePart,
    RunPart,
    Time,
)
from op_profiler.report.page.operators import operator_part
from op_profiler.report.page.predictions import estimates_of, prediction_part, predictor_sentence

if TYPE_CHECKING:
    from op_profiler.prediction.latency.network import NetworkPrediction
    from op_profiler.prediction.latency.operator_predictor import OperatorPredictor

_NOT_MEASURED = "Nothing here was measured: all times are a predictor's, with 90 % intervals."


def predicted_part(
    predictions: Sequence[NetworkPrediction],
    predictor: OperatorPredictor,
    user_source: str | None,
    target: str | None = None,
) -> ModelPart:
    """Return the page's data of a model that was predicted, but not measured.

    Args:
        predictions: predictions of this model, one per thread count.
        predictor: predictor that made them.
        user_source, target: as in `predictor_sentence`.
    """
    network = predictions[0].network
    parts = [prediction_part(one) for one in predictions]
    estimates = {one.threads: estimates_of(one) for one in predictions}
    device, sentence = predictor.device, predictor_sentence(predictor, user_source, target=target)
    return ModelPart(
        key="",
        name=network.name,
        title=f"{network.name}, predicted",
        source="",
        batch_size=0,
        precision="",
        executor="",
        added_at=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        predicted=True,
        device=DevicePart(
            key=device.key,
            processor=device.processor,
            target=device.target,
            facts=[("processor", device.processor), ("target", device.target), ("predictor", predictor.choice)],
        ),
        verdict=[_verdict(one) for one in parts],
        warnings=[_NOT_MEASURED, sentence, *(_missing(one) for one in parts if one.without_estimate)],
        notes=[],
        runs=[RunPart(threads=one.threads, whole=_time(one)) for one in parts],
        operators=_operators(predictions[0], estimates),
        predictor=sentence,
        predictions=parts,
        rooflines=_rooflines(predictor),
    )


def _rooflines(predictor: OperatorPredictor) -> list[RooflinePart]:
    """Return the rates that the predictor's device attains, as the predictor learned them."""
    line = predictor.roofline
    return [
        RooflinePart(
            threads=int(threads), flops_per_us=float(flops), roofs=[Roof(level="memory", bytes_per_us=float(moved))]
        )
        for threads, flops, moved in zip(line.threads, line.flops_per_us, line.bytes_per_us)
    ]


def _operators(first: NetworkPrediction, estimates: dict[int, dict[str, EstimatePart]]) -> list[OperatorPart]:
    """Return the operators. Calls are numbered operator after operator, because their order is unknown."""
    parts, position = [], 0
    for operator, calls in zip(first.network.operators, first.network.calls):
        mine = {str(n): found[operator.key] for n, found in estimates.items()}
        times = {n: _time(estimate) for n, estimate in mine.items() if estimate.us is not None}
        positions = range(position, position + int(calls))
        parts.append(operator_part(operator, tuple(positions), times=times, estimates=mine))
        position += int(calls)
    return parts


def _time(one: Prediction | EstimatePart) -> Time:
    return Time(median_us=one.us, low_us=one.low_us, high_us=one.high_us)


def _verdict(one: Prediction) -> str:
    at = f"with {several(one.threads, 'thread')}"
    if one.us is None or one.low_us is None or one.high_us is None:
        least = f" One run should take {time_text(one.low_us)} at least." if one.low_us is not None else ""
        return f"There is no prediction {at}: not all operators have an estimate.{least}"
    tiers = ", ".join(f"{share:.0%} {tier}" for tier, share in one.tiers.items())
    return (
        f"One run should take {time_text(one.us)} {at} ({time_text(one.low_us)} to {time_text(one.high_us)}; {tiers})."
    )


def _missing(one: Prediction) -> str:
    count = several(len(one.without_estimate), "operator")
    others = f"; the others take {time_text(one.partial_us)}" if one.partial_us is not None else ""
    return f"With {several(one.threads, 'thread')}: {count} without an estimate{others}."
