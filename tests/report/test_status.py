"""What is said while something takes long."""

from __future__ import annotations

import contextlib
import os
import pty
import subprocess
import sys

import pytest

from op_profiler.report.status import Status

_STEPS = """
from op_profiler.report.status import Status
with Status(quiet=False, steps=2) as status:
    status.step("lowering")
    status.step("fitting")
print("a result")
"""


def test_notes_where_stderr_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with Status(quiet=False) as status:
        status.step("fitting")
    assert capsys.readouterr().err == "note: fitting\n"


def test_nothing_when_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    with Status(quiet=True) as status:
        status.step("fitting")
    assert capsys.readouterr() == ("", "")


def test_a_terminal_shows_the_step_and_stdout_only_the_result() -> None:
    ours, theirs = pty.openpty()
    done = subprocess.run(
        [sys.executable, "-c", _STEPS],
        env={**os.environ, "TERM": "xterm"},
        stdout=subprocess.PIPE,
        stderr=theirs,
        text=True,
        check=True,
    )
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):  # EIO at the end
        while part := os.read(ours, 65536):
            shown += part
    os.close(ours)
    assert b"fitting" in shown
    assert b"note:" not in shown
    assert done.stdout == "a result\n"
