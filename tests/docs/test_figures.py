"""Figures, in tables and in sentences, come from files that benchmarks write; every benchmark has its place in the
index."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import jinja2
import pytest

ROOT = Path(__file__).resolve().parents[2]
BENCHMARKS = ROOT / "benchmarks"
SCRIPTS = sorted(path for path in BENCHMARKS.glob("*.py") if not path.name.endswith("common.py"))
RESULTS = sorted((BENCHMARKS / "results").glob("*.json"))


PAGE = ROOT / "docs" / "figures.md.in"
NO_FIGURES = (
    r"family \d+( model \d+)?|model \d+",  # processors
    r"torch 2\.13|opsets 7 to 22",
    r"(within|above|over) \d+ (%|us)|90 % (intervals|quantile)",  # what columns count
    r"batch 1|1-D",
)
"""Numerals in the sentences of the page that are names, versions, or part of what a column means."""
WORDS = (
    *("three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
    *(r"\w+teen", r"(?:twen|thir|for|fif|six|seven|eigh|nine)ty(?:-\w+)?", "hundred", "thousand", "million"),
)


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], ModuleType]:
    """Loads a file that is in no package."""
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])

    def module(path: Path) -> ModuleType:
        spec = importlib.util.spec_from_file_location(f"no_package_{path.stem}", path)
        assert spec is not None and spec.loader is not None
        loaded = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, spec.name, loaded)
        spec.loader.exec_module(loaded)
        return loaded

    return module


@pytest.fixture
def common(module: Callable[[Path], ModuleType]) -> ModuleType:
    return module(BENCHMARKS / "common.py")


@pytest.fixture
def prose(module: Callable[[Path], ModuleType]) -> ModuleType:
    return module(ROOT / "docs" / "prose.py")


def goal_of(script: Path) -> str | None:
    """The goal in the docstring of a script; None if there is none, or if the goal is that there is none."""
    text = ast.get_docstring(ast.parse(script.read_text())) or ""
    found = re.search(r"^Goals?: (.+?)(?=\n\n|\Z)", text, re.MULTILINE | re.DOTALL)
    return None if found is None or found[1].startswith("none;") else found[1]


def numerals(source: str) -> list[str]:
    """Numbers in the sentences of a page that no placeholder fills, with the words around them."""
    no_sentences = r"\{\{.*?\}\}|\{%.*?%\}|`[^`]*`|\]\([^)]*\)|<!--.*?-->|^#.*?$"  # headings are questions
    text = " ".join(re.sub(no_sentences, "…", source, flags=re.DOTALL | re.MULTILINE).split())
    for expression in NO_FIGURES:
        text = re.sub(rf"\b({expression})(?!\w)", "…", text)
    number = rf"(?<![\w.-])\d[\d.,]*(?:-\w+)?(?!\w)|\b(?:{'|'.join(WORDS)})\b"
    found = re.finditer(number, text, re.IGNORECASE)
    return [text[max(0, one.start() - 30) : one.end() + 30] for one in found]


def test_every_number_in_a_sentence_of_the_figures_is_filled_from_a_result() -> None:
    assert numerals(PAGE.read_text()) == [], "take it from a result with a placeholder: see docs/prose.py"


def test_a_number_that_no_result_has_is_found() -> None:
    found = numerals(
        "resnet-18 on H100, family 6 model 167: `--runs 3` {{ a.us }} us, 8 % within 10\n% of twelve; a 64-trial run"
    )
    assert len(found) == 3 and "8 %" in found[0] and "twelve" in found[1] and "64-trial" in found[2]


def test_a_sentence_gets_its_numbers_from_results(prose: ModuleType, tmp_path: Path) -> None:
    rows = [
        {"model": "mlp", "threads": 1, "us": 6.0, "off": None},
        {"model": "rnn", "threads": 1, "us": 1029.9, "off": 2},
    ]
    file = tmp_path / "speed.json"
    file.write_text(json.dumps({"headline": "rnn is slow", "tables": {"models": rows}}))

    def filled(expression: str) -> str:
        return str(prose.with_numbers(f"{{{{ {expression} }}}}", [file]))

    assert filled("speed.headline") == "Rnn is slow."
    assert filled("speed.models.span('us')") == "6.0 to 1,029.9"
    assert filled("speed.models.span('off')") == filled("speed.models.one('off')") == "2"
    assert filled("speed.models.where(model='rnn', threads=[1, 2]).one('us')") == "1,029.9"
    assert filled("speed.models.of('model') | length") == "2"
    for wrong in (
        *("speed.model", "sped.headline", "speed.models.where(model='gru').one('us')"),
        *("speed.models.one('us')", "speed.models.span('ms')", "speed.models.where(model='mlp').span('off')"),
    ):
        with pytest.raises((jinja2.UndefinedError, LookupError)):
            filled(wrong)


def test_a_result_is_stored_with_where_it_is_from(common: ModuleType, tmp_path: Path) -> None:
    tables = {"models": [{"model": "mlp", "us": 6.0, "ratio": None}, {"model": "rnn", "us": 29.9, "ratio": 1.019}]}
    common.store("somewhere/speed.py", "fast", tables, whole=True, folder=tmp_path)
    found = json.loads((tmp_path / "speed.json").read_text())
    assert found["script"] == "speed" and found["headline"] == "fast" and found["tables"] == tables
    about = found["provenance"]
    assert set(about) == {"date", "machine", "processor", "cores", "tvm", "python", "commit"}
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", about["date"]) and about["cores"] >= 1 and about["tvm"]
    assert about["python"] == sys.version.split()[0]


def test_a_result_names_the_datasets_that_it_is_of(common: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "runs.db").write_bytes(b"rows")
    inputs = [f"sqlite:///{tmp_path / 'runs.db'}", "postgresql://me:secret@host/runs"]
    common.store("speed.py", "fast", {"models": [{"us": 6.0}]}, whole=True, folder=tmp_path, inputs=inputs)
    told = json.loads((tmp_path / "speed.json").read_text())["provenance"]["inputs"]
    assert told.startswith("runs.db (sha256 ") and "host/runs" in told and "secret" not in told


def test_a_library_keeps_its_rows_where_another_is_evaluated(
    module: Callable[[Path], ModuleType], tmp_path: Path
) -> None:
    stored = module(BENCHMARKS / "library_splits.py").stored
    for name, percent in (("fp32.txt", 2.0), ("fp16.txt", 3.0), ("fp16.txt", 4.0)):
        library = tmp_path / name
        library.write_text(name)
        rows = [{"held_out": split, "default_percent": percent} for split in ("batch 64", "a random fifth")]
        stored(library, {"rows": 10}, rows, folder=tmp_path)
    result = json.loads((tmp_path / "library_splits.json").read_text())
    assert [row["library"] for row in result["tables"]["library"]] == ["fp32.txt", "fp16.txt"]
    assert len({row["sha256"] for row in result["tables"]["library"]}) == 2
    assert [row["default_percent"] for row in result["tables"]["mape"]] == [2.0, 2.0, 4.0, 4.0]
    assert result["headline"].endswith("fp32.txt: 2.0 to 2.0 % on 2 splits; fp16.txt: 4.0 to 4.0 % on 2 splits")


def test_scores_that_are_kept_are_those_of_their_library(
    module: Callable[[Path], ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from op_profiler.prediction.library import scoring

    evaluated: list[float] = []

    def evaluate(table: Any, split: str, name: str) -> scoring.Score:
        evaluated.append(float(table.latency_us[0]))
        return scoring.Score(split, name, 4, 1, 0.1, 0.1, 0.1, 0.5, 0.0, None, 0, 1.0)

    monkeypatch.setattr(scoring, "evaluate", evaluate)
    benchmark = module(BENCHMARKS / "library_splits.py")
    for milliseconds in (2, 2, 3):
        library = tmp_path / f"{milliseconds}.txt"
        library.write_text(f"{{Regular,128,3,480,480,192,7,2,1}} {milliseconds}\n")
        words = [str(library), "--keep", str(tmp_path / "kept"), "--predictor", "default"]
        monkeypatch.setattr(sys, "argv", ["library_splits.py", *words])
        benchmark.main()
    assert len(set(evaluated)) == 2 and len(evaluated) == 2 * evaluated.count(evaluated[0])


def test_a_part_of_a_benchmark_replaces_no_result(common: ModuleType, tmp_path: Path) -> None:
    common.store("speed.py", "fast", {"models": [{"us": 6.0}]}, whole=True, folder=tmp_path)
    before = (tmp_path / "speed.json").read_text()
    common.store("speed.py", "faster", {"models": [{"us": 5.0}]}, whole=False, folder=tmp_path)
    assert (tmp_path / "speed.json").read_text() == before


def test_a_benchmark_whose_plans_compute_something_else_fails(common: ModuleType, tmp_path: Path) -> None:
    rows = [{"model": "mlp", "outputs": common.outputs_verdict(equal=False, agree=agree)} for agree in (True, False)]
    common.store("speed.py", "fast", {"plans": rows[:1]}, whole=True, folder=tmp_path)
    with pytest.raises(SystemExit, match="outputs are wrong.*mlp"):
        common.store("speed.py", "fast", {"plans": rows}, whole=True, folder=tmp_path)
    assert [row["outputs"] for row in json.loads((tmp_path / "speed.json").read_text())["tables"]["plans"]] == [
        "agree",
        "WRONG",
    ]


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


@pytest.mark.parametrize(
    ("equal", "agree", "told"), [(True, True, "equal"), (False, True, "agree"), (False, False, "WRONG")]
)
def test_a_plan_on_streams_names_its_merged_operators_and_judges_its_outputs(
    equal: bool, agree: bool, told: str, module: Callable[[Path], ModuleType], tmp_path: Path
) -> None:
    result = {
        **{"policy": "nash", "compared_policy": "nash, conv2d merged", "sequential_us": 9.0, "plan_us": 8.0},
        **{"speedup": 1.125, "speedup_interval": [1.1, 1.2], "outputs_equal": equal, "outputs_agree": agree},
        "tried": [{"policy": "nash", "measured_us": 8.5}, {"policy": "nash, conv2d merged", "measured_us": 8.0}],
    }
    file = tmp_path / "inception_v3-8.json"
    file.write_text(json.dumps(result))
    row = module(BENCHMARKS / "gpu_streams.py").row_of(file)
    assert row["policy"] == "nash, conv2d merged" and row["nash_plan_us"] == 8.5 and row["outputs"] == told


def test_ratios_of_a_gpu_are_of_one_method(module: Callable[[Path], ModuleType], tmp_path: Path) -> None:
    """A dataset has rows of several versions; those whose launches were scaled to the whole are left out."""
    from op_profiler.measure.measurement import LAUNCH_GAP_METHOD

    gpu = module(BENCHMARKS / "gpu.py")
    details = {"launch_gap_us": 40.0, "ratio_per_round": 0.9}
    of_this_version = details | {"launch_gap_method": LAUNCH_GAP_METHOD}
    with sqlite3.connect(tmp_path / "gpu.db") as connection:
        connection.execute("CREATE TABLE models (key, name, batch_size, precision, source)")
        timings = "model_key, complete, median_us, sum_of_operators_us, energy_mj, foreign_load, details, measured_at"
        connection.execute(f"CREATE TABLE model_timings ({timings})")
        for name, found in (("mlp", details), ("rnn", of_this_version)):
            connection.execute("INSERT INTO models VALUES (?, ?, 1, 'float32', 'local')", (name, name))
            row = (name, True, 100.0, 50.0, None, False, json.dumps(found), "2026-11-27")
            connection.execute("INSERT INTO model_timings VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
    assert [(row["model"], row["ratio"]) for row in gpu.additivity(tmp_path / "gpu.db")] == [("rnn", 0.9)]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_every_benchmark_says_its_question_and_stores_its_result(script: Path) -> None:
    tree = ast.parse(script.read_text())
    assert (ast.get_docstring(tree) or "").splitlines()[0].strip()
    called = [node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    assert called.count("store") == 1
    assert f"`{script.name}`" in (BENCHMARKS / "README.md").read_text()


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_every_goal_is_compared_with_the_stored_result(module: Callable[[Path], ModuleType], script: Path) -> None:
    functions = [node.name for node in ast.parse(script.read_text()).body if isinstance(node, ast.FunctionDef)]
    assert functions.count("reached") == (goal_of(script) is not None)
    if goal_of(script) is None:
        return
    reached = module(script).reached
    assert reached({}) is None, "no table, so nothing is known"
    result = BENCHMARKS / "results" / f"{script.stem}.json"
    if result.exists():
        assert reached(json.loads(result.read_text())["tables"]) in (True, False, None)


def test_the_parts_of_a_goal_are_all_reached_or_it_is_not(common: ModuleType) -> None:
    every, at_most, at_least = common.every, common.at_most, common.at_least
    assert every([True, True]) is True and every([True, None]) is None and every([]) is None
    assert every([None, False, True]) is False, "a part that is missed decides, whatever is unknown"
    assert at_most(2.0, 2) is True and at_most(2.1, 2) is False and at_most(None, 2) is None
    assert at_least(2.0, 2) is True and at_least(1.9, 2) is False and at_least(None, 2) is None


def fleet_overhead(longer: float = 5.0, memory: int = 105) -> dict[str, list[dict[str, Any]]]:
    tasks = {"memory_after_a_tenth_mib": 100, "memory_at_the_end_mib": memory}
    return {"models": [{"longer_percent": longer}], "tasks": [tasks]}


def corun(speedup: float = 1.0, closed: float = 50.0, limit_over_it: float = 0.96) -> dict[str, list[dict[str, Any]]]:
    pairs = [
        *("resnet-18+mobilenet", "transformers:bert+resnet-18", "resnet-18+mobilenet+resnet-18+mobilenet"),
        "transformers:bert+resnet-18+transformers:bert+resnet-18",
    ]
    row = {"auto": True, "speedup": speedup, "limit_over_it": limit_over_it}
    slow = {"models": pairs[0], "auto": False, "speedup": 0.5, "limit_over_it": 0.5}
    return {
        "plans": [{"models": pair, **row} for pair in pairs] + [slow],
        "branching_models": [{"gap_closed_percent": closed}],
    }


def held_out_models(
    error: float = 5.0, held: int = 9, networks: int = 10, operators: float = 7.0, of: str = "test"
) -> dict[str, list[dict[str, Any]]]:
    head = {"processor": "a processor", "of": of}
    rows = [{"error_percent": (-1) ** i * error, "interval_holds": i < held} for i in range(networks)]
    known = [("nothing", operators, 90), ("look-ups", 90.0, 0)]
    return {
        "networks": [head | row for row in rows],
        "operators_above_20_us": [
            {**head, "known": name, "operators": 7, "mean_error_percent": error, "inside_interval_percent": inside}
            for name, error, inside in known
        ],
    }


def odd_operators(
    operators: int = 100, near: float = 90.0, inside: float = 90.0, wrong: int = 0, of: str = "test"
) -> dict[str, list[dict[str, Any]]]:
    row = {"of": of, "with_an_estimate": operators, "within_1_5_percent": near, "inside_interval_percent": inside}
    return {"shares": [row | {"wrong_by_3_and_outside": wrong}]}


@pytest.mark.parametrize(
    ("script", "tables", "reaches"),
    [
        ("fleet_overhead", fleet_overhead(), True),
        ("fleet_overhead", fleet_overhead(longer=5.1), False),
        ("fleet_overhead", fleet_overhead(memory=106), False),
        ("fleet_overhead", {"models": [{"longer_percent": 4.0}]}, None),
        ("corun", corun(), True),
        ("corun", corun(speedup=0.999), False),
        ("corun", corun(closed=49.9), False),
        ("corun", corun(limit_over_it=0.95), False),
        ("corun", {**corun(), "plans": corun()["plans"][1:]}, None),
        ("held_out_models", held_out_models(), True),
        ("held_out_models", held_out_models(error=5.1), False),
        ("held_out_models", held_out_models(held=10), False),
        ("held_out_models", held_out_models(operators=7.1), False),
        ("held_out_models", held_out_models(error=50.0, networks=9), None),
        ("held_out_models", held_out_models(of="development"), None),
        ("odd_operators", odd_operators(), True),
        ("odd_operators", odd_operators(near=89.9), False),
        ("odd_operators", odd_operators(inside=92.1), False),
        ("odd_operators", odd_operators(wrong=1), False),
        ("odd_operators", odd_operators(operators=99), None),
        ("odd_operators", odd_operators(of="development"), None),
    ],
)
def test_a_goal_is_reached_where_all_of_its_parts_are(
    module: Callable[[Path], ModuleType], script: str, tables: dict[str, list[dict[str, Any]]], reaches: bool | None
) -> None:
    assert module(BENCHMARKS / f"{script}.py").reached(tables) is reaches


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_every_result_is_on_the_page_of_figures(path: Path) -> None:
    result = json.loads(path.read_text())
    assert result["script"] == path.stem and (BENCHMARKS / f"{path.stem}.py").exists()
    for records in result["tables"].values():
        assert records and all(record.keys() == records[0].keys() for record in records)
    pages = [page.read_text() for page in (ROOT / "docs" / "figures").glob("*.md")]
    (text,) = [page for page in pages if f"<!-- results: {path.stem} -->" in page]
    block = text.partition(f"<!-- results: {path.stem} -->")[2].partition("<!-- /results -->")[0]
    assert f"benchmarks/{path.stem}.py" in block
    rows = [line for line in block.splitlines() if line.startswith("| ")]
    assert len(rows) == sum(len(records) + 2 for records in result["tables"].values())
    assert str(result["provenance"]["date"]) in block and str(result["provenance"]["commit"] or "") in block
    (row,) = [
        line for line in (ROOT / "docs" / "figures.md").read_text().splitlines() if f"`{path.name[:-5]}.py`" in line
    ]
    assert str(result["provenance"]["date"]) in row


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
