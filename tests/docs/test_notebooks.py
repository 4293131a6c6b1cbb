"""The notebooks run from the first cell to the last, and hold nothing of the machine that they were written on."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Runs a notebook in this Python; what it printed, by cell."""
    import nbformat
    from nbclient import NotebookClient

    monkeypatch.setenv("PYTHONPATH", str(ROOT / "python"))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))

    def run(path: Path) -> list[str]:
        book = nbformat.read(path, as_version=4)
        NotebookClient(book, timeout=600, kernel_name="python3", resources={"metadata": {"path": tmp_path}}).execute()
        cells = [cell for cell in book.cells if cell.cell_type == "code"]
        return ["".join(_text(output) for output in cell.outputs) for cell in cells]

    return run


def _text(output: Any) -> str:
    return str(output.get("text") or output.get("data", {}).get("text/plain", ""))


def test_a_network_is_profiled_and_read(run: Any) -> None:
    printed = run(ROOT / "docs" / "notebooks" / "profile_a_network.ipynb")
    assert float(re.findall(r"takes (\S+) us", printed[0])[0]) > 0
    assert printed[1].count("nn.contrib_dense_pack") == 3 and printed[1].count("nn.softmax") == 1
    ratio = float(next(text for text in printed if text.startswith("sum of operators")).rpartition(":")[2])
    assert ratio > 0.3


def test_an_architecture_is_found_under_the_limit(run: Any) -> None:
    printed = run(ROOT / "docs" / "notebooks" / "architecture_search.ipynb")
    assert "81 networks" in printed[1] and "30 layers" in printed[2]
    assert "mflop" in printed[4] and "Empty DataFrame" not in printed[4]
    assert "tier" in printed[5]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_nothing_of_a_machine_is_stored(path: Path) -> None:
    for cell in json.loads(path.read_text())["cells"]:
        assert not cell.get("outputs") and cell.get("execution_count") is None
