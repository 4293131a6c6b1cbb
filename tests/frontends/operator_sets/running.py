"""Running many cases: in processes of their own, so that a crash of TVM costs one case."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import queue
import select
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TextIO

from .case import Outcome, Verdict

_SECONDS = 180.0  # more than any operator takes, on a busy machine
_CASES_OF_A_PROCESS = 150  # TVM keeps what it has compiled


def serve(judge: Callable[[str], Verdict]) -> None:
    """Judge the cases whose names come in, a line each; the verdicts go out as lines of JSON."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what TVM prints is no verdict
    for line in sys.stdin:
        print(json.dumps(dataclasses.asdict(judge(json.loads(line)))), file=out, flush=True)


def judge_all(
    names: Sequence[str],
    command: Sequence[str],
    jobs: int,
    seconds: float = _SECONDS,
    cases_of_a_process: int = _CASES_OF_A_PROCESS,
) -> Iterator[tuple[str, Verdict]]:
    """The verdicts of cases by their names, in the order that they are found.

    Args:
        command: starts a process that calls `serve`.
        jobs: processes at once.
        seconds: after which a case counts as a crash.
        cases_of_a_process: after so many cases, a process is replaced by a new one.
    """

    def work() -> None:
        process: subprocess.Popen[str] | None = None
        count = 0
        with contextlib.suppress(queue.Empty):
            while name := left.get_nowait():
                if process is None or count == cases_of_a_process:
                    _end(process)
                    process, count = _start(command), 0
                verdict, count = _asked(process, name, seconds), count + 1
                if verdict.outcome is Outcome.CRASHES and process.poll() is not None:
                    process = None
                found.put((name, verdict))
        _end(process)

    left: queue.SimpleQueue[str] = queue.SimpleQueue()
    found: queue.SimpleQueue[tuple[str, Verdict]] = queue.SimpleQueue()
    for name in names:
        left.put(name)
    for _ in range(jobs):
        threading.Thread(target=work, daemon=True).start()
    for _ in names:
        yield found.get()


def _start(command: Sequence[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, bufsize=1
    )


def _asked(process: subprocess.Popen[str], name: str, seconds: float) -> Verdict:
    assert isinstance(process.stdin, TextIO) or process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(name) + "\n")
    process.stdin.flush()
    ready, _, _ = select.select([process.stdout], [], [], seconds)
    line = process.stdout.readline() if ready else ""
    if not line:
        if not ready:
            process.kill()
        code = process.wait()
        return Verdict(Outcome.CRASHES, f"the process ended with {code}" if ready else f"no end within {seconds:g} s")
    about = json.loads(line)
    return Verdict(Outcome(about["outcome"]), about["detail"])


def _end(process: subprocess.Popen[str] | None) -> None:
    if process is not None:
        process.kill()
        process.wait()
