"""Runs `explain_against` in a child process, so that a crash of the compiler or of a kernel is reported as an error."""

from __future__ import annotations

import tempfile
from collections.abc import Callable

import msgspec

from op_profiler.analysis.explain.explanation import ModelExplanation
from op_profiler.analysis.explain.request import ExplainRequest
from op_profiler.child_processes import Child, carry_out, failure_of
from op_profiler.errors import MeasureError


def explain_in_child(request: ExplainRequest, announce: Callable[[str], None]) -> ModelExplanation:
    """Return the explanation that `explain_against` makes in a child process.

    Raises:
        OpProfilerError: for the same reasons as `explain_against`, or because the process died; the message then names
            its last step.
    """
    step = "starting"
    with tempfile.TemporaryFile("w+") as log, Child(__name__, request, log) as child:
        for event in child.events():
            if "error" in event:
                raise failure_of(event)
            if "result" in event:
                return msgspec.convert(event["result"], ModelExplanation)
            step = event["step"]
            announce(step)
        raise MeasureError(f"{request.build.model.name}: the process that explains it died ({child.end()}): {step}")


def main() -> int:
    """Entry point of the child process."""
    return carry_out(ExplainRequest, _explain)


def _explain(request: ExplainRequest, send: Callable[..., None]) -> None:
    from op_profiler.comparison.peers.baselines import explain_against  # the caller needs none of what it imports

    send(result=msgspec.to_builtins(explain_against(request, lambda text: send(step=text))))
