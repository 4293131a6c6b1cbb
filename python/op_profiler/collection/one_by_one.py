"""Measures operators as separate models, for models that cannot be built or run as a whole."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from op_profiler.building.build import build_operator
from op_profiler.building.requested_inputs import random_inputs
from op_profiler.collection.counting import counting
from op_profiler.collection.request import CollectRequest
from op_profiler.collection.session import OperatorResult, Session
from op_profiler.errors import BoardLostError, MeasureError, ModelError
from op_profiler.measure.measurement import Measurement, ModelTiming, Settings
from op_profiler.measure.samples import Samples
from op_profiler.schedules.schedule import UNKNOWN, Schedule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from op_profiler.compilers.compiled_model import Occurrence
    from op_profiler.compilers.tvm_types import Target
    from op_profiler.operators.operator import Operator
    from op_profiler.targets.machine import Machine

_MECHANISM = "repeat, outside the model"


def measure_alone(
    request: CollectRequest, occurrence: Occurrence, target: Target, machine: Machine
) -> tuple[Schedule, list[OperatorResult]]:
    """Measure one operator at every thread count; return its schedule and the results, which may be failures.

    In isolation, the caches contain the data of the operator's previous call, even if the cache state ``model`` was
    requested; `cache_mechanism` of the settings records this. These short runs do not contribute to the machine's
    reference state.

    Raises:
        BoardLostError: the connection to the board was lost.
    """
    operator = occurrence.operator
    schedule = UNKNOWN
    try:
        model, built = build_operator(occurrence, target, request.build.usable_records())
        schedule = built.schedules[operator.key]
        graph = machine.load(built.compiled, random_inputs(list(model.inputs)))
        if len(graph.labels) != 1:
            raise ModelError(
                f"{operator.label([occurrence.layers])} in isolation compiles to {len(graph.labels)} kernels, not one"
            )
        session = Session(
            request,
            machine,
            graph,
            [operator],
            limits=dataclasses.replace(machine.limits, usual_rounds=30, usual_seconds=0.25, maximum_seconds=3.0),
            count=counting(request, machine, graph, [operator.key]),
            remembered=False,
        )
        session.check_kernels(lambda _: None)
        results = session.measure({n: Samples() for n in request.build.threads}, lambda *_: None)
    except BoardLostError:
        raise
    except (ModelError, MeasureError, ValueError) as error:
        return schedule, failed_operator(request, operator, str(error))
    found = [r for result in results for r in result.operators]
    if request.build.cache == "model":
        found = [
            dataclasses.replace(r, settings=dataclasses.replace(r.settings, cache_mechanism=_MECHANISM)) for r in found
        ]
    return schedule, found


def refused_threads(machine: Machine, counts: Sequence[int]) -> dict[int, str]:
    """Return the error messages for the thread counts that a machine cannot provide, by thread count."""
    refused = {}
    for threads in counts:
        try:
            machine.threads.use(threads)
        except BoardLostError:
            raise
        except MeasureError as error:
            refused[threads] = str(error)
    return refused


def failed_operator(request: CollectRequest, operator: Operator, reason: str) -> list[OperatorResult]:
    """Return failures of an operator for the given reason, one for each requested thread count."""
    failed = Measurement(error=reason)
    return [OperatorResult(operator, request.settings(n), failed) for n in request.build.threads]


def whole_model_failed(
    request: CollectRequest, threads: int, reason: str, occurrences: Sequence[Operator], stored: dict[str, Measurement]
) -> tuple[Settings, ModelTiming]:
    """Return settings and timing of a model that cannot run as a whole.

    The timing contains the error, and the sum of operators if all of them have times.

    Args:
        reason: why the model cannot run as a whole; empty if unknown.
        occurrences: operator of each call of the model.
        stored: measurements of the operators, by workload key.
    """
    times = [stored[o.key].median_us if o.key in stored else None for o in occurrences]
    missing = tuple(dict.fromkeys(o.key for o, t in zip(occurrences, times) if t is None))
    timing = ModelTiming(
        whole_model=Measurement(error=reason or "the model does not run as a whole"),
        before_us=None,
        after_us=None,
        sum_of_operators_us=None if missing else float(sum(t for t in times if t is not None)),
        unmeasured=missing,
    )
    return request.settings(threads), timing
