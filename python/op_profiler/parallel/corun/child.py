"""Carries out co-run requests in a child process, for callers that must not import TVM or crash with a kernel."""

from __future__ import annotations

import tempfile
from typing import Any

import msgspec

from op_profiler.child_processes import Child, carry_out
from op_profiler.errors import EXIT_ENVIRONMENT
from op_profiler.parallel.corun.request import Announce, CorunRequest
from op_profiler.parallel.corun.run import corun

_LOG_CHARACTERS = 400


class CorunAnswer(msgspec.Struct, frozen=True):
    """Result of a co-run request in a child process.

    Attributes:
        result: `CorunResult.to_json` or `TargetsResult.to_json`; None after a failure.
        error: reason of the failure; None after a success.
        error_code: exit code for the failure; 0 after a success.
    """

    result: dict[str, Any] | None = None
    error: str | None = None
    error_code: int = 0


def corun_in_child(request: CorunRequest, announce: Announce) -> CorunAnswer:
    """Run `corun` in a child process; if the process dies or `corun` raises an error, the result contains the error."""
    with tempfile.TemporaryFile("w+") as log, Child(__name__, request, log) as child:
        for event in child.events():
            if "step" not in event:
                return CorunAnswer(event.get("result"), event.get("error"), event.get("code", 0))
            announce(event["step"])
        log.seek(0)
        reason = f"the process died: {log.read()[-_LOG_CHARACTERS:].strip()}"
        return CorunAnswer(error=reason, error_code=EXIT_ENVIRONMENT)


def main() -> int:
    """Read a request and carry it out; entry point of the child process, whose exit code it returns."""
    return carry_out(
        CorunRequest, lambda request, send: send(result=corun(request, lambda text: send(step=text)).to_json())
    )
