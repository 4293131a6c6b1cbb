"""Boards for the tests, and the collector as a user would run it on them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ..command_line import op_profiler
from ..hurry import hurried_path
from ..nursery import COMPILERS, STAND_INS

sys.path.insert(0, str(Path(__file__).parent))
import lab as lab_module  # noqa: E402


@pytest.fixture(scope="session")
def board_build(tvm: Any) -> Path:
    if lab_module.missing_tools():
        pytest.skip(f"no {', '.join(lab_module.missing_tools())} here; apt-get install {lab_module.PACKAGES}")
    return lab_module.built_board()


@pytest.fixture(scope="session")
def tracker(board_build: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[lab_module.Lab]:
    with pytest.MonkeyPatch.context() as patch:  # its process imports TVM, and the one that it starts does again
        patch.setenv("PYTHONPATH", hurried_path())
        patch.setenv(STAND_INS, COMPILERS[0])
        made = lab_module.Lab(board_build, tmp_path_factory.mktemp("lab"))
    yield made
    made.stop()


@pytest.fixture
def lab(tracker: lab_module.Lab) -> Iterator[lab_module.Lab]:
    """Without boards at first."""
    yield tracker
    tracker.clear()


NETWORK = """
import torch

def net():
    torch.manual_seed(0)
    body = [torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(8, 16, 3, stride=2), torch.nn.ReLU()]
    head = [torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(16, 10)]
    return torch.nn.Sequential(*body, *head).eval(), (torch.zeros(1, 3, 16, 16),)
"""


Collector = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def collect(tmp_path: Path) -> Collector:
    """Runs the collector as a user would; a small convolution network of the user's is ``small:net``."""
    (tmp_path / "small.py").write_text(NETWORK)

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return op_profiler("collect", *arguments, "--db", f"sqlite:///{tmp_path / 'boards.db'}", folder=tmp_path)

    return run
