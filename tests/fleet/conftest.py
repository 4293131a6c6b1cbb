"""A scheduler with a worker, for the tests that harm neither."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from processes import scheduler, worker


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A scheduler with a worker on this machine."""
    folder = tmp_path_factory.mktemp("shared")
    with scheduler(folder) as (address, _), worker(folder, address):
        yield address
