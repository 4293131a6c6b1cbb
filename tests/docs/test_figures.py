"""Figures come from files that benchmarks write, and every benchmark has its place in the index."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
BENCHMARKS = ROOT / "benchmarks"
SCRIPTS = sorted(path for path in BENCHMARKS.glob("*.py") if not path.name.endswith("common.py"))
RESULTS = sorted((BENCHMARKS / "results").glob("*.json"))


@pytest.fixture
def common(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr(sys, "path", list(sys.path))
    spec = importlib.util.spec_from_file_location("benchmarks_common", BENCHMARKS / "common.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


def test_a_result_is_stored_with_where_it_is_from(common: ModuleType, tmp_path: Path) -> None:
    tables = {"models": [{"model": "mlp", "us": 6.0, "ratio": None}, {"model": "rnn", "us": 29.9, "ratio": 1.019}]}
    common.store("somewhere/speed.py", "fast", tables, whole=True, folder=tmp_path)
    found = json.loads((tmp_path / "speed.json").read_text())
    assert found["script"] == "speed" and found["headline"] == "fast" and found["tables"] == tables
    about = found["provenance"]
    assert set(about) == {"date", "machine", "processor", "cores", "tvm", "python", "commit"}
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", about["date"]) and about["cores"] >= 1 and about["tvm"]
    assert about["python"] == sys.version.split()[0]


def test_a_part_of_a_benchmark_replaces_no_result(common: ModuleType, tmp_path: Path) -> None:
    common.store("speed.py", "fast", {"models": [{"us": 6.0}]}, whole=True, folder=tmp_path)
    before = (tmp_path / "speed.json").read_text()
    common.store("speed.py", "faster", {"models": [{"us": 5.0}]}, whole=False, folder=tmp_path)
    assert (tmp_path / "speed.json").read_text() == before


def test_runs_of_parts_add_up(common: ModuleType, tmp_path: Path) -> None:
    """As on a GPU that is lent for minutes."""
    about = {"date": "2026-11-26", "machine": "a, driver 1", "processor": "GPU", "commit": "one,two (a part)"}
    rows = [{"model": "mlp", "batch": 1, "us": 6.0}, {"model": "mlp", "batch": 8, "us": 9.0}]
    common.store("speed.py", "fast", {"models": rows}, whole=True, folder=tmp_path, provenance=about)
    new = [{"model": "mlp", "batch": 8, "us": 8.0}, {"model": "rnn", "batch": 1, "us": 29.9}]
    found = common.with_earlier("speed.py", "models", new, ["model", "batch"], folder=tmp_path)
    assert found == [rows[0], *new]
    assert common.with_earlier("speed.py", "others", new, ["model", "batch"], folder=tmp_path) == new
    later = about | {"date": "2026-12-01", "machine": "b, driver 1", "commit": "two (a part),three"}
    assert common.about_all("speed.py", later, folder=tmp_path) == {
        "date": "2026-11-26, 2026-12-01",
        "machine": "a, driver 1, b",
        "processor": "GPU",
        "commit": "one, two (a part), three",
    }
    assert common.about_all("first.py", later, folder=tmp_path)["date"] == "2026-12-01"


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_every_benchmark_says_its_question_and_stores_its_result(script: Path) -> None:
    tree = ast.parse(script.read_text())
    assert (ast.get_docstring(tree) or "").splitlines()[0].strip()
    called = [node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    assert called.count("store") == 1
    assert f"`{script.name}`" in (BENCHMARKS / "README.md").read_text()


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_every_result_is_on_the_page_of_figures(path: Path) -> None:
    result = json.loads(path.read_text())
    assert result["script"] == path.stem and (BENCHMARKS / f"{path.stem}.py").exists()
    for records in result["tables"].values():
        assert records and all(record.keys() == records[0].keys() for record in records)
    text = (ROOT / "docs" / "figures.md").read_text()
    block = text.partition(f"<!-- results: {path.stem} -->")[2].partition("<!-- /results -->")[0]
    assert f"benchmarks/{path.stem}.py" in block
    rows = [line for line in block.splitlines() if line.startswith("| ")]
    assert len(rows) == sum(len(records) + 2 for records in result["tables"].values())
    assert str(result["provenance"]["date"]) in block and str(result["provenance"]["commit"] or "") in block


SCRIPT = """
import os
import sys
from pathlib import Path
sys.path.insert(0, {benchmarks!r})
import common

def measure(name):
    return {{"letters": len(name)}}

common.commit = lambda: os.environ["COMMIT"]
run = common.run_of(__file__, __doc__, measure, ("mlp", "lstm"))
rows = [{{"model": name, **found}} for name, found in run.found]
common.store(__file__, "counted", {{"models": rows}}, whole=run.whole, folder=Path({folder!r}))
"""


def test_a_run_of_all_models_is_stored_and_goes_on_from_what_was_kept_of_the_same_commit(tmp_path: Path) -> None:
    script, results, kept = tmp_path / "letters.py", tmp_path / "results", tmp_path / "kept"
    script.write_text(SCRIPT.format(benchmarks=str(BENCHMARKS), folder=str(results)))

    def run(commit: str, *words: str) -> str:
        command = [sys.executable, str(script), *words, "--keep", str(kept)]
        environment = {**os.environ, "COMMIT": commit}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=300).stdout

    def letters() -> list[tuple[str, int]]:
        rows = json.loads((results / "letters.json").read_text())["tables"]["models"]
        return [(row["model"], row["letters"]) for row in rows]

    assert "not stored" in run("one", "mlp") and not results.exists()
    kept.write_text(json.dumps(json.loads(kept.read_text()) | {"found": {"letters": 30}}) + "\n")
    run("one")
    assert letters() == [("mlp", 30), ("lstm", 4)]
    run("other")
    assert letters() == [("mlp", 3), ("lstm", 4)]
    kept.write_text(kept.read_text().replace("other", "other-dirty").replace(": 4", ": 40"))
    run("other-dirty")
    assert letters() == [("mlp", 3), ("lstm", 4)]
