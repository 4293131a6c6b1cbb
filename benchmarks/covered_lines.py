"""How much of the code do the tests run? Lines of each part of the package.

The script runs the tests that are not slow, folder by folder. Lines in processes that the tests start or fork count,
except in processes that are killed. The script takes about twice as long as the tests. It stores the lines by folder of
tests: an interrupted run resumes, and a folder that is named is run again.

    python benchmarks/covered_lines.py [--keep FOLDER] [FOLDER OF TESTS ...]
    python -m coverage report --data-file=build/covered_lines/all        (afterwards: every file)
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from common import ROOT, Records, provenance, store

PACKAGE = ROOT / "python" / "op_profiler"
TESTS = [path for path in sorted((ROOT / "tests").iterdir()) if path.is_dir() and any(path.rglob("test_*.py"))]
TESTS += sorted((ROOT / "tests").glob("test_*.py"))
_LOWEST = 12
_CONFIGURATION = f"""
[run]
source = {PACKAGE}
parallel = true
concurrency = thread, multiprocessing
patch = subprocess, _exit
sigterm = true
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tests", nargs="*", metavar="FOLDER", help="of tests/, to run again; default: those missing")
    parser.add_argument("--keep", type=Path, default=ROOT / "build" / "covered_lines", help="where the lines are kept")
    arguments = parser.parse_args()
    print(provenance())
    kept = arguments.keep.resolve()
    kept.mkdir(parents=True, exist_ok=True)
    (kept / "configuration").write_text(_CONFIGURATION)
    for path in TESTS:
        if path.name in arguments.tests or not (arguments.tests or (kept / path.name).exists()):
            run(path, kept)
    there = [kept / path.name for path in TESTS if (kept / path.name).exists()]
    _coverage(kept, "combine", "--keep", "--quiet", f"--data-file={kept / 'all'}", *map(str, there))
    _coverage(kept, "json", "--quiet", f"--data-file={kept / 'all'}", "-o", str(kept / "all.json"))
    files = json.loads((kept / "all.json").read_text())["files"]
    tables = {"parts": parts(files), "files that are run least": lowest(files)}
    for row in tables["parts"]:
        print(f"{row['part']:24} {row['lines']:6} lines {row['covered_percent']:6.1f} %")
    whole = tables["parts"][-1]["covered_percent"]
    store(__file__, f"the tests run {whole} % of the lines", tables, whole=len(there) == len(TESTS))


def run(tests: Path, kept: Path) -> None:
    """Run a folder of tests, or a file of them, and keep which lines were run."""
    partial = kept / f"{tests.name}.partial"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    ended = _coverage(kept, "run", f"--data-file={partial / tests.name}", "-m", "pytest", "-q", str(tests))
    print(f"{tests.name}: pytest ended with {ended}", flush=True)
    _coverage(kept, "combine", "--quiet", f"--data-file={kept / tests.name}", str(partial))
    shutil.rmtree(partial)


def parts(files: dict[str, dict[str, dict[str, float]]]) -> Records:
    """Lines of every folder of the package, and at the end of all."""
    lines: collections.Counter[str] = collections.Counter()
    covered: collections.Counter[str] = collections.Counter()
    for name, file in files.items():
        inside = (ROOT / name).relative_to(PACKAGE).parts
        for part in (inside[0] if len(inside) > 1 else "files at the top", "all"):
            lines[part] += int(file["summary"]["num_statements"])
            covered[part] += int(file["summary"]["covered_lines"])
    order = [*sorted(part for part in lines if part != "all"), "all"]
    return [
        {"part": part, "lines": lines[part], "covered_percent": _percent(covered[part], lines[part])} for part in order
    ]


def lowest(files: dict[str, dict[str, dict[str, float]]]) -> Records:
    """The files with the most lines that no test runs."""
    most = sorted(files, key=lambda name: -files[name]["summary"]["missing_lines"])[:_LOWEST]
    rows = []
    for name in most:
        told = files[name]["summary"]
        row = {"file": str((ROOT / name).relative_to(PACKAGE)), "lines": told["num_statements"]}
        covered = _percent(told["covered_lines"], told["num_statements"])
        rows.append(row | {"not_run": told["missing_lines"], "covered_percent": covered})
    return rows


def _percent(covered: float, lines: float) -> float:
    return round(100 * covered / lines, 1) if lines else 100.0


def _coverage(kept: Path, command: str, *words: str) -> int:
    line = [sys.executable, "-m", "coverage", command, f"--rcfile={kept / 'configuration'}", *words]
    return subprocess.run(
        line, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT / "python")}, check=False
    ).returncode


if __name__ == "__main__":
    main()
