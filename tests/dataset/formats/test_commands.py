"""The two commands, as a user runs them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from op_profiler.cli import application

LIBRARY = "{Regular,1,32,8,8,32,3,1,0} 0.010\n{Regular,1,32,8,8,64,3,1,0} -1\nnonsense\n"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "library.txt"
    path.write_text(LIBRARY)
    return path


def run(folder: Path, *words: str) -> Result:
    return CliRunner().invoke(application(), [*words, "--db", f"sqlite:///{folder / 'x.db'}"])


def code(result: Result) -> int:
    return int(getattr(result.exception, "exit_code", result.exit_code))


def test_in_and_out(table: Path, tmp_path: Path) -> None:
    done = run(tmp_path, "import", "--format", "tinynas", str(table), "--device", "V100")
    assert done.exit_code == 0, done.output
    assert "2 measurements" in done.output and "1 of them failed" in done.output and "line 3" in done.output
    out = tmp_path / "out.txt"
    written = run(tmp_path, "export", "--format", "tinynas", str(out), "--device", "V100", "--json")
    assert json.loads(written.output) == {"rows": 2, "left_out": {}, "slower": 0}
    assert sorted(out.read_text().splitlines()) == [
        "{Regular,1,32,8,8,32,3,1,0} 0.01",
        "{Regular,1,32,8,8,64,3,1,0} -1",
    ]
    paddle = run(tmp_path, "export", "--format", "paddle", "--output", str(out))
    assert "1 rows written" in paddle.stdout and "left out: 1 measurements: a failure" in paddle.stderr
    flat = tmp_path / "flat.csv"  # the name tells the format
    assert run(tmp_path, "export", str(flat), "--quiet").exit_code == 0
    assert "median_us" in flat.read_text().splitlines()[0].split(",")
    quiet = run(tmp_path, "export", "--format", "csv", str(out), "--quiet")
    assert quiet.output == ""


def test_json_and_quiet(table: Path, tmp_path: Path) -> None:
    done = json.loads(run(tmp_path, "import", "--format", "tinynas", str(table), "--json").output)
    assert (done["rows"], done["failed"], done["unreadable"]) == (2, 1, 1)
    assert run(tmp_path, "import", "--format", "tinynas", str(table), "--quiet").output == ""


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("import", "--format", "tinynaz", "x"), 2),
        (("import", "--format", "csv", "x", "--device", "y"), 2),
        (("import", "--format", "csv", "x", "--precision", "int8"), 2),
        (("import", "--format", "tinynas", "x", "--precision", "int3"), 2),
        (("import", "--format", "tinynas", "missing.txt"), 5),
        (("export", "--format", "tinynas"), 2),
        (("export", "x", "--output", "y"), 2),
    ],
)
def test_exit_codes(words: tuple[str, ...], expected: int, tmp_path: Path) -> None:
    assert code(run(tmp_path, *words)) == expected


def test_a_file_without_rows_is_an_error_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("nothing\n")
    done = run(tmp_path, "import", "--format", "tinynas", str(tmp_path / "x"))
    assert code(done) == 5 and "not a row such as" in str(done.exception)


def test_progress_of_what_takes_long(table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("op_profiler.cli.import_._SILENT_SECONDS", 0.0)
    done = run(tmp_path, "import", "--format", "tinynas", str(table))
    assert "4 of 4 rows stored" in done.stderr
    silent = run(tmp_path, "import", "--format", "tinynas", str(table), "--quiet")
    assert silent.stderr == ""
