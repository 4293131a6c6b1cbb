"""A request in a process of its own, for a process that must neither import TVM nor die of a kernel."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from typing import Any

import msgspec

from op_profiler.child_processes import end_with_parent, events_of, python_path
from op_profiler.errors import EXIT_ENVIRONMENT, OpProfilerError
from op_profiler.measure.turns import COMMAND, told_command
from op_profiler.parallel.corun.request import Announce, CorunRequest

_CHILD = "import sys; del sys.path[0]; from op_profiler.parallel.corun.child import main; main()"
_LOG_CHARACTERS = 400


class CorunAnswer(msgspec.Struct, frozen=True):
    """What came of a request.

    Attributes:
        result: `CorunResult.to_json`; None where it failed.
        error, error_code: why it did, and the exit code for it.
    """

    result: dict[str, Any] | None = None
    error: str | None = None
    error_code: int = 0


def corun_in_child(request: CorunRequest, announce: Announce) -> CorunAnswer:
    """`corun`; a process that dies is an answer with an error."""
    answer = None
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", _CHILD],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env={**os.environ, "PYTHONPATH": python_path(), COMMAND: told_command()},
        )
        try:
            assert process.stdin is not None and process.stdout is not None
            with contextlib.suppress(BrokenPipeError), process.stdin:  # it died before it read; the log says why
                process.stdin.write(msgspec.json.encode(request))
            for event in events_of(process.stdout):
                if "step" in event:
                    announce(event["step"])
                else:
                    answer = msgspec.convert(event, CorunAnswer)
        finally:
            process.kill()  # it has closed its output, or this process is to end
            process.wait()
        if answer is None:
            log.seek(0)
            reason = f"the process died: {log.read()[-_LOG_CHARACTERS:].strip()}"
            return CorunAnswer(error=reason, error_code=EXIT_ENVIRONMENT)
    return answer


def main() -> None:
    """The process: the request on standard input, a JSON object a line on standard output."""
    end_with_parent()
    events = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever TVM prints from C++ goes to the log

    def tell(event: dict[str, Any]) -> None:
        events.write(json.dumps(event) + "\n")
        events.flush()

    from op_profiler.parallel.corun.run import corun

    request = msgspec.json.decode(sys.stdin.buffer.read(), type=CorunRequest)
    try:
        answer = CorunAnswer(corun(request, lambda text: tell({"step": text})).to_json())
    except OpProfilerError as error:
        answer = CorunAnswer(error=str(error), error_code=error.exit_code)
    tell(msgspec.to_builtins(answer))
