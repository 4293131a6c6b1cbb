"""Predictions for a measured model on a page."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from op_profiler.errors import OpProfilerError
from op_profiler.prediction.latency import PREDICTORS
from op_profiler.prediction.latency.calibration import calibrated, device_sentence
from op_profiler.prediction.latency.network import Network, predict_network
from op_profiler.prediction.latency.open_predictor import open_predictor
from op_profiler.report.page.document import EstimatePart, Prediction

if TYPE_CHECKING:
    from op_profiler.operators.operator import Operator
    from op_profiler.prediction.latency.network import NetworkPrediction
    from op_profiler.prediction.latency.operator_predictor import OperatorPredictor

Estimates = dict[str, dict[str, EstimatePart]]
"""Estimates by workload key and thread count."""


def predictions_of(
    predictor: OperatorPredictor,
    name: str,
    operators: Sequence[tuple[Operator, tuple[int, ...]]],
    threads: Sequence[int],
) -> tuple[list[Prediction], Estimates]:
    """Predict a model and its operators at the given thread counts; counts that the predictor was not fitted to are
    left out.

    Args:
        name: name of the model.
        operators: distinct operators, each with the positions of its calls.
        threads: thread counts.

    Raises:
        OpProfilerError: the predictor cannot predict the model.
    """
    network = Network.of_calls(name, [operator for operator, _ in operators], [len(calls) for _, calls in operators])
    predictions: list[Prediction] = []
    estimates: Estimates = {}
    for count in (n for n in threads if n in predictor.thread_counts):
        found = predict_network(predictor, network, threads=count)
        predictions.append(prediction_part(found))
        for key, estimate in estimates_of(found).items():
            estimates.setdefault(key, {})[str(count)] = estimate
    return predictions, estimates


@functools.lru_cache(maxsize=1)
def open_for(name: str, target: str, device: str) -> tuple[OperatorPredictor | None, str]:
    """Return the predictor that ``op-profiler predict`` would use here, and a sentence that names the device of its
    times.

    If there is no such predictor, the sentence gives the reason.

    Args:
        name: a name of `PREDICTORS`, or the path of a predictor's file.
        target: target of the model's build.
        device: processor of the model's measurements, as in `DeviceName.processor`.

    Raises:
        OpProfilerError: the file cannot be used.
    """
    notes: list[str] = []
    try:
        found = calibrated(open_predictor, target, notes.append) if name == "default" else None
        predictor = found or open_predictor(name)
    except OpProfilerError as error:
        if name not in PREDICTORS:
            raise  # the user's own file
        return None, f"There is no prediction: {error}"
    sentence = predictor_sentence(predictor, None if name in PREDICTORS else name, notes)
    if not f"{device} ".startswith(f"{predictor.device.processor} "):  # by its name alone where no more is known of it
        sentence += f" The model was measured on another machine ({device}), so expect large differences."
    return predictor, sentence


def predictor_sentence(
    predictor: OperatorPredictor, user_source: str | None, notes: Sequence[str] = (), *, target: str | None = None
) -> str:
    """Return a sentence that names the device whose times a predictor learned.

    Args:
        user_source: dataset, device, file or calibration that the user named as the source of the predictor; None if
            the user named none.
        notes: notes on how the predictor was made.
        target: target of the requested times; None: this processor.
    """
    sentences = [device_sentence(predictor.device, user_source, target), *notes]
    return f"By the predictor {predictor.choice}: {'; '.join(sentences)}."


def prediction_part(found: NetworkPrediction) -> Prediction:
    """Return the page's data of the prediction of the whole model."""
    return Prediction(
        threads=found.threads,
        us=_number(found.total_us),
        low_us=_number(found.low_us),
        high_us=_number(found.high_us),
        partial_us=_number(found.partial_us),
        tiers=found.tiers,
        without_estimate=list(found.without_estimate),
    )


def estimates_of(found: NetworkPrediction) -> dict[str, EstimatePart]:
    """Return the estimates of operators, by workload key."""
    of = found.operators
    rows = zip(found.network.operators, of.tiers(), of.latency_us, of.low_us, of.high_us)
    return {
        operator.key: EstimatePart(tier=tier, us=_number(us), low_us=_number(low), high_us=_number(high))
        for operator, tier, us, low, high in rows
    }


def _number(value: float) -> float | None:
    return round(float(value), 4) if math.isfinite(value) else None
