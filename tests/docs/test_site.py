"""The documentation: pages that are made from the code are as the code is, and the site builds without a warning."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "docs" / "reference"
TUTORIALS = ROOT / "docs" / "tutorials"
TABLES = """() => [...document.querySelectorAll(".md-typeset__scrollwrap")].map((frame) => {
    const edge = Math.max(...[...frame.querySelectorAll("th, td")].map((cell) => cell.getBoundingClientRect().right));
    const hidden = Math.max(frame.scrollWidth - frame.clientWidth, edge - innerWidth);
    return hidden > 1 ? Math.round(hidden) : 0;
})"""


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_made_pages_are_as_the_code_is(generate: ModuleType) -> None:
    older = [str(path.relative_to(ROOT)) for path, text in generate.pages() if path.read_text() != text]
    assert older == [], "run: python docs/generate.py"


def test_a_figure_that_was_not_measured_yet_says_how(
    generate: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["figure_pages"], "RESULTS", tmp_path)
    told = sys.modules["figure_pages"]._result(ROOT / "benchmarks" / "additivity.py")
    assert "Not measured yet: `python benchmarks/additivity.py`" in told and "Goal: the distance from 1" in told


def test_every_command_and_option_has_its_place(generate: ModuleType) -> None:
    import typer

    from op_profiler.cli import application

    text = (REFERENCE / "commands.md").read_text()
    sections = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))
    commands = dict(generate.walk(typer.main.get_command(application()), "op-profiler"))
    assert set(sections) == set(commands) and len(commands) > 12
    for name, command in commands.items():
        for parameter in command.params:
            words = parameter.opts if parameter.opts[0].startswith("-") else [parameter.name.upper()]
            assert [word for word in words if f"`{word}`" not in sections[name]] == [], name
            assert parameter.help, f"{name} {words[0]} says nothing about itself"


def test_every_column_has_its_place() -> None:
    from op_profiler.dataset.flat import TABLES

    text = (REFERENCE / "columns.md").read_text()
    sections = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))
    for name, table in TABLES.items():
        assert [c.name for c in table.columns if f"| `{c.name}` |" not in sections[name]] == []


def test_every_name_has_its_place() -> None:
    from op_profiler.registry import registries

    text = (REFERENCE / "names.md").read_text()
    sections = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))
    for kind, registry in registries().items():
        assert [name for name in registry.built_in if f"| `{name}` |" not in sections[kind]] == []


def test_every_kind_of_sampled_operators_is_described() -> None:
    from op_profiler.collection.sampling import spaces

    text = (REFERENCE / "names.md").read_text()
    assert [name for name, what in spaces.described_names().items() if not what or f"| `{name}` |" not in text] == []


def test_every_public_name_has_its_place() -> None:
    import op_profiler

    text = (REFERENCE / "python.md").read_text()
    assert [name for name in op_profiler.__all__ if f"\n## {name}\n" not in text] == []


def test_every_variable_has_its_place() -> None:
    text = (REFERENCE / "environment.md").read_text()
    code = "".join(path.read_text() for path in (ROOT / "python").rglob("*.py"))
    internal = {
        "OP_PROFILER_COMMAND",
        "OP_PROFILER_TVM_BUILD",
        "OP_PROFILER_COMPILER",
    }  # what processes of ours tell each other
    named = set(re.findall(r"OP_PROFILER_[A-Z_]+", code)) - internal
    assert len(named) > 4 and [name for name in sorted(named) if f"`{name}`" not in text] == []


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site") / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    return folder


def test_the_site_builds_without_a_warning(site: Path) -> None:
    assert list(site.rglob("*.py*")) == list(site.rglob("__pycache__")) == []
    pages = [page.relative_to(ROOT / "docs").with_suffix("") for page in (ROOT / "docs").rglob("*.md")]
    built = {page.parent.relative_to(site) for page in site.rglob("index.html")}
    assert len(pages) > 20 and [page for page in pages if page.name != "index" and page not in built] == []


def test_no_table_is_clipped(site: Path) -> None:
    """At 1400 pixels each is whole, without scrolling aside."""
    driver = pytest.importorskip("playwright.sync_api").sync_playwright
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("there is no Chromium on this machine; Debian's package is called chromium")
    clipped, count = {}, 0
    with driver() as started:
        browser = started.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-dev-shm-usage"])
        context = browser.new_context(viewport={"width": 1400, "height": 900}, offline=True)
        page = context.new_page()
        for path in sorted(site.rglob("index.html")):
            if "<table" not in path.read_text():
                continue
            page.goto(path.as_uri())
            tables = page.evaluate(TABLES)
            count += len(tables)
            if any(tables):
                clipped[str(path.relative_to(site))] = tables
        browser.close()
    assert count > 100 and clipped == {}, "pixels that are out of sight, by table"


def test_the_page_about_ci_and_the_readme_name_the_measured_rate_of_false_alarms() -> None:
    result = json.loads((ROOT / "benchmarks" / "results" / "compare.json").read_text())
    rate = result["headline"].split("; ")[0].removeprefix("with `--rerun`, ").partition(" (")[0]
    assert re.match(r"\d+ of \d+ pairs of runs without a change raise a false alarm$", rate)
    for page in (ROOT / "README.md", TUTORIALS / "ci.md"):
        assert rate in page.read_text(), page
    assert "](ci.md)" in (TUTORIALS / "compare.md").read_text().partition('<a id="in-ci"></a>')[2], "the older address"


def test_tutorials_show_every_picture_of_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("playwright.sync_api")
    monkeypatch.syspath_prepend(ROOT / "docs")
    import screenshot

    shown = "".join(page.read_text() for page in TUTORIALS.glob("*.md"))
    pictures = {picture.stem: picture.stat().st_size for picture in screenshot.IMAGES.glob("*.png")}
    assert {"report", "explain", "compare"} <= set(pictures) <= set(screenshot.PICTURES)
    for name, size in pictures.items():
        assert size <= screenshot.MOST_BYTES and f"(../images/{name}.png)" in shown, name


def test_the_picture_has_every_folder(generate: ModuleType) -> None:
    text = (ROOT / "docs" / "architecture.svg").read_text()
    folders = [folder.parent.name for folder in (ROOT / "python" / "op_profiler").glob("*/__init__.py")]
    assert [name for name in folders if f">{name}/</text>" not in text] == []


def test_links_of_the_files_beside_the_code_lead_somewhere() -> None:
    """Those of the pages in docs/ are seen by mkdocs."""
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "benchmarks" / "README.md"):
        targets = re.findall(r"\]\(([^)#:]+)(?:#[\w-]+)?\)", page.read_text())
        assert [target for target in targets if not (page.parent / target).exists()] == [], page.name


def test_every_decision_has_its_headings_and_is_listed() -> None:
    index = (ROOT / "docs" / "design" / "index.md").read_text()
    records = [page for page in (ROOT / "docs" / "design").glob("*.md") if page.name != "index.md"]
    assert sorted(re.findall(r"^- \[[^\]]+\]\(([\w-]+\.md)\)", index, re.MULTILINE)) == sorted(r.name for r in records)
    for record in records:
        headings = re.findall(r"^## (.+)", record.read_text(), re.MULTILINE)
        assert headings == ["Context", "Decision", "Evidence", "Consequences"], record.name


def test_the_front_pages_lead_to_every_tutorial() -> None:
    tutorials = {page.name for page in TUTORIALS.glob("*.md")}
    for page in (ROOT / "README.md", ROOT / "docs" / "index.md"):
        assert tutorials - set(re.findall(r"tutorials/(\w+\.md)", page.read_text())) == set(), page


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 110


def test_the_trust_section_has_a_number_for_each_claim(generate: ModuleType) -> None:
    text = (ROOT / "README.md").read_text().partition("<!-- results: trust -->\n")[2].partition("<!-- /results")[0]
    bullets = text.strip().splitlines()
    assert len(bullets) == 5 == len(sys.modules["figure_pages"]._CLAIMS)
    for bullet in bullets:
        said = re.sub(r"\(`[^)]*\)+$|`[^`]*`|\]\([^)]*\)", "", bullet)
        assert re.search(r"\d", said), bullet


def test_what_supports_a_claim_takes_its_number_from_the_tables(generate: ModuleType) -> None:
    def short(name: str, tables: dict[str, Any]) -> str:
        return str(sys.modules["figure_pages"]._module(ROOT / f"benchmarks/{name}.py").claim(tables))

    sums = [{"sum_of": "op_profiler", "worst_percent": 1.9}, {"sum_of": "debug executor", "worst_percent": 101.7}]
    of_models = [{"model": name} for name in ("one", "one", "other")]
    told = short("additivity", {"distance_from_1": sums, "models": of_models})
    assert told.startswith("Over 2 models") and "at most 1.9 %" in told
    times = [
        {"model": "all", "of": of, "second_inside_percent": p} for of, p in (("steady", 97), ("steady", 96), ("x", 1))
    ]
    assert "at least 96 %" in short("repeatability", {"models": times})
    values = [("in turns", 9, 0), ("in turns", 9, 2), ("in turns", 0, 0), ("stored", 9, 1)]
    pairs = [
        {"model": "m", "runs": str(at), "method": method, "compared": compared, "false_alarms": alarms}
        for at, (method, compared, alarms) in enumerate(values)
    ]
    assert "1 of 2 pairs" in short("compare", {"equal": pairs})
    shares = [{"cases": 600, "differs": 2, "crashes": 1}, {"cases": 600, "differs": 0, "crashes": 0}]
    assert short("operators_agree", {"shares": shares}).startswith("3 of 1,200 test cases")
    wanted = {"of": "test", "schedules": "default", "known": "nothing"}
    rows = [{**wanted, "networks": n, "mean_error_percent": e} for n, e in ((1, 10.0), (3, 2.0))]
    rows += [{**rows[0], "of": "development", "networks": 99}, {**rows[0], "schedules": "rule", "networks": 99}]
    drawn = [{"origin": o, "of": "development", "networks": 2, "mean_error_percent": 9.0} for o in ("drawn", "zoos")]
    said = short("held_out_models", {"whole_networks": rows, "whole_networks_by_origin": drawn})
    assert "4.0 % on the test set (4 predictions)" in said
    assert "9.0 % on random networks of the development set (2 predictions)" in said


def test_the_output_in_the_readme_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "docs")
    import outputs

    table = "┏━┓\n┃h┃\n┡━┩\n│1│\n│2│\n│3│\n└─┘"
    assert outputs.shortened(f"{table}\nnote\n{table}", 2, tables=1) == "┏━┓\n┃h┃\n┡━┩\n│1│\n│2│\n  ...\n└─┘\n  ..."
    assert outputs.shortened(f"{table}\nnote") == f"{table}\nnote"
