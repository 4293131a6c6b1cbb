"""`explain_against`: an explanation with the time of the whole model in other runtimes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import msgspec

from op_profiler.analysis.explain.explain import explain
from op_profiler.analysis.explain.explanation import Baseline, ModelExplanation
from op_profiler.analysis.explain.request import ExplainRequest
from op_profiler.comparison.peers.measuring import compare_with_peers
from op_profiler.comparison.peers.request import PeersRequest

_FIELDS = tuple(field.name for field in msgspec.structs.fields(Baseline))


def explain_against(request: ExplainRequest, announce: Callable[[str], None]) -> ModelExplanation:
    """Run `explain`, then measure the same build alternately with `request.against`, at the largest thread count.

    Raises:
        OpProfilerError: a runtime is not installed, or the model or the machine cannot be used. Failures of a runtime
            are part of the result.
    """
    if not request.against:
        return explain(request, announce)
    build = dataclasses.replace(request.build, threads=(max(request.build.threads),))
    peers = PeersRequest(build=build, against=request.against)
    peers.check()
    found = explain(request, announce)
    beside = compare_with_peers(peers, announce, advise=False).at[0]
    loaded = ["others used the machine while runtimes were compared"] if beside.foreign_load else []
    return msgspec.structs.replace(
        found,
        baselines=[Baseline(**{name: getattr(one, name) for name in _FIELDS}) for one in beside.runtimes],
        notes=[*found.notes, *loaded],
    )
