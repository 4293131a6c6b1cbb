"""Hooks of mkdocs."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
BENCHMARKS = ROOT / "benchmarks"
_AGE = re.compile(r"<!-- age: (\w+) ([\d, -]+?) -->")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Mark each figure as stale if commits have changed the code that it measures since."""
    return _AGE.sub(lambda found: _age(found[1], found[2]), markdown)


def _age(name: str, dates: str) -> str:
    """Return the mark of a figure; it is empty if no commit is later than the earliest of its dates, or if there is no
    history."""
    since = f"--since={min(dates.split(', '))}T23:59:59"
    count = _git("rev-list", "--count", since, "HEAD", "--", *measured_by(BENCHMARKS / f"{name}.py"))
    commits = "commit" if count == "1" else "commits"
    return f" (*stale: {count} later {commits} to the code that it measures*)" if count not in ("", "0") else ""


def measured_by(script: Path) -> list[str]:
    """Return the paths of the script, of the modules beside it that it imports, directly or through each other, and of
    the modules of this project that any of them imports, in functions too.

    `common.py` is left out: it starts scripts and stores results, and measures nothing.
    """
    found: set[Path] = set()
    waiting = [script]
    while waiting:
        path = waiting.pop()
        found.add(path)
        if path.parent == script.parent:
            waiting += _imports(path) - found
    return sorted(str(path.relative_to(ROOT)) for path in found)


def _imports(script: Path) -> set[Path]:
    """Return the files that a script of a benchmark imports: modules of this project, and modules beside it."""
    found: set[Path] = set()
    for node in ast.walk(ast.parse(script.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {script.with_name(f"{name.name}.py") for name in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("op_profiler."):
            base = ROOT / "python" / str(node.module).replace(".", "/")
            found |= {base.with_suffix(".py"), *(base / f"{name.name}.py" for name in node.names)}
        elif isinstance(node, ast.ImportFrom):
            found.add(script.with_name(f"{node.module}.py"))
    return {path for path in found if path.is_file() and path.name != "common.py"}


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""
