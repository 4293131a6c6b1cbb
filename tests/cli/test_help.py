"""The help of every command, option by option, is that of a committed snapshot.

python -m tests.cli.test_help        (writes the snapshot anew, after an option was changed on purpose)
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import typer
from typer.testing import CliRunner

from op_profiler.cli import application

SNAPSHOT = Path(__file__).with_name("help.json")
_WIDE = 4000  # columns, so that each option has one line


def _commands(command: Any, *above: str) -> Iterator[tuple[str, ...]]:
    yield above
    for name, one in getattr(command, "commands", {}).items():
        yield from _commands(one, *above, name)


COMMANDS = [" ".join(words) for words in _commands(typer.main.get_command(application()))]


def help_of(command: str) -> dict[str, list[str]]:
    """The lines of a help by panel, in alphabetical order: names, metavar, text, limits and default of an option; what
    stands outside of panels has no name. The command is built alone, as it is when a line names it."""
    with mock.patch("typer.rich_utils.MAX_WIDTH", _WIDE), mock.patch("typer.rich_utils.FORCE_TERMINAL", False):
        text = CliRunner().invoke(application(*command.split()[:1]), [*command.split(), "--help"]).output
    found: dict[str, list[str]] = {"": []}
    panel = ""
    for line in text.splitlines():
        if line.startswith("╭"):
            panel = line.strip("╭─╮ ")
        elif words := " ".join(line.strip("│╰╯─ ").split()):
            found.setdefault(panel, []).append(words)
        elif line.startswith("╰"):
            panel = ""
    return {panel: sorted(lines) for panel, lines in found.items()}


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_is_that_of_the_snapshot(command: str) -> None:
    assert help_of(command) == json.loads(SNAPSHOT.read_text(encoding="utf-8"))[command]


def test_the_snapshot_has_every_command_and_no_other() -> None:
    assert list(json.loads(SNAPSHOT.read_text(encoding="utf-8"))) == COMMANDS


if __name__ == "__main__":
    found = {command: help_of(command) for command in COMMANDS}
    SNAPSHOT.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
