"""The tables of real commands fit into 80, 100 and 120 columns, and nothing in them is cut."""

from __future__ import annotations

import contextlib
import re
import sqlite3
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from op_profiler.analysis.explain.explanation import ModelExplanation
from op_profiler.cli import application
from op_profiler.cores import usable_cores
from op_profiler.report import explanation, tables

from ..command_line import op_profiler

_DB = ("--db", "sqlite:///runs.db")
_THREADS = "1,2" if usable_cores() > 1 else "1"
_COLLECT = ("collect", "mlp", "--threads", _THREADS, "--schedules", "none", *_DB)
_WIDE = 400
_EDGES = tuple("┏┃┡│└")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs of mlp in one dataset, with times as of a large model, and its explanation."""
    folder = tmp_path_factory.mktemp("widths")
    for label in ("before", "after"):
        done = op_profiler(*_COLLECT, "--label", label, "--quiet", folder=folder)
        assert done.returncode == 0, done.stderr
    with contextlib.closing(sqlite3.connect(folder / "runs.db")) as connection, connection:
        larger = ", ".join(f"{name} = 4096 * {name}" for name in ("median_us", "ci_low_us", "ci_high_us"))
        connection.execute(f"UPDATE measurements SET {larger}")
        connection.execute(f"UPDATE model_timings SET {larger}, sum_of_operators_us = 4096 * sum_of_operators_us")
    done = op_profiler("explain", "mlp", "--trials-from", "none", "--threads", _THREADS, "--json", folder=folder)
    assert done.returncode == 0, done.stderr
    (folder / "explained.json").write_text(done.stdout)
    return folder


Printed = Callable[[str, int], str]


@pytest.fixture
def printed(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Printed:
    """What a command prints where lines have a number of characters."""
    commands = {
        "collect": (*_COLLECT, "--label", "before"),
        "dataset": ("dataset", *_DB),
        "compare": ("compare", "before", "after", *_DB),
    }
    monkeypatch.chdir(folder)

    def at(command: str, width: int) -> str:
        monkeypatch.setattr(tables, "_WITHOUT_TERMINAL", width)
        if command == "explain":
            found = msgspec.json.decode((folder / "explained.json").read_text(), type=ModelExplanation)
            explanation.show(found, tables=True)
            return capsys.readouterr().out
        done = CliRunner().invoke(application(), list(commands[command]))
        assert done.exit_code == 0, done.output
        return done.stdout

    return at


def lines_of_tables(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith(_EDGES)]


def words_in(text: str) -> set[str]:
    """The words and numbers in the rows of tables."""
    return {word for line in text.splitlines() if line.startswith("│") for word in line.split()}


@pytest.mark.parametrize("width", [80, 100, 120])
@pytest.mark.parametrize("command", ["collect", "dataset", "explain", "compare"])
def test_tables_fit_and_nothing_is_cut(printed: Printed, command: str, width: int) -> None:
    text = printed(command, width)
    lines = lines_of_tables(text)
    assert lines and max(map(len, lines)) <= width
    assert "…" not in "".join(lines)
    assert words_in(text) <= words_in(printed(command, _WIDE))


@pytest.mark.parametrize("width", [80, 100, 120])
def test_operators_of_a_collection_have_the_half_width_of_their_intervals(printed: Printed, width: int) -> None:
    """A half width that does not fit, next to long times of a noisy machine, is named below the table."""
    operators = printed("collect", width).partition("whole model beside")[0]
    rows = [[cell.strip() for cell in line.split("│")] for line in operators.splitlines() if line.startswith("│")]
    of_operators = [row for row in rows if re.fullmatch(r"[\d.]+%", row[1])]
    assert of_operators
    named = " ".join(operators.split()).partition("a wider terminal also shows:")[2].count("+-")
    for row in of_operators:
        shown = len([cell for cell in row[2:] if re.fullmatch(r"\d+\.\d%", cell)])
        assert shown > 0 and shown + named == len(_THREADS.split(","))
