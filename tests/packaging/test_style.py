"""ruff and mypy have nothing to say about any Python of this repository."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CHECKED = [
    "setup.py",
    *(name for name in ("python", "collector", "tests", "benchmarks", "docs") if any((ROOT / name).rglob("*.py"))),
]


@pytest.mark.parametrize("tool", [["ruff", "check"], ["mypy"]], ids=lambda tool: tool[0])
def test_clean(tool: list[str]) -> None:
    done = subprocess.run([sys.executable, "-m", *tool, *CHECKED], cwd=ROOT, text=True, capture_output=True)
    assert done.returncode == 0, done.stdout + done.stderr
