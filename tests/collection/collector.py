"""The collector as a user calls it, what it wrote, and how it is killed."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil

from ..command_line import op_profiler

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "collector" / "op_performance_collector.py"

_PATIENCE_SECONDS = 600.0
_ENDLESS_ROUNDS = (
    "from op_profiler.measure.rounds import Rounds; Rounds._has_converged = Rounds._at_limit = lambda *_: False"
)


def environment(**changes: str) -> dict[str, str]:
    """This process's, with the package on the path."""
    return {**os.environ, "PYTHONPATH": str(ROOT / "python"), **changes}


def run(
    folder: Path, *arguments: str, libraries: Sequence[str] = (), in_workers: str = "", **changes: str
) -> subprocess.CompletedProcess[str]:
    """One ``op-profiler collect`` in a folder, with changes to the environment; the rest is as for `op_profiler`."""
    return op_profiler(
        "collect", *arguments, folder=folder, environment=changes, libraries=libraries, in_workers=in_workers
    )


def summary(folder: Path) -> list[dict[str, Any]]:
    """Of ``--summary-json summary.json``."""
    entries: list[dict[str, Any]] = json.loads((folder / "summary.json").read_text())
    return entries


def rows(folder: Path, query: str) -> list[tuple[Any, ...]]:
    """What the dataset answers; raises OperationalError where it, or a table, is not there yet."""
    database = f"file:{folder}/results/op_profiler.db?mode=rw"
    with closing(sqlite3.connect(database, uri=True)) as connection, connection:
        return connection.execute(query).fetchall()


def stored(folder: Path, query: str) -> list[tuple[Any, ...]]:
    """The same of a run that has just begun: nothing as long as there are no tables."""
    try:
        return rows(folder, query)
    except sqlite3.OperationalError:
        return []


def killed(
    folder: Path,
    *arguments: str,
    when: Callable[[], object],
    endless_rounds: bool = False,
    changes: Mapping[str, str] | None = None,
) -> None:
    """Start a command, kill it when something holds, and wait until all its processes have ended.

    Args:
        endless_rounds: nothing settles, so that rounds go on until the kill.
        changes: to the environment.
    """
    path = in_workers_first(folder / "endless", _ENDLESS_ROUNDS) if endless_rounds else {}
    process = subprocess.Popen(
        [sys.executable, str(SCRIPT), *arguments],
        cwd=folder,
        env=environment(**(changes or {}), **path),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    workers: list[psutil.Process] = []
    try:
        _wait_for(lambda: when() or process.poll() is not None)
        assert process.poll() is None, "the run ended before it could be killed"
        workers = psutil.Process(process.pid).children(recursive=True)
    finally:
        process.kill()
        process.wait()
    assert workers
    _wait_for(lambda: all(map(_has_ended, workers)))


def in_workers_first(folder: Path, statement: str) -> dict[str, str]:
    """A change to the environment of a command that starts Python: its worker processes run a line first."""
    folder.mkdir(parents=True, exist_ok=True)
    condition = 'if "op_profiler.collection.worker" in " ".join(sys.orig_argv)'
    (folder / "sitecustomize.py").write_text(f"import sys\n{condition}:\n    {statement}\n")
    return {"PYTHONPATH": f"{folder}{os.pathsep}{ROOT / 'python'}"}


def _wait_for(condition: Callable[[], object]) -> None:
    until = time.monotonic() + _PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < until, "it does not come to pass"
        time.sleep(0.02)


def _has_ended(process: psutil.Process) -> bool:
    """Also where nobody asks for its exit code any more, as in containers without an init."""
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True
