"""A scheduler with a worker, for the tests that harm neither."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..hurry import hurried_path

sys.path.insert(0, str(Path(__file__).parent))

from processes import scheduler, worker


@pytest.fixture(autouse=True, scope="module")
def hurried() -> Iterator[None]:
    """No worker is asked how sure a time is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", hurried_path())
        yield


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A scheduler with a worker on this machine."""
    folder = tmp_path_factory.mktemp("shared")
    with scheduler(folder) as (address, _), worker(folder, address):
        yield address
