"""`predict_each`: predictions of many models on several devices, for architecture search."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from op_profiler.errors import OpProfilerError
from op_profiler.frontends import source_and_name
from op_profiler.prediction.latency.answer import Chosen, choose, network_of
from op_profiler.prediction.latency.network import NetworkPrediction
from op_profiler.prediction.latency.request import PredictRequest


@dataclasses.dataclass(frozen=True)
class PredictedModel:
    """Prediction of a model on a device at a thread count.

    Attributes:
        model: name of the model, as requested.
        device, processor: key and name of the device; empty if the model failed before they were known.
        threads: thread count; 0 on a GPU.
        total_us, low_us, high_us: latency with its 90 % interval. If an operator has no estimate, `total_us` and
            `high_us` are None, and `low_us` is the least time of the model.
        sources: share of the time by source of the estimate (`TIERS`).
        error: why there is no prediction; None if there is one.
    """

    model: str
    device: str = ""
    processor: str = ""
    threads: int = 0
    total_us: float | None = None
    low_us: float | None = None
    high_us: float | None = None
    sources: dict[str, float] = dataclasses.field(default_factory=dict)
    error: str | None = None


def predict_each(
    request: PredictRequest, names: Sequence[str], devices: Sequence[str | None], note: Callable[[str], None]
) -> Iterator[PredictedModel]:
    """Predict every model on every device; a model that cannot be read or lowered is yielded with its error.

    Args:
        request: request for one model, whose name is replaced.
        devices: each as `PredictRequest.device`.
        note: called with each model before it is lowered.

    Raises:
        OpProfilerError: a device or an option is not valid for any model.
    """
    chosen: dict[str | None, Chosen] = {}
    for name in names:
        source, plain = source_and_name(name, request.model.source)
        asked = dataclasses.replace(request, model=dataclasses.replace(request.model, source=source, name=plain))
        note(name)
        for device in devices:
            here = dataclasses.replace(asked, device=device)
            try:
                here.check()
            except OpProfilerError as error:
                yield PredictedModel(name, error=str(error))
                break
            if device not in chosen:
                chosen[device] = choose(here, _ignore)
            try:
                network, _ = network_of(chosen[device], here, _ignore)
            except OpProfilerError as error:
                yield PredictedModel(name, error=str(error))
                break
            for threads in chosen[device].threads:
                found = chosen[device].predict(network, threads)
                yield _candidate(name, chosen[device], found)


def _candidate(name: str, chosen: Chosen, found: NetworkPrediction) -> PredictedModel:
    device = chosen.predictor.device
    total, low, high = (float(us) if np.isfinite(us) else None for us in (found.total_us, found.low_us, found.high_us))
    return PredictedModel(name, device.key, device.processor, found.threads, total, low, high, found.tiers)


def _ignore(text: str) -> None:
    """Ignore notes: otherwise each model would print a line about the comparison of its outputs."""
