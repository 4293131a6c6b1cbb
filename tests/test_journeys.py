"""The script of the journeys, in short: commands that measure nothing, and what it calls a fault."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from . import journeys

SHORT = ("sample --kinds list", "predict --device list")


@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
def test_commands_that_list_show_whole_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    assert all(any(command in commands for commands in journeys.JOURNEYS.values()) for command in SHORT)
    with journeys.terminal(tmp_path) as socket:
        for command, columns in zip(SHORT, journeys.COLUMNS):
            text = journeys.typed(str(socket), f"op-profiler {command}", columns)
            assert journeys.faults(text) == [] and len(text.splitlines()) > 5
            assert columns // 2 < max(map(len, text.splitlines())) <= columns


def test_failures_cut_numbers_and_rows_that_are_alike_are_faults() -> None:
    text = "│ conv2d │ 42… │\n│ dense │ 7 │\n│ dense │ 7 │\nexit code 1\n"
    ended, cut, alike = journeys.faults(text)
    assert "exit code 1" in ended and "42…" in cut and alike.startswith("2 rows are alike")
    assert journeys.faults("│ conv2d │ 42 │\nexit code 0\n") == []
