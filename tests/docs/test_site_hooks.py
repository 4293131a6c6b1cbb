"""Figures that are older than the code which they measure are marked on the site."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def hooks() -> ModuleType:
    spec = importlib.util.spec_from_file_location("site_hooks", ROOT / "docs" / "site_hooks.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("count", "commits"), [("3", "3 later commits"), ("1", "1 later commit"), ("0", ""), ("", "")])
@pytest.mark.parametrize("dates", ["2026-11-28", "2026-11-28, 2026-11-29", "2026-11-29, 2026-11-28"])
def test_a_figure_is_stale_if_the_code_is_later_than_its_earliest_date(
    dates: str, count: str, commits: str, hooks: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, ...]] = []

    def git(*words: str) -> str:
        asked.append(words)
        return count

    monkeypatch.setattr(hooks, "_git", git)
    text = hooks.on_page_markdown(f"{dates}<!-- age: compare {dates} -->, a processor")
    mark = f" (*stale: {commits} to the code that it measures*)" if commits else ""
    assert text == f"{dates}{mark}, a processor"
    assert "--since=2026-11-28T23:59:59" in asked[0] and "benchmarks/compare.py" in asked[0]


def test_every_mark_of_the_page_of_figures_is_read(hooks: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hooks, "_git", lambda *_: "7")
    page = (ROOT / "docs" / "figures.md").read_text()
    marks = re.findall(r"<!-- age: .*? -->", page)
    text = hooks.on_page_markdown(page)
    assert len(marks) > 40 and text.count("*stale: 7 later commits") == len(marks) and "<!-- age:" not in text


def test_imports_are_followed_through_the_modules_beside_a_script(
    hooks: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {
        "benchmarks/speed.py": "from common import store\nfrom near_common import f\nimport other_common\n",
        "benchmarks/near_common.py": "from far_common import g\n",
        "benchmarks/far_common.py": "import near_common\n\ndef g():\n    from op_profiler.measure import rounds\n",
        "benchmarks/other_common.py": "from op_profiler.errors import UsageError\nimport json\n",
        "benchmarks/common.py": "from op_profiler.files import atomic_file\n",
        "benchmarks/unrelated.py": "",
        "python/op_profiler/errors.py": "from op_profiler.cores import usable_cores\n",
        "python/op_profiler/measure/rounds.py": "",
        "python/op_profiler/files.py": "",
        "python/op_profiler/cores.py": "",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(hooks, "ROOT", tmp_path)
    assert hooks.measured_by(tmp_path / "benchmarks" / "speed.py") == [
        *("benchmarks/far_common.py", "benchmarks/near_common.py", "benchmarks/other_common.py"),
        *("benchmarks/speed.py", "python/op_profiler/errors.py", "python/op_profiler/measure/rounds.py"),
    ]
