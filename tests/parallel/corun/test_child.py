"""A process of its own for a request: however it ends, there is an answer."""

from __future__ import annotations

import pytest

from op_profiler import child_processes
from op_profiler.errors import EXIT_ENVIRONMENT
from op_profiler.frontends.frontend import ModelRequest
from op_profiler.parallel.corun import child
from op_profiler.parallel.corun.request import CorunRequest

_LARGE = CorunRequest(models=(ModelRequest(source="local", name="x" * 200_000),))  # more than a pipe takes unread


@pytest.mark.parametrize(
    "dying",
    [
        "import sys; sys.exit('no memory')",
        "import os, sys; sys.stdin.read(); os.write(int(sys.argv[1]), b'{\"result\": {'); sys.exit('no memory')",
    ],
)
def test_a_process_that_dies_is_an_answer(dying: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_processes, "_program", lambda module: dying)
    told: list[str] = []
    answer = child.corun_in_child(_LARGE, told.append)
    assert answer.result is None and answer.error == "the process died: no memory"
    assert answer.error_code == EXIT_ENVIRONMENT and told == []
