"""Tests here import `networks`. Models that Relay imports come of a process that has imported its TVM already."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from op_profiler.compilers.relax import relay_models

from ....nursery import Nursery

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def forked_importers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay_models, "subprocess", Nursery())
