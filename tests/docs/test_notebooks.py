"""The notebooks run from the first cell to the last, and store such outputs without names of the machine's files."""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Runs a notebook in this Python; what it printed, by cell. The stored outputs must be of the same form."""
    pytest.importorskip("nbclient")
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "python"))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    monkeypatch.syspath_prepend(ROOT / "docs")
    from notebook_pages import executed

    def run(path: Path) -> list[str]:
        cells, stored = code_cells(executed(path, tmp_path)), code_cells(json.loads(path.read_text()))
        assert [_forms(cell) for cell in stored] == [_forms(cell) for cell in cells], "python docs/notebook_pages.py"
        return ["".join(_text(output) for output in cell["outputs"]) for cell in cells]

    return run


def code_cells(book: Any) -> list[Any]:
    return [cell for cell in book["cells"] if cell["cell_type"] == "code"]


def _forms(cell: Any) -> list[Any]:
    """Of each output of a cell: its kinds, and the heads of its table."""
    return [
        (one["output_type"], *sorted(one.get("data", {})), *re.findall(r"<th>([a-z_]+)</th>", _text(one, "text/html")))
        for one in cell["outputs"]
    ]


def _text(output: Any, kind: str = "text/plain") -> str:
    return "".join(output.get("text") or output.get("data", {}).get(kind, ""))


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
def test_a_page_shows_the_outputs_and_nothing_of_a_machine_is_stored(path: Path) -> None:
    page = path.with_suffix(".md").read_text()
    cells = code_cells(json.loads(path.read_text()))
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert len(outputs) >= 5 and all(cell["execution_count"] is None for cell in cells)
    assert page.count("</table>") == sum("text/html" in output.get("data", {}) for output in outputs) >= 2
    for output in outputs:
        cells = re.findall(r"<td>.*?</td>", _text(output, "text/html"))
        assert output.get("name") != "stderr"
        assert set(cells) <= set(re.findall(r"<td>.*?</td>", page)) if cells else _text(output) in page
    for private in (tempfile.gettempdir(), str(Path.home())):
        assert f"{private}/" not in path.read_text()
