"""A scheduler with a worker, for the tests that harm neither."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

import pytest

from ..hurry import hurried_path
from ..nursery import COMPILERS, STAND_INS, Forked

sys.path.insert(0, str(Path(__file__).parent))

import processes
from processes import scheduler, started, worker


def _forked(words: Sequence[str], out: IO[bytes], folder: Path, environment: dict[str, str]) -> processes.Process:
    if any(name.startswith("DASK_") for name in environment):  # Dask reads them when it is imported
        return started(words, out, folder, environment)
    main = "from op_profiler.cli import main; main()"
    with open(os.devnull, "rb") as nothing:
        files = {0: nothing.fileno(), 1: out.fileno(), 2: out.fileno()}
        return Forked(main, ["op-profiler", *words], files, folder=folder, environment=environment)


@pytest.fixture(autouse=True, scope="module")
def hurried() -> Iterator[None]:
    """No worker is asked how sure a time is, and processes are forked from one that has made their imports. They are
    started as users start them in `boards/test_fleet.py`, and where a test here takes `STAND_INS` away."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", hurried_path())
        patch.setenv(STAND_INS, COMPILERS[0])
        patch.setattr(processes, "started", _forked)
        yield


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A scheduler with a worker on this machine."""
    folder = tmp_path_factory.mktemp("shared")
    with scheduler(folder) as (address, _), worker(folder, address):
        yield address
