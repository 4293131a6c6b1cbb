"""What the commands do, for programs. Import it from the package: ``from op_profiler import collect, predict, corun``.

A function takes the options of its command that decide what is measured, as keyword arguments, and returns what the
command would print. A model is a torch module with example inputs, an ``onnx.ModelProto``, ``source:name``, the path of
a file, or a name of the source ``local``. Errors that a user can act on are `op_profiler.errors.OpProfilerError`, as on
the command line. Progress is shown for several models only; what fails is said on stderr.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

from op_profiler.analysis.explain.request import ExplainRequest
from op_profiler.collection.request import CollectRequest, TuneRequest
from op_profiler.collection.sampling.request import SampledRequest, SampleRequest, sampling
from op_profiler.collection.studies.suggest import ScheduleRequest
from op_profiler.comparison.request import CompareRequest
from op_profiler.cores import callers_cores
from op_profiler.dataset.formats.request import ExportRequest
from op_profiler.frontends import FRONTENDS
from op_profiler.frontends.frontend import ModelRequest
from op_profiler.frontends.live import source_and_name_of
from op_profiler.options import Field, Only, with_options
from op_profiler.parallel.corun.request import CorunRequest
from op_profiler.prediction.latency.request import PredictRequest
from op_profiler.run import Run

if TYPE_CHECKING:
    from op_profiler.analysis.explain.explanation import ModelExplanation
    from op_profiler.collection.sampling.run import SampleReport
    from op_profiler.comparison.result import Comparison
    from op_profiler.dataset.formats.format import Exported
    from op_profiler.frontends.live import LiveModel
    from op_profiler.measure.measurement import Cache
    from op_profiler.parallel.corun.comparison import CorunResult
    from op_profiler.prediction.latency.network import NetworkPrediction
    from op_profiler.prediction.schedules.suggestions import Answer

T = TypeVar("T")


def _from_python(function: Callable[..., T]) -> Callable[..., T]:
    """A function whose requests are given by keyword arguments, which its docstring lists."""
    fields: list[Field] = []

    def parameter(field: Field) -> inspect.Parameter:
        fields.append(field)
        hint = re.sub(r"\b(typing|pathlib|collections\.abc)\.", "", inspect.formatannotation(field.type))
        by_place = field.option.argument
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD if by_place else inspect.Parameter.KEYWORD_ONLY
        return inspect.Parameter(field.name, kind, default=field.default, annotation=hint)

    called = with_options(callers_cores()(function), parameter, _value)
    text = inspect.cleandoc(function.__doc__ or "")
    before, _, after = text.partition("\n\nReturns:")
    called.__doc__ = "\n".join([before, *map(_described, fields)]) + f"\n\nReturns:{after}"
    return called


def _value(field: Field, given: object) -> object:
    """A text is read as on the command line."""
    if isinstance(given, str) and field.option.parse is not None:
        return field.option.parse(field.name, given)
    return tuple(given) if isinstance(given, list) else given


def _described(field: Field) -> str:
    """A line of a docstring."""
    text = re.sub(r"\{(\w+)\}", r"one of the \1", field.option.help)
    return textwrap.fill(f"{field.name}: {text}", 116, initial_indent=" " * 4, subsequent_indent=" " * 8)


def _named(request: ModelRequest, model: LiveModel | Run, inputs: object = None) -> ModelRequest:
    """A request for a model; a pair of a module and its inputs is one too."""
    if isinstance(model, Run):
        return model.request.build.model
    if isinstance(model, tuple):
        model, inputs = model
    source, name = source_and_name_of(model, inputs, request.source)
    return dataclasses.replace(request, source=source, name=name)


def _collected(request: CollectRequest, model: ModelRequest) -> Run:
    from op_profiler.collection.supervisor import Collection
    from op_profiler.report.collection import Screen

    with Collection(request.db) as collection:
        (report,) = collection.run(FRONTENDS.get(model.source), [request.of(model=model)], Screen(quiet=True))
    return Run.of(report)


def _silent(text: str) -> None:
    """In place of progress."""


@_from_python
def collect(model: LiveModel, inputs: object = None, *, request: CollectRequest) -> Run:
    """Measure every operator of a model, as the compiler emits it, and the whole model beside them.

    What the dataset holds already is not measured again.

    >>> import op_profiler
    >>> run = op_profiler.collect("mlp", threads=[1], db="sqlite:///mlp.db")
    >>> [operator.anchor for operator, calls in run.operators]
    ['nn.contrib_dense_pack', 'nn.contrib_dense_pack', 'nn.contrib_dense_pack', 'nn.softmax']
    >>> run.threads[1].timing.whole_model.median_us > 0
    True

    Args:
        model: a torch module, an ``onnx.ModelProto``, a name, source:name, or a path.
        inputs: of a module: example tensors, by place or by name.

    Returns:
        Operators, times in microseconds by thread count, and `error` where the model has none, or not all of them.

    Raises:
        OpProfilerError: the request cannot work, or the dataset cannot be used.
    """
    return _collected(request, _named(request.build.model, model, inputs))


@_from_python
def tune(model: LiveModel, inputs: object = None, *, request: CollectRequest, search: TuneRequest) -> Run:
    """Search for better schedules of a model's heavy operators, then measure it with them as `collect` does.

    >>> import op_profiler
    >>> run = op_profiler.tune("mlp", trials=10, threads=[1], schedules="records", db="sqlite:///mlp.db")
    >>> run.studies.tuned[0].trials > 0
    True

    Args:
        model, inputs: as for `collect`.

    Returns:
        As `collect`; `studies` has what the search found, `base` the model with default schedules.

    Raises:
        OpProfilerError: the request cannot work, or the dataset cannot be used.
    """
    search.check()
    studied = dataclasses.replace(request, studies=dataclasses.replace(request.studies, tune=search))
    return _collected(studied, _named(request.build.model, model, inputs))


@_from_python
def predict(
    model: LiveModel | Sequence[LiveModel],
    inputs: object = None,
    *,
    threads: int | None = None,
    request: PredictRequest,
) -> NetworkPrediction | list[NetworkPrediction]:
    """Predict the latency of every operator of a model, and of the model, without measuring anything.

    >>> import op_profiler
    >>> op_profiler.predict("mlp", device="emeraldrapids").total_us > 0
    True
    >>> len(op_profiler.predict(["mlp", "resnet-18"], device="emeraldrapids"))
    2

    Args:
        model: as for `collect`; or a list of them, in which a module stands in a pair with its inputs: all are
            predicted in one call, as an architecture search does.
        inputs: as for `collect`.
        threads: that it runs with; None for 1, or for what the kernels of a GPU bring.

    Returns:
        Times in microseconds with intervals; for a list, one prediction a model.

    Raises:
        OpProfilerError: a model cannot be lowered, or no predictor answers.
    """
    from op_profiler.prediction.latency import answer
    from op_profiler.prediction.latency.network import predict_networks
    from op_profiler.report.status import Status

    many = isinstance(model, list)
    models = model if isinstance(model, list) else [(model, inputs)]
    request = dataclasses.replace(request, threads=() if threads is None else (threads,))
    requests = [dataclasses.replace(request, model=_named(request.model, one)) for one in models]
    networks = []
    with Status(quiet=not many, steps=len(requests)) as status:
        chosen = None
        for one in requests:
            one.check()
            chosen = chosen or answer.choose(one, _silent)
            status.step(f"lowering {one.model.name}")
            networks.append(answer.network_of(chosen, one, _silent)[0])
    if chosen is None:
        return []
    found = predict_networks(chosen.predictor, networks, threads=chosen.threads[0])
    return found if many else found[0]


@_from_python
def explain(
    model: LiveModel | Run,
    inputs: object = None,
    *,
    request: Annotated[
        ExplainRequest,
        Only("batch_size", "input_names", "input_shapes", "sequence_length", "check_outputs", "target", "threads"),
        Only("schedules", "top", "trials_from", "db"),
    ],
) -> ModelExplanation:
    """Tell why operators take as long as they do: what each loses to what, how sure that is, and what to try.

    It measures them here and reads their machine code.

    >>> import op_profiler
    >>> found = op_profiler.explain("mlp", top=1, threads=[1])
    >>> len(found.operators)
    1

    Args:
        model: as for `collect`; the run of a model; or the 16 hex digits of an operator of the dataset.
        inputs: as for `collect`.

    Returns:
        The operators that take most time, each with its losses in microseconds.

    Raises:
        OpProfilerError: the model or the machine stands in the way.
    """
    from op_profiler.analysis.explain.explain import explain as run

    if isinstance(model, Run):
        build = dataclasses.replace(request.build, model=model.request.build.model)
        request = dataclasses.replace(request, build=build, db=request.db or model.request.db)
    elif isinstance(model, str) and inputs is None:
        request = request.of(model)
    else:
        named = _named(request.build.model, model, inputs)
        request = dataclasses.replace(request, build=dataclasses.replace(request.build, model=named))
    request.check()
    return run(request, _silent)


@_from_python
def compare(*, request: CompareRequest) -> Comparison:
    """Compare two runs: what became faster or slower, whether that is real, and what only one of them has.

    >>> import op_profiler
    >>> before, after = (
    ...     op_profiler.collect("mlp", threads=[1], label=label, db="sqlite:///mlp.db") for label in ("before", "after")
    ... )
    >>> found = op_profiler.compare(before, after, rerun=True, seconds=2)
    >>> [(row.name, row.threads) for run, row in found.rows][:1]  # the whole model comes first
    [(None, 1)]

    What `collect` returned is a run, too.

    Args:

    Returns:
        Operators and whole models of both, with the ratios of their times.

    Raises:
        OpProfilerError: there are no such runs, or they cannot be compared.
    """
    from op_profiler.comparison.compare import compare_runs

    sides = (request.before, request.after)
    given = [one for one in sides if isinstance(one, Run)]
    if given:
        before, after = (one.model_key if isinstance(one, Run) else one for one in sides)
        request = dataclasses.replace(request, before=before, after=after, db=given[0].request.db)
    return compare_runs(request, _silent)


@_from_python
def sample(
    count: int | None = None,
    *,
    wanted: SampleRequest,
    request: SampledRequest,
) -> SampleReport:
    """Measure operators that no model brought along: a grid, random draws, or those of other models' shapes.

    A second call with the same arguments goes on where the first was interrupted.

    >>> import op_profiler
    >>> report = op_profiler.sample(10, kinds=["softmax"], rounds=3, threads=[1], db="sqlite:///sampled.db")
    >>> report.operators >= 10, report.errors
    (True, [])

    Args:
        count: operators to measure in all; whole batches are measured, so there may be a few more.

    Returns:
        How many batches and operators were measured, and what failed.

    Raises:
        OpProfilerError: the request cannot work, or the dataset cannot be used.
    """
    from op_profiler.collection.sampling import run
    from op_profiler.collection.supervisor import Collection
    from op_profiler.report.collection import Screen

    wanted = dataclasses.replace(wanted, count=count)
    wanted.check()
    request = sampling(request, wanted.rounds)
    with Collection(request.db) as collection:
        batches = wanted.drawn(request, _silent)
        return run.measure_batches(
            batches, request, collection, Screen(quiet=True), count=count, budget_seconds=wanted.budget_seconds
        )


@_from_python
def corun(
    *models: LiveModel,
    model: Annotated[ModelRequest, Only("importer", "batch_size", "sequence_length")],
    request: CorunRequest,
) -> CorunResult:
    """Run the operators of one model or several side by side on this processor: plan it, measure it beside one after
    the other, and compare the outputs. It needs a C compiler.

    >>> import op_profiler
    >>> result = op_profiler.corun("lstm", policy="greedy", rounds=5)
    >>> result.outputs_agree
    True
    >>> sorted(result.to_json())[-3:]
    ['stages', 'tried', 'tuned_stages']

    Args:
        models: each as for `collect`, a pair of a module and its inputs, or what `collect` returned.

    Returns:
        The plan, its time and that of sequential in microseconds, and whether the outputs agree.

    Raises:
        OpProfilerError: a model, a policy or a setting stands in the way; or a kernel fails, with its name.
    """
    from op_profiler.parallel.corun.run import corun_on_one_target

    request = dataclasses.replace(request, models=tuple(_named(model, one) for one in models))
    request.check()
    return corun_on_one_target(request, _silent)


@_from_python
def export(path: str | Path, *, request: ExportRequest) -> Exported:
    """Write the dataset as one flat table, one row a measurement; or what of it fits into a format of others.

    >>> import op_profiler
    >>> run = op_profiler.collect("mlp", threads=[1], db="sqlite:///mlp.db")
    >>> op_profiler.export("mlp.csv", where="threads = 1", db="sqlite:///mlp.db").rows > 0
    True

    Args:
        path: file to write, or the folder of several.

    Returns:
        How many rows were written, and what of them did not fit.

    Raises:
        OpProfilerError: the dataset cannot be read, or its rows cannot be written so.
    """
    return request.write(Path(path))


@_from_python
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
    """Return the best known schedules of a model's heavy operators; of one never tuned, those predicted to be the best.

    >>> import op_profiler
    >>> found = op_profiler.schedule("mlp", k=2, device="AMD EPYC")
    >>> len(found[0].suggestions) <= 2
    True

    Args:
        model: as for `collect`; the run of a model; or the 16 hex digits of an operator of the dataset.
        inputs: as for `collect`.
        threads: that it runs with; None for all usable cores.
        cache: that an operator meets: ``hot``, ``cold`` (its weights), or ``model`` (the records' decision).

    Returns:
        One answer an operator, its schedules with predicted and measured microseconds.

    Raises:
        OpProfilerError: there is no such model or operator, or it cannot be measured.
    """
    build = request.build
    counts = (max(build.threads) if threads is None else threads,)
    build = dataclasses.replace(build, model=_named(build.model, model, inputs), threads=counts, cache=cache)
    request = dataclasses.replace(request, build=build)
    request.check()
    query, _ = request.known(_silent)
    return request.answers(query, _silent)
