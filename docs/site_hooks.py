"""Hooks of mkdocs."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
_AGE = re.compile(r"<!-- age: (\w+) ([\d-]+) -->")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Say of each figure how many commits have changed the code that it measures since."""
    return _AGE.sub(lambda found: _age(found[1], found[2]), markdown)


def _age(name: str, date: str) -> str:
    """Empty if there is none, or no history."""
    since = f"--since={date}T23:59:59"
    count = _git("rev-list", "--count", since, "HEAD", "--", *measured_by(ROOT / "benchmarks" / f"{name}.py"))
    return f" (*stale: {count} later commits to the code that it measures*)" if count not in ("", "0") else ""


def measured_by(script: Path) -> list[str]:
    """Paths of the script and of the modules of this project that it imports, in functions too."""
    found = {str(script.relative_to(ROOT))}
    for node in ast.walk(ast.parse(script.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("op_profiler."):
            base = ROOT / "python" / str(node.module).replace(".", "/")
            names = [base / f"{name.name}.py" for name in node.names] + [base.with_suffix(".py")]
            found |= {str(path.relative_to(ROOT)) for path in names if path.is_file()}
    return sorted(found)


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""
