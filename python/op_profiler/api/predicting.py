"""Python functions that predict without measuring: `predict`, `schedule`, and `evaluate`, which scores predictors."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from op_profiler.api.from_python import from_python, model_request, silent
from op_profiler.collection.studies.suggest import ScheduleRequest
from op_profiler.errors import UsageError
from op_profiler.options import Only
from op_profiler.prediction.evaluation import EvaluateRequest
from op_profiler.prediction.latency import answer
from op_profiler.prediction.latency.generation import generation_of, predict_generation
from op_profiler.prediction.latency.lowered_models import LoweringPool
from op_profiler.prediction.latency.network import predict_networks
from op_profiler.prediction.latency.request import PredictRequest
from op_profiler.report.status import Status
from op_profiler.run import Run

if TYPE_CHECKING:
    from op_profiler.frontends.live import LiveModel
    from op_profiler.measure.measurement import Cache
    from op_profiler.prediction.latency.generation import GenerationPrediction
    from op_profiler.prediction.latency.network import NetworkPrediction
    from op_profiler.prediction.library.scoring import Score
    from op_profiler.prediction.schedules.suggestions import Answer


@from_python
def predict(
    model: LiveModel | Sequence[LiveModel],
    inputs: object = None,
    *,
    threads: int | None = None,
    request: PredictRequest,
) -> NetworkPrediction | GenerationPrediction | list[NetworkPrediction]:
    """Predict the latency of a model and of each of its operators without measuring.

    >>> import op_profiler
    >>> found = op_profiler.predict("mlp", device="emeraldrapids")
    >>> found.total_us > 0
    True
    >>> len(op_profiler.predict(["mlp", "resnet-18"], device="emeraldrapids"))
    2

    Args:
        model: as for `collect`; or a list of models, which are predicted in one call, as an architecture search does.
            In a list, a torch module is a pair of the module and its inputs.
        inputs: as for `collect`.
        threads: thread count to predict for; None for 1 thread. Leave it out for a GPU.

    Returns:
        Times in microseconds with intervals; for a list, one prediction for each model.
        With `prefill`, the seconds to the first token and the tokens per second of one model.

    Raises:
        OpProfilerError: a model cannot be lowered, or there is no predictor for the request.
    """
    many = isinstance(model, list)
    models = model if isinstance(model, list) else [(model, inputs)]
    request = dataclasses.replace(request, threads=() if threads is None else (threads,))
    if request.prefill is not None:
        if many:
            raise UsageError("prefill is for one model; call predict for each")
        asked = dataclasses.replace(request, model=model_request(request.model, models[0]))
        asked.check()
        answering = answer.choose(asked, silent)
        return predict_generation(answering, generation_of(answering, asked, silent), answering.threads[0])
    chosen, begun, networks = None, [], []
    with LoweringPool(of_many=many) as pool, Status(quiet=not many, steps=len(models)) as status:
        for model in models:  # one is exported while those before it are lowered
            one = dataclasses.replace(request, model=model_request(request.model, model))
            one.check()
            chosen = chosen or answer.choose(one, silent)
            begun.append((one.model.name, pool.submit(functools.partial(answer.network_of, chosen, one, silent))))
        for name, network in begun:
            status.step(f"lowering {name}")
            networks.append(network.result()[0])
    if chosen is None:
        return []
    count = chosen.threads[0]
    found = predict_networks(chosen.predictor, networks, threads=count, widening=chosen.widening(count))
    return found if many else found[0]


@from_python
def evaluate(
    *,
    request: Annotated[EvaluateRequest, Only("db", "library", "splits", "predictors", "device", "compiler", "seed")],
) -> list[Score]:
    """Report errors of predictors on held-out data, and the share of intervals that contain the measured time.

    >>> import op_profiler
    >>> (score,) = op_profiler.evaluate(splits="random", predictors="roofline", device="emeraldrapids")
    >>> score.tested > 0 and score.mape > 0
    True

    Args:

    Returns:
        A score for each split and predictor, in this order. The split ``model`` has a second score, for its operators.

    Raises:
        OpProfilerError: a split or a predictor does not exist, or there is no data to hold out.
    """
    return list(request.evaluation(silent).scores(silent))


@from_python
def schedule(
    model: LiveModel | Run,
    inputs: object = None,
    *,
    threads: int | None = None,
    cache: Cache = "hot",
    request: Annotated[
        ScheduleRequest,
        Only("batch_size", "sequence_length", "target", "compiler", "schedules"),
        Only("device", "k", "verify", "trials_from", "db"),
    ],
) -> list[Answer]:
    """Return the best known schedules of a model's heavy operators; for operators never tuned, the best predicted ones.

    >>> import op_profiler
    >>> found = op_profiler.schedule("mlp", k=2, device="AMD EPYC")
    >>> len(found[0].suggestions) <= 2
    True

    Args:
        model: as for `collect`; a run that `collect` returned; or the key of an operator in the dataset (16 hex
            digits).
        inputs: as for `collect`.
        threads: thread count that the schedules are for; None for the number of cores.
        cache: cache state that the schedules are for: ``hot``, ``cold`` (the weights are flushed before each call), or
            ``model`` (the caches inside a model).

    Returns:
        One answer for each operator: its schedules with predicted and measured microseconds.

    Raises:
        OpProfilerError: the model or operator does not exist, or cannot be measured.
    """
    build = request.build
    counts = (max(build.threads) if threads is None else threads,)
    build = dataclasses.replace(build, model=model_request(build.model, model, inputs), threads=counts, cache=cache)
    request = dataclasses.replace(request, build=build)
    request.check()
    query, _ = request.known(silent)
    return request.answers(query, silent)
