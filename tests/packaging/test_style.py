"""ruff and mypy have nothing to say about any Python of this repository, and what the house asks beyond them."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import platformdirs
import pytest

ROOT = Path(__file__).resolve().parents[2]
CHECKED = [
    "setup.py",
    *(name for name in ("python", "collector", "tests", "benchmarks", "docs") if any((ROOT / name).rglob("*.py"))),
]


MYPY = ["mypy", f"--cache-dir={platformdirs.user_cache_path('op_profiler_tests') / 'mypy'}"]
"""Most of what it reads are libraries: checkouts share what it knows of them."""


@pytest.mark.parametrize("tool", [["ruff", "check"], MYPY], ids=lambda tool: tool[0])
def test_clean(tool: list[str]) -> None:
    done = subprocess.run([sys.executable, "-m", *tool, *CHECKED], cwd=ROOT, text=True, capture_output=True)
    assert done.returncode == 0, done.stdout + done.stderr


LONGEST_FILE = 420
LONGEST_FUNCTION = 60


def test_files_and_functions_can_be_read_at_once() -> None:
    """Commands, which have the name of their module, are excepted: their options are their parameters."""
    long = []
    for path in (ROOT / "python").rglob("*.py"):
        text = path.read_text()
        name = ".".join(path.relative_to(ROOT / "python").with_suffix("").parts)
        if text.count("\n") > LONGEST_FILE:
            long.append(f"{name}: {text.count(chr(10))} lines")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef) and name != f"op_profiler.cli.{node.name}":
                lines = 1 + (node.end_lineno or node.lineno) - node.lineno
                if lines > LONGEST_FUNCTION:
                    long.append(f"{name}.{node.name}: {lines} lines")
    assert not long


def test_private_names_stay_in_their_module() -> None:
    private = [
        f"{path.relative_to(ROOT)} imports {name.name} of {node.module}"
        for path in (ROOT / "python").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("op_profiler")
        for name in node.names
        if name.name.startswith("_") or any(part.startswith("_") for part in str(node.module).split("."))
    ]
    assert not private
