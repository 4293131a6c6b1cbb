"""What is said while something takes long."""

from __future__ import annotations

import contextlib
import os
import pty
import re
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


def test_notes_say_how_many_steps_and_how_much_time_are_left(capsys: pytest.CaptureFixture[str]) -> None:
    with Status(quiet=False, steps=3) as status:
        for name in ("first", "second"):
            status.step(name)
    first, second = capsys.readouterr().err.splitlines()
    assert first == "note: first (step 1 of 3)"
    assert re.fullmatch(r"note: second \(step 2 of 3, about \d+ s left\)", second)


def on_a_terminal(code: str, columns: int = 80) -> tuple[str, str]:
    """What code shows on a terminal, without its colours, and what it writes to a file."""
    ours, theirs = pty.openpty()
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "TERM": "xterm", "COLUMNS": str(columns)},
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
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.decode()), done.stdout


def test_a_terminal_shows_the_step_and_stdout_only_the_result() -> None:
    shown, result = on_a_terminal(_STEPS)
    assert "fitting" in shown and "note:" not in shown
    assert result == "a result\n"


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_where_there_is_no_room_the_step_is_cut_and_no_time(columns: int) -> None:
    long = "all that is done at the moment, of a network with [brackets] and a name that fills a line"
    shown, _ = on_a_terminal(_STEPS.replace("fitting", long), columns)
    line = [one for one in re.split(r"[\r\n]+", shown) if "50%" in one][-1]
    assert len(line) <= columns and re.search(r"50% elapsed \d:\d\d:\d\d left [\d-]:[\d-]{2}:[\d-]{2}$", line.rstrip())
    assert ("all that" in line) and ("\u2026" in line or long in line)
