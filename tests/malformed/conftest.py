"""One zygote a process of the tests, and a valid file of every kind that a command reads."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from .harness import Commands
from .valid import Model, write_models, write_tables


@pytest.fixture(scope="session")
def commands(cache_folder: Path) -> Iterator[Commands]:
    environment = {
        "OP_PROFILER_CACHE": str(cache_folder),
        "OP_PROFILER_SCHEDULES": str(cache_folder / "schedules"),
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
        "COLUMNS": "4000",
        "NO_COLOR": "1",
        "TOPHUB_LOCATION": "NONE",
        "TVM_NUM_THREADS": str(len(os.sched_getaffinity(0))),
    }
    found = Commands(environment)
    yield found
    found.close()


@pytest.fixture(scope="session")
def tables(commands: Commands, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """By format, what can be imported; and a dataset that holds all of it, as ``sqlite``."""
    return write_tables(commands, tmp_path_factory.mktemp("tables"))


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Model]:
    """By kind, as far as the packages that read them are installed."""
    return write_models(tmp_path_factory.mktemp("models"))
