"""`predict_each`: predictions of many models on several devices, for architecture search."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future

import numpy as np

from op_profiler.compilers import DEFAULT_COMPILER
from op_profiler.compilers.compiler import compiler_in_use
from op_profiler.compilers.imported_model import Agreement
from op_profiler.errors import OpProfilerError, UsageError
from op_profiler.operators.kinds.described import described
from op_profiler.prediction.latency.answer import Chosen, choose, network_of
from op_profiler.prediction.latency.lowered_models import LoweringPool
from op_profiler.prediction.latency.model_lists import ListedModel
from op_profiler.prediction.latency.network import Network, NetworkPrediction
from op_profiler.prediction.latency.request import PredictRequest
from op_profiler.targets.target import kind_of, resolve_target


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
        error: reason why the model has no prediction; None if it has one.
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
        request: options of the predictions; its model and device are replaced by those of `models` and `devices`.
        models: the models.
        devices: values of `PredictRequest.device`; None for the default device.
        note: called with the name of each model before its predictions.

    Raises:
        OpProfilerError: a device or an option is not valid for any model.
    """
    chosen: dict[str | None, Chosen] = {}
    with LoweringPool(of_many=True) as pool:
        begun = [(one.label, _begun(one, request, devices, chosen, pool)) for one in models]
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
    model: ListedModel,
    request: PredictRequest,
    devices: Sequence[str | None],
    chosen: dict[str | None, Chosen],
    pool: LoweringPool,
) -> dict[str | None, Future[tuple[Network, Agreement]]] | str:
    """Return the networks of a model by device, or the error if the model is rejected before it is lowered.

    Args:
        request: options of the predictions; its model and device are replaced.
        chosen: predictors by device, from earlier models; missing predictors are added.
    """
    found = {}
    for device in devices:
        here = dataclasses.replace(request, device=device, model=model.request)
        try:
            here.check_options() if model.layers else here.check()
        except OpProfilerError as error:
            return str(error)
        if device not in chosen:
            chosen[device] = choose(here, _ignore)
        if model.layers:
            _check_described(model, here, chosen[device])
            found[device] = _described(model, chosen[device])
        else:
            found[device] = pool.submit(functools.partial(network_of, chosen[device], here, _ignore))
    return found


def _described(model: ListedModel, chosen: Chosen) -> Future[tuple[Network, Agreement]]:
    """Return the network of a model whose layers are described: neither a compiler nor a process is needed."""
    found: Future[tuple[Network, Agreement]] = Future()
    lanes = _lanes(chosen.target)
    found.set_result((Network.of(model.label, [described(layer, lanes) for layer in model.layers]), Agreement()))
    return found


def _check_described(model: ListedModel, request: PredictRequest, chosen: Chosen) -> None:
    """Raise a UsageError if described layers do not determine the operators for a request."""
    plain = (request.compiler, request.precision, request.schedules) == (DEFAULT_COMPILER, "float32", "none")
    if not plain or kind_of(chosen.target).name != "llvm":
        raise UsageError(
            f"{model.label}: described layers are predicted for processors, in float32, with --compiler "
            f"{DEFAULT_COMPILER} and --schedules none; for others, name a model to lower"
        )


@functools.cache
def _lanes(target: str) -> int:
    """Return the number of 32-bit values in a vector of a target, by which the compiler blocks channels."""
    return compiler_in_use().vector_lanes(resolve_target(target))


def _candidate(name: str, chosen: Chosen, found: NetworkPrediction) -> PredictedModel:
    device = chosen.predictor.device
    total, low, high = (float(us) if np.isfinite(us) else None for us in (found.total_us, found.low_us, found.high_us))
    return PredictedModel(name, device.key, device.processor, found.threads, total, low, high, found.tiers)


def _ignore(text: str) -> None:
    """Ignore notes: otherwise each model would print a line about the comparison of its outputs."""
