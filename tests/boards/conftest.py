"""Boards for the tests, and the collector as a user would run it on them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import lab as lab_module  # noqa: E402


@pytest.fixture(scope="session")
def board_build(request: pytest.FixtureRequest, tvm: Any) -> Path:
    if lab_module.missing_tools():
        pytest.skip(f"no {', '.join(lab_module.missing_tools())} here; apt-get install {lab_module.PACKAGES}")
    out = request.config.cache.mkdir("board")
    lab_module.build_board(Path(out))
    return Path(out)


@pytest.fixture
def lab(board_build: Path, tmp_path: Path) -> Iterator[lab_module.Lab]:
    made = lab_module.Lab(board_build, tmp_path)
    yield made
    made.stop()


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
    """Runs the collector as a user would, on a small convolution network of the user's."""
    pytest.importorskip("torch")
    (tmp_path / "small.py").write_text(NETWORK)
    network = ("--modelsource", "file", "--modelname", "small:net")
    script = lab_module.HERE.parents[1] / "collector" / "op_performance_collector.py"

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        db = f"sqlite:///{tmp_path / 'boards.db'}"
        chosen = () if "--modelsource" in arguments or "--module" in arguments else network
        command = [sys.executable, str(script), *chosen, *arguments, "--db", db]
        return subprocess.run(command, capture_output=True, text=True, timeout=1800, cwd=tmp_path)

    return run
