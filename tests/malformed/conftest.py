"""A valid file of every kind that a command reads."""

from __future__ import annotations

import pytest

from .harness import Commands
from .valid import Model, write_models, write_tables


@pytest.fixture(scope="session")
def commands() -> Commands:
    return Commands()


@pytest.fixture(scope="session")
def tables(commands: Commands, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """By format, what can be imported; and a dataset that holds all of it, as ``sqlite``."""
    return write_tables(commands, tmp_path_factory.mktemp("tables"))


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A file of ``op-profiler calibrate --share``."""
    from op_profiler.dataset.formats.shared import write_shared

    from ..shared_calibration import measured, shared_of

    folder = tmp_path_factory.mktemp("shared")
    write_shared(shared_of(measured(folder), folder), folder / "shared.parquet")
    return (folder / "shared.parquet").read_bytes()


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Model]:
    """By kind, as far as the packages that read them are installed."""
    return write_models(tmp_path_factory.mktemp("models"))
