"""The two commands, as a user runs them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from op_profiler.cli import application
from op_profiler.dataset import Dataset

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
    assert json.loads(written.output) == {"rows": 2, "left_out": {}, "slower": 0, "none_since": None}
    assert sorted(out.read_text().splitlines()) == [
        "{Regular,1,32,8,8,32,3,1,0} 0.01",
        "{Regular,1,32,8,8,64,3,1,0} -1",
    ]
    paddle = run(tmp_path, "export", "--format", "paddle", "--output", str(out))
    assert "1 row written" in paddle.stdout and "left out: 1 measurement: a failure" in paddle.stderr
    flat = tmp_path / "flat.csv"  # the name tells the format
    assert run(tmp_path, "export", str(flat), "--quiet").exit_code == 0
    assert "median_us" in flat.read_text().splitlines()[0].split(",")
    quiet = run(tmp_path, "export", "--format", "csv", str(out), "--quiet")
    assert quiet.output == ""


def test_the_name_of_a_file_tells_its_format(table: Path, tmp_path: Path) -> None:
    assert run(tmp_path, "import", "--format", "tinynas", str(table), "--quiet").exit_code == 0
    for end in ("csv", "jsonl", "parquet"):
        file = str(tmp_path / f"rows.{end}")
        assert run(tmp_path, "export", file, "--quiet").exit_code == 0
        done = run(tmp_path, "import", file)
        assert done.exit_code == 0 and "left as they were: 2" in done.output, done.output
    assert run(tmp_path, "export", "--format", "csv", str(tmp_path / "rows.txt"), "--quiet").exit_code == 0
    other = run(tmp_path, "export", str(tmp_path / "rows.json"))
    assert "--format" in str(other.exception) and ".parquet, .csv, .jsonl" in str(other.exception)
    assert "--format autotvm" in str(run(tmp_path, "import", str(table)).exception)


def test_a_folder_that_is_there_stays(tmp_path: Path) -> None:
    Dataset.open(f"sqlite:///{tmp_path / 'x.db'}").close()
    (tmp_path / "times.v2").mkdir()
    done = run(tmp_path, "export", str(tmp_path / "times.v2"), "--partition-by", "anchor")
    assert code(done) == 2 and "exists already" in str(done.exception) and "merge" in str(done.exception)


def test_columns_as_json(tmp_path: Path) -> None:
    columns = json.loads(run(tmp_path, "export", "--columns", "--json").output)
    assert {"name", "type", "description"} == set(columns[0])
    assert "median_us" in {one["name"] for one in columns}


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
        (("export", "rows.json"), 2),
        (("export", "rows.xlsx"), 2),
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
    assert "2 of 2 rows stored" in done.stderr
    silent = run(tmp_path, "import", "--format", "tinynas", str(table), "--quiet")
    assert silent.stderr == ""
