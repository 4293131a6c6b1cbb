"""`predict_each`: predictions of many models on several devices, for architecture search."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future

import numpy as np

from op_profiler.compilers.imported_model import Agreement
from op_profiler.errors import OpProfilerError
from op_profiler.prediction.latency.answer import Chosen, choose, network_of
from op_profiler.prediction.latency.lowered_models import LoweringPool
from op_profiler.prediction.latency.model_lists import ListedModel
from op_profiler.prediction.latency.network import Network, NetworkPrediction
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
    request: PredictRequest, models: Sequence[ListedModel], devices: Sequence[str | None], note: Callable[[str], None]
) -> Iterator[PredictedModel]:
    """Predict every model on every device; a model that cannot be read or lowered is yielded with its error.

    Args:
        request: request for one model, which is replaced.
        devices: each as `PredictRequest.device`.
        note: called with each model before its network is awaited.

    Raises:
        OpProfilerError: a device or an option is not valid for any model.
    """
    chosen: dict[str | None, Chosen] = {}
    with LoweringPool(of_many=True) as pool:
        begun = [
            (one.label, _begun(dataclasses.replace(request, model=one.request), devices, chosen, pool))
            for one in models
        ]
        for name, networks in begun:
            note(name)
            if isinstance(networks, str):
                yield PredictedModel(name, error=networks)
                continue
            for device, network in networks.items():
                try:
                    found = network.result()[0]
                except OpProfilerError as error:
                    yield PredictedModel(name, error=str(error))
                    break
                for threads in chosen[device].threads:
                    yield _candidate(name, chosen[device], chosen[device].predict(found, threads))


def _begun(
    request: PredictRequest,
    devices: Sequence[str | None],
    chosen: dict[str | None, Chosen],
    pool: LoweringPool,
) -> dict[str | None, Future[tuple[Network, Agreement]]] | str:
    """Return the networks of a model by device, or the error if the model is rejected before it is lowered.

    Args:
        chosen: predictors by device, from earlier models; missing ones are added.
    """
    found = {}
    for device in devices:
        here = dataclasses.replace(request, device=device)
        try:
            here.check()
        except OpProfilerError as error:
            return str(error)
        if device not in chosen:
            chosen[device] = choose(here, _ignore)
        work = functools.partial(network_of, chosen[device], here, _ignore)
        found[device] = pool.submit(work)
    return found


def _candidate(name: str, chosen: Chosen, found: NetworkPrediction) -> PredictedModel:
    device = chosen.predictor.device
    total, low, high = (float(us) if np.isfinite(us) else None for us in (found.total_us, found.low_us, found.high_us))
    return PredictedModel(name, device.key, device.processor, found.threads, total, low, high, found.tiers)


def _ignore(text: str) -> None:
    """Ignore notes: otherwise each model would print a line about the comparison of its outputs."""
