"""Python functions that measure on a machine: `collect`, `tune`, `sample`, `calibrate`, `check`, `corun`, `explain`."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated

from op_profiler.analysis.explain.request import ExplainRequest
from op_profiler.api.from_python import from_python, model_request, silent
from op_profiler.collection.check_request import CheckRequest
from op_profiler.collection.checking import check as check_prediction
from op_profiler.collection.request import CollectRequest, TuneRequest
from op_profiler.collection.sampling.calibrate import calibrate as run_calibration
from op_profiler.collection.sampling.request import (
    CalibratedRequest,
    CalibrateRequest,
    SampledRequest,
    SampleRequest,
    sampling,
)
from op_profiler.collection.sampling.run import measure_batches
from op_profiler.collection.supervisor import Collection
from op_profiler.comparison.peers.explain_child import explain_in_child
from op_profiler.comparison.peers.measuring import compare_with_peers
from op_profiler.comparison.peers.request import PeersRequest
from op_profiler.frontends import FRONTENDS
from op_profiler.frontends.frontend import ModelRequest
from op_profiler.options import Only
from op_profiler.parallel.corun.request import CorunRequest
from op_profiler.parallel.corun.run import corun_on_one_target
from op_profiler.report.collection import Screen
from op_profiler.run import Run

if TYPE_CHECKING:
    from op_profiler.analysis.explain.explanation import ModelExplanation
    from op_profiler.collection.checking import CheckResult
    from op_profiler.collection.sampling.calibrate import CalibrationResult
    from op_profiler.collection.sampling.run import SampleReport
    from op_profiler.comparison.peers.result import PeerComparison
    from op_profiler.frontends.live import LiveModel
    from op_profiler.parallel.corun.comparison import CorunResult


def _collected(request: CollectRequest, model: ModelRequest) -> Run:
    with Collection(request.db) as collection:
        (report,) = collection.run(FRONTENDS.get(model.source), [request.of(model=model)], Screen(quiet=True))
    return Run.of(report)


@from_python
def collect(model: LiveModel, inputs: object = None, *, request: CollectRequest) -> Run:
    """Measure every operator of a model, as the compiler emits it, and the whole model in the same run.

    Results that the dataset already contains are not measured again.

    >>> import op_profiler
    >>> run = op_profiler.collect("mlp", threads=[1], db="sqlite:///mlp.db")
    >>> [operator.anchor for operator, calls in run.operators]
    ['nn.contrib_dense_pack', 'nn.contrib_dense_pack', 'nn.contrib_dense_pack', 'nn.softmax']
    >>> run.threads[1].timing.whole_model.median_us > 0
    True

    Args:
        model: a torch module, an ``onnx.ModelProto``, a name, source:name, or a path.
        inputs: example tensors of a torch module, as a sequence in the order of its arguments or as a dict by name.

    Returns:
        A run with the operators, and times in microseconds by thread count. Its `error` is set if times are missing.

    Raises:
        OpProfilerError: the request is not valid, or the dataset cannot be used.
    """
    return _collected(request, model_request(request.build.model, model, inputs))


@from_python
def tune(model: LiveModel, inputs: object = None, *, request: CollectRequest, search: TuneRequest) -> Run:
    """Search for better schedules of a model's heavy operators, then measure the model with them as `collect` does.

    >>> import op_profiler
    >>> run = op_profiler.tune("mlp", trials=10, threads=[1], schedules="records", db="sqlite:///mlp.db")
    >>> run.studies.tuned[0].trials > 0
    True

    Args:
        model, inputs: as for `collect`.

    Returns:
        A run as for `collect`; its `studies` contain the results of the search, and its `base` is the report of the
        model with default schedules.

    Raises:
        OpProfilerError: the request is not valid, or the dataset cannot be used.
    """
    search.check()
    studied = dataclasses.replace(request, studies=dataclasses.replace(request.studies, tune=search))
    return _collected(studied, model_request(request.build.model, model, inputs))


@from_python
def sample(
    count: int | None = None,
    *,
    wanted: SampleRequest,
    request: SampledRequest,
) -> SampleReport:
    """Measure operators outside of networks: those of a grid, random ones, or those of models at other sizes.

    If a call is interrupted, a second call with the same arguments resumes it.

    >>> import op_profiler
    >>> report = op_profiler.sample(10, kinds=["softmax"], rounds=3, threads=[1], db="sqlite:///sampled.db")
    >>> report.operators >= 10, report.errors
    (True, [])

    Args:
        count: number of operators to measure in total; since whole batches are measured, there may be a few more.

    Returns:
        Number of measured batches and operators, and the failures.

    Raises:
        OpProfilerError: the request is not valid, or the dataset cannot be used.
    """
    wanted = dataclasses.replace(wanted, count=count)
    wanted.check()
    request = sampling(request, wanted.rounds)
    with Collection(request.db) as collection:
        batches = wanted.drawn(request, silent)
        return measure_batches(
            batches, request, collection, Screen(quiet=True), count=count, budget_seconds=wanted.budget_seconds
        )


@from_python
def calibrate(*, wanted: CalibrateRequest, request: CalibratedRequest) -> CalibrationResult:
    """Measure the most informative operators on this machine, so that predictions are for this machine from then on.

    If a call is interrupted, a second call with the same arguments resumes it.

    >>> import op_profiler
    >>> found = op_profiler.calibrate(budget_seconds="1s", rounds=3, threads=[1], db="sqlite:///calibrated.db")
    >>> found.operators >= 20
    True

    Args:

    Returns:
        Number of usable operators, their device, and the file in which later predictions find the dataset.

    Raises:
        OpProfilerError: too little could be measured, the request is not valid, or the dataset cannot be used.
    """
    request = wanted.of(request)
    request.check()
    with Collection(request.db) as collection:
        return run_calibration(
            request, collection, Screen(quiet=True), budget_seconds=wanted.budget_seconds, seed=wanted.seed
        )


@from_python
def corun(
    *models: LiveModel,
    model: Annotated[ModelRequest, Only("importer", "batch_size", "sequence_length")],
    request: CorunRequest,
) -> CorunResult:
    """Plan which operators of one or several models run side by side, and compare the plan with sequential execution.

    The models run on this processor. A C compiler is required.

    >>> import op_profiler
    >>> result = op_profiler.corun("lstm", policy="greedy", rounds=5)
    >>> result.outputs_agree
    True
    >>> sorted(result.to_json())[-3:]
    ['stages', 'tried', 'tuned_stages']

    Args:
        models: each as for `collect`, a pair of a module and its inputs, or a run that `collect` returned.

    Returns:
        The plan, the times of the plan and of sequential execution in microseconds, and whether the outputs agree.

    Raises:
        OpProfilerError: a model, a policy or an option is not valid, or a kernel fails; the message names the kernel.
    """
    request = dataclasses.replace(request, models=tuple(model_request(model, one) for one in models))
    request.check()
    return corun_on_one_target(request, silent)


@from_python
def explain(
    model: LiveModel | Run,
    inputs: object = None,
    *,
    request: Annotated[
        ExplainRequest,
        Only("batch_size", "input_names", "input_shapes", "sequence_length", "check_outputs", "target", "threads"),
        Only("schedules", "against", "top", "trials_from", "db"),
    ],
) -> ModelExplanation:
    """Explain why the operators of a model are slow: the causes, how certain each cause is, and what to try.

    The model is measured on this machine, and the machine code of its kernels is analyzed.

    >>> import op_profiler
    >>> found = op_profiler.explain("mlp", top=1, threads=[1])
    >>> len(found.operators)
    1

    Args:
        model: as for `collect`; a run that `collect` returned; or the key of an operator in the dataset (16 hex
            digits).
        inputs: as for `collect`.

    Returns:
        The operators that take most time, each with its losses: the microseconds that are lost for each cause.

    Raises:
        OpProfilerError: the model cannot be explained, or cannot be explained on this machine.
    """
    if isinstance(model, Run):
        build = dataclasses.replace(request.build, model=model.request.build.model)
        request = dataclasses.replace(request, build=build, db=request.db or model.request.db)
    elif isinstance(model, str) and inputs is None:
        request = request.of(model)
    else:
        asked = model_request(request.build.model, model, inputs)
        request = dataclasses.replace(request, build=dataclasses.replace(request.build, model=asked))
    request.check()
    return explain_in_child(request, silent)


@from_python
def compare_peers(
    model: LiveModel,
    inputs: object = None,
    *,
    request: Annotated[
        PeersRequest,
        Only("batch_size", "input_names", "input_shapes", "sequence_length", "compiler", "schedules", "check_outputs"),
        Only("against", "threads", "seconds"),
    ],
) -> PeerComparison:
    """Compare a model with the same model in other runtimes, and find the layers that lose most time.

    All runtimes are timed in alternating rounds.

    >>> import op_profiler, torch
    >>> module, inputs = torch.nn.Linear(64, 64), torch.zeros(1, 64)
    >>> found = op_profiler.compare_peers(module, inputs, against=["torch"], threads=[1], seconds=1)
    >>> [(one.name, one.agree) for one in found.at[0].runtimes][-1]
    ('torch', True)

    Args:
        model, inputs: as for `collect`.

    Returns:
        Times of the runtimes and of the layers in microseconds; whether the outputs agree; which runtimes were not
        measured, and why.

    Raises:
        OpProfilerError: a runtime is not installed, or the model cannot be built or measured.
    """
    asked = model_request(request.build.model, model, inputs)
    return compare_with_peers(
        dataclasses.replace(request, build=dataclasses.replace(request.build, model=asked)), silent
    )


@from_python
def check(
    model: LiveModel,
    inputs: object = None,
    *,
    threads: int = 1,
    request: Annotated[
        CheckRequest,
        Only("batch_size", "input_names", "input_shapes", "sequence_length", "check_outputs", "compiler", "precision"),
        Only("db", "include_noisy", "predictor", "seconds"),
    ],
) -> CheckResult:
    """Predict a model, measure it on this machine, and report which 90 % intervals contain the measured times.

    >>> import op_profiler
    >>> found = op_profiler.check("mlp", seconds=1)
    >>> found.network.verdict in ("held", "did not hold", "disturbed")
    True

    Args:
        model, inputs: as for `collect`.
        threads: thread count of the prediction and of the measurement.

    Returns:
        Predicted and measured microseconds with a verdict, for the network and for each operator. They are also stored
        as checks of the predictions on this machine.

    Raises:
        OpProfilerError: the model cannot be lowered or measured, or no predictor of this processor is available.
    """
    asked = dataclasses.replace(
        request.predicted, model=model_request(request.predicted.model, model, inputs), threads=(threads,)
    )
    request = dataclasses.replace(request, predicted=asked)
    request.check()
    return check_prediction(request, Screen(quiet=True), silent)
