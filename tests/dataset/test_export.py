"""The flat table, its files, and conditions over it."""

from __future__ import annotations

import csv
import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Text, type_coerce

from op_profiler.dataset import COLUMNS, FORMATS, Dataset, export_table, flat_rows, import_table, read_parquet, schema
from op_profiler.dataset.flat import parse_where
from op_profiler.dataset.formats.exporting import describe
from op_profiler.dataset.formats.flat_table import FlatFormat
from op_profiler.dataset.formats.parquet import parquet_rows
from op_profiler.errors import DatasetError, OpProfilerError, UsageError
from op_profiler.shipped import shipped_processors

NAMES = [column.name for column in COLUMNS]
FLAT_FORMATS = [name for name, format in FORMATS.available() if isinstance(format, FlatFormat)]


@pytest.fixture
def varied(filled: Dataset, example: Any) -> Dataset:
    """Beside the filled model: a check point, and an operator outside of a model."""
    filled.record(example.row(1, settings=example.changed(threads=1), complete=False))
    filled.record(example.row(0, settings=example.changed(cache="hot"), model_key=""))
    return filled


def test_columns_are_documented_once() -> None:
    assert len(set(NAMES)) == len(NAMES)
    assert all(column.description for column in COLUMNS)
    times = [c for c in COLUMNS if c.name.endswith("_us")]
    assert all("microseconds" in c.description for c in times)


def test_only_rows_that_are_wanted_are_read_of_a_parquet_file(varied: Dataset, tmp_path: Path) -> None:
    path = tmp_path / "table.parquet"
    export_table(varied, path, format="parquet")
    columns = ["threads", "cache", "model_source", "operator_key"]
    everything = read_parquet(path, columns)
    for where in ([("threads", "=", 1)], [("cache", "!=", "hot"), ("threads", ">", 1)]):
        signs = {"=": lambda one, other: one == other, "!=": lambda one, other: one != other, ">": lambda a, b: a > b}
        wanted = [row for row in everything if all(signs[sign](row[name], value) for name, sign, value in where)]
        assert 0 < len(wanted) < len(everything)
        assert list(parquet_rows(path, columns, where)) == wanted


def test_rows_hold_everything_that_belongs_to_a_measurement(varied: Dataset, example: Any) -> None:
    rows = list(flat_rows(varied))
    assert [list(row) for row in rows] == [NAMES] * 4
    timed = next(row for row in rows if row["median_us"] is not None and row["complete"] and row["model_key"])
    operator = example.operator()
    assert timed["operator_key"] == operator.key
    assert timed["op_names"] == ["nn.conv2d", "clip"]
    assert timed["params"] == [{"shape": [64, 3, 7, 7], "dtype": "float32"}]
    assert timed["attrs"][1]["a_max"] == "Infinity"
    assert timed["flops"] == operator.flops
    assert timed["arithmetic_intensity"] == pytest.approx(operator.arithmetic_intensity, rel=1e-12)
    assert timed["knobs"] == example.schedule.knobs
    assert timed["core_set"] == [0, 1]
    assert timed["memory_bytes"] == example.device.memory_bytes
    assert timed["device_properties"] == example.device.properties
    assert (timed["model_name"], timed["occurrences"], timed["positions"]) == ("resnet-18", 2, [0, 2])
    assert timed["layers"] == [["stem.conv", "stem.norm"], []]  # one list a position
    assert list(flat_rows(varied, where="layers LIKE '%\"stem.conv\"%' and error is null", columns=["layers"]))
    assert timed["whole_model_us"] == example.timing().whole_model.median_us
    assert timed["samples_us"] == [list(sample) for sample in example.measurement().samples_us]
    assert (timed["foreign_load"], timed["complete"], timed["std_us"]) == (True, True, 0.0)
    failed = next(row for row in rows if row["error"] is not None)
    assert failed["error"] == example.failed.error
    assert (failed["median_us"], failed["min_us"], failed["samples_us"]) == (None, None, [])
    outside = next(row for row in rows if row["cache"] == "hot")
    assert (outside["model_key"], outside["model_name"], outside["occurrences"]) == (None, None, None)
    assert outside["operator_name"] == operator.name


def test_a_table_for_pandas_has_lists_where_values_are_nested(varied: Dataset) -> None:
    pandas = pytest.importorskip("pandas")
    table = varied.to_pandas("not error is null or cache = 'model'")
    assert list(table.columns) == NAMES and isinstance(table, pandas.DataFrame)
    first = table[table.median_us.notna() & table.complete].iloc[0]
    assert first.layers == [["stem.conv", "stem.norm"], []]
    assert first.inputs[0] == {"shape": [1, 3, 224, 224], "dtype": "float32"}
    assert list(varied.to_pandas(table="coruns").columns)[:2] == ["corun_key", "position"]


def test_builds_and_what_stands_around_sampled_operators_are_told_apart(dataset: Dataset, example: Any) -> None:
    around = dataclasses.replace(example.operator(1), op_names=("copy",), anchor="copy")
    for key, source, base_key in (("a", "local", "a"), ("b", "local", "a"), ("c", "sample", None)):
        example.add_model(dataset, key, operators=1, source=source, base_key=base_key)
        dataset.add_operators(key, [(example.operator(), (0,)), (around, (1,))])
        dataset.record_all(example.row(operator_key=one, model_key=key) for one in (example.operator().key, around.key))
    dataset.record(example.row(settings=example.changed(cache="hot"), model_key=""))
    rows = list(flat_rows(dataset, columns=["model_key", "op_names", "model_build", "scaffolding"]))
    builds = {(row["model_key"], row["model_build"]) for row in rows}
    assert builds == {("a", "default"), ("b", "tuned"), ("c", None), (None, None)}
    marked = [(row["model_key"], row["op_names"]) for row in rows if row["scaffolding"]]
    assert marked == [("c", ["copy"])] and {row["scaffolding"] for row in rows} == {True, False}
    assert len(list(flat_rows(dataset, where="model_build = 'tuned' and not scaffolding"))) == 2


def test_parquet_gives_the_same_values_back(varied: Dataset, tmp_path: Path) -> None:
    path = tmp_path / "table.parquet"
    assert export_table(varied, path, format="parquet").rows == 4
    assert read_parquet(path) == list(flat_rows(varied))


def test_parquet_explains_itself(varied: Dataset, tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    export_table(varied, tmp_path / "table.parquet", format="parquet")
    schema = parquet.read_schema(tmp_path / "table.parquet")
    assert schema.field("samples_us").type == pyarrow.list_(pyarrow.list_(pyarrow.float64()))
    assert schema.field("threads").type == pyarrow.int64()
    assert b"microseconds" in schema.field("median_us").metadata[b"description"]


def test_jsonl_gives_the_same_values_back(varied: Dataset, tmp_path: Path) -> None:
    path = tmp_path / "table.jsonl"
    assert export_table(varied, path, format="jsonl").rows == 4

    def refuse(word: str) -> Any:
        raise AssertionError(f"{word} is not JSON")

    lines = path.read_text(encoding="utf-8").splitlines()
    assert [json.loads(line, parse_constant=refuse) for line in lines] == list(flat_rows(varied))


def test_csv_gives_the_same_values_back(varied: Dataset, tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    assert export_table(varied, path, format="csv").rows == 4
    read = {"text": str, "integer": int, "real": float}
    types = {column.name: read.get(column.type, json.loads) for column in COLUMNS}
    with path.open(newline="", encoding="utf-8") as file:
        rows = [{k: types[k](v) if v else None for k, v in row.items()} for row in csv.DictReader(file)]
    expected = [{k: None if v == "" else v for k, v in row.items()} for row in flat_rows(varied)]
    assert rows == expected


@pytest.mark.parametrize("format", FLAT_FORMATS)
def test_an_empty_dataset_gives_an_empty_table(dataset: Dataset, tmp_path: Path, format: str) -> None:
    path = tmp_path / "table"
    assert export_table(dataset, path, format=format).rows == 0
    if format == "parquet":
        assert read_parquet(path) == []
    if format == "csv":
        assert path.read_text() == ",".join(NAMES) + "\n"


def test_many_rows_come_in_order(dataset: Dataset, example: Any, tmp_path: Path) -> None:
    """More than one batch of the reader and of the writer."""
    example.add_model(dataset)
    dataset.record_all([example.row(settings=example.changed(streams=n)) for n in range(1, 1202)])
    assert export_table(dataset, tmp_path / "t.parquet", format="parquet", where="streams > 1").rows == 1200
    assert read_parquet(tmp_path / "t.parquet") == list(flat_rows(dataset, where="streams > 1"))


@pytest.mark.parametrize(
    "where, count",
    [
        ("anchor = 'nn.conv2d' and threads = 2", 3),
        ("ANCHOR LIKE 'nn.%' AND Threads==1", 1),
        ("anchor like 'NN.%'", 0),
        ("error is null", 3),
        ("not complete", 1),
        ("complete and foreign_load = true", 2),
        ("complete = false", 1),
        ("median_us between 0.3 and 3.4e-1 and cache <> 'hot'", 2),
        ("(threads + 1) * 2 >= 5.5 or threads % 2 = 1", 4),
        ("cache in ('hot', 'cold')", 1),
        ("upper(cache) = 'HOT' or coalesce(model_name, '') = 'x'", 1),
        ("case when threads = 1 then 1 else 0 end = 1", 1),
        ("error like '%''tvm.error''%' and error like '%DROP TABLE%; %'", 0),
        ("error like '%''tvm.error'' said%; DROP TABLE%'", 1),
        ("processor = 'AMD EPYC 9R14 µ' and model_key = 'm:x'", 0),
        ("op_names like '%clip%'", 4),
        ("flops > 1099511627776", 2),
    ],
)
def test_conditions(varied: Dataset, where: str, count: int) -> None:
    assert len(list(flat_rows(varied, where=where))) == count


@pytest.mark.parametrize(
    "where",
    [
        "threads = 1; DROP TABLE measurements",
        "1 = 1) UNION SELECT * FROM devices --",
        "1 = 1 -- ",
        "1 = 1 /* */",
        "1 = 1) or (1 = 1",
        "threads in (select 1)",
        "exists (select 1)",
        "pg_sleep(10) is null",
        "load_extension('x') is null",
        "measurements.threads = 1",
        '"threads" = 1',
        "anchor = 'unfinished",
        "anchor = E'x'",
        "threads::text = '1'",
        "threads = :x",
        "threads = %(x)s",
        "threads = ?",
        "threads = $1",
        "anchor = `x`",
        "threads = 1 \\",
        "threads = 1 and",
        "threads threads",
        "threads = 1abc",
        "sum(threads) = 1",
        "abs(threads, 1, 2) = 1",
        "threads = 1 || 1",
        "threads = 1\0",
        "threads = \u0661",
        "threads\u00a0= 1",
        "anchor = \u2019x\u2019",
        "threads \uff1d 1",
        "anchor = 'a' union",
        "threads = 1 limit 1",
        "threads = 1 order by threads",
        "threads collate nocase = 1",
        "anchor glob '*'",
        "cast(threads as text) = '1'",
        "threads[1] = 1",
        "threads = @x",
        "(threads, rounds) = (select 1, 2)",
        "case when threads = 1 then (select 1) end = 1",
        "threads = 1 and (1 = 1)) or (1 = 1",
        "sqlite_version() = '3'",
        "current_user = 'x'",
        "rowid = 1",
        "flat.threads = 1",
        "x'00' = 1",
        "",
        "   ",
    ],
)
def test_conditions_that_are_none_are_refused_with_the_columns(filled: Dataset, tmp_path: Path, where: str) -> None:
    path = tmp_path / "table.csv"
    with pytest.raises(UsageError, match="the columns are: measurement_key, operator_key"):
        export_table(filled, path, format="csv", where=where)
    assert os.listdir(tmp_path) in ([], ["new"])
    assert filled.counts()["measurements"] == 2


def test_a_misspelt_column_names_the_nearest() -> None:
    with pytest.raises(UsageError, match="'anchr'; the nearest known: anchor"):
        parse_where("anchr = 'x'")


def test_a_condition_is_read_as_the_databases_read_it(varied: Dataset) -> None:
    """To other parsers these are ``threads = (1 is not null)`` and a statement of its own."""
    rows = len(list(flat_rows(varied)))
    assert len(list(flat_rows(varied, where="threads * 2 = 2 is not null"))) == rows
    assert len(list(flat_rows(varied, where="cache in ('model', 'hot', 'cold')"))) == rows


def test_what_stands_in_quotes_is_text(varied: Dataset) -> None:
    for text in ("'; DROP TABLE measurements; --", "'", "/*", "--", "%(x)s", ":x", "\\", "' or '1' = '1"):
        doubled = text.replace("'", "''")
        assert list(flat_rows(varied, where=f"anchor = '{doubled}'")) == []
    assert varied.counts()["measurements"] > 0


@pytest.mark.parametrize("nested", ["(" * 3000 + "1 = 1" + ")" * 3000, "not " * 3000 + "true"], ids=["brackets", "not"])
def test_a_condition_too_deep_for_a_database_is_refused_or_answered(filled: Dataset, nested: str) -> None:
    try:
        assert len(list(flat_rows(filled, where=nested))) == 2
    except UsageError as error:
        assert "the columns are: measurement_key" in str(error)
    assert filled.counts()["measurements"] == 2


def test_minus_signs_do_not_become_a_comment() -> None:
    assert parse_where("threads--1 = 3") == "threads - - 1 = 3"


def test_an_unknown_format(filled: Dataset, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="unknown format 'parket'; the nearest known: parquet"):
        export_table(filled, tmp_path / "x", format="parket")


@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_an_export_without_a_row_says_why(dataset: Dataset, example: Any, tmp_path: Path, format: str) -> None:
    def reason(**options: Any) -> list[str]:
        done = export_table(dataset, tmp_path / "x", format=format, **options)
        assert done.rows == 0
        return describe(done)

    assert reason() == ["no row: the dataset has no measurements"]
    assert reason(table="coruns") == ["no row: the dataset has no coruns"]
    example.fill(dataset)
    assert reason(threads=7, where="anchor = 'x'") == [
        "no row: none of 2 measurements fits (anchor = 'x') and threads = 7"
    ]
    assert describe(export_table(dataset, tmp_path / "x", format=format)) == []


@pytest.mark.parametrize("format", FLAT_FORMATS)
def test_an_export_that_fails_keeps_the_older_file(
    filled: Dataset, tmp_path: Path, format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "out" / "table"
    path.parent.mkdir()
    path.write_text("older")

    def broken(*_: Any, **__: Any) -> Any:
        yield {column.name: None for column in COLUMNS}
        raise OSError(28, "No space left on device")

    def broken_batches(_dataset: Dataset, _flat: Any, schema: Any, **__: Any) -> Any:
        import pyarrow

        yield pyarrow.RecordBatch.from_pylist([{}], schema=schema)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("op_profiler.dataset.formats.flat_table.flat_rows", broken)
    monkeypatch.setattr("op_profiler.dataset.formats.parquet._batches", broken_batches)
    with pytest.raises(OpProfilerError, match="No space left on device; give another path"):
        export_table(filled, path, format=format)
    assert path.read_text() == "older"
    assert os.listdir(path.parent) == ["table"]


def test_what_rows_share_is_read_again_where_too_much_is_held(
    varied: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("op_profiler.dataset.flat._PIECE", 1)
    monkeypatch.setattr("op_profiler.dataset.flat._MOST_SHARED", 1)
    monkeypatch.setattr("op_profiler.dataset.formats.parquet._GROUP_BYTES", 1)
    assert export_table(varied, tmp_path / "x", format="parquet").rows == 4
    assert read_parquet(tmp_path / "x") == list(flat_rows(varied))


def test_measurements_that_ship_leave_in_arrow_as_they_leave_row_by_row(dataset: Dataset, tmp_path: Path) -> None:
    from pyarrow import parquet

    shipped = shipped_processors()[0].operators
    assert shipped is not None
    some = parquet.ParquetFile(shipped).iter_batches(batch_size=150)
    with parquet.ParquetWriter(tmp_path / "some.parquet", parquet.read_schema(shipped)) as writer:
        writer.write_batch(next(some))
    assert import_table(dataset, tmp_path / "some.parquet", format="parquet").rows == 150
    where = "threads = 2 or anchor = 'nn.conv2d'"
    done = export_table(dataset, tmp_path / "x", format="parquet", where=where)
    rows = read_parquet(tmp_path / "x")
    assert 0 < done.rows == len(rows) < 150
    assert rows == list(flat_rows(dataset, where=where))


@pytest.mark.parametrize(
    "text", ["[[1,2.5],[]]", "[]", "null", "[[Infinity],[-Infinity]]", "[[0.1234567890123456789]]", "[[1e-320, 1E5]]"]
)
def test_samples_leave_in_arrow_as_they_leave_row_by_row(filled: Dataset, tmp_path: Path, text: str) -> None:
    with filled.transaction(), filled.read() as connection:
        connection.execute(schema.measurements.update().values(samples_us=type_coerce(text, Text)))
    export_table(filled, tmp_path / "x", format="parquet")
    found = [row["samples_us"] for row in read_parquet(tmp_path / "x")]
    assert found == [json.loads(text)] * 2


@pytest.mark.parametrize("text", ['[[1]]}\n{"samples":[[2]]', "[[1]", "", "x", '[[1]],"samples":[]'])
def test_samples_that_are_damaged_are_told(filled: Dataset, tmp_path: Path, text: str) -> None:
    with filled.transaction(), filled.read() as connection:
        connection.execute(schema.measurements.update().values(samples_us=type_coerce(text, Text)))
    with pytest.raises(DatasetError, match="the dataset is damaged"):
        export_table(filled, tmp_path / "x", format="parquet")
    assert not (tmp_path / "x").exists()


def test_a_folder_of_parts_holds_all_rows(varied: Dataset, tmp_path: Path) -> None:
    folder = tmp_path / "parts"
    done = export_table(varied, folder, format="parquet", partition_by=("device_key", "anchor", "threads"))
    (device,) = {row["device_key"] for row in flat_rows(varied)}
    assert done.rows == 4 and {path.name for path in folder.iterdir()} == {f"device_key={device}"}
    assert {path.parent.name for path in folder.rglob("*.parquet")} == {"threads=1", "threads=2"}
    rows = sorted(read_parquet(folder), key=lambda row: str(row["measurement_key"]))
    assert rows == sorted(flat_rows(varied), key=lambda row: str(row["measurement_key"]))
    some = read_parquet(folder, ["threads", "median_us"])
    assert sorted(str(row) for row in some) == sorted(str({n: r[n] for n in ("threads", "median_us")}) for r in rows)
    with pytest.raises(UsageError, match="exists"):
        export_table(varied, folder, format="parquet", partition_by=("anchor",))
    with pytest.raises(UsageError, match="not real"):
        export_table(varied, tmp_path / "no", format="parquet", partition_by=("median_us",))
    with pytest.raises(UsageError, match="is for --format parquet"):
        export_table(varied, tmp_path / "no", format="csv", partition_by=("anchor",))
    assert not (tmp_path / "no").exists()


def test_outputs_that_cannot_be_written(filled: Dataset, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path, tmp_path / "file" / "table.csv", Path("/dev/null"), Path("/proc/table.csv")):
        with pytest.raises(OpProfilerError, match="cannot write .* give another path"):
            export_table(filled, path, format="csv")
    assert Path("/dev/null").is_char_device()


def test_an_export_replaces_what_a_link_points_to(filled: Dataset, tmp_path: Path) -> None:
    (tmp_path / "real.csv").write_text("older")
    (tmp_path / "link.csv").symlink_to(tmp_path / "real.csv")
    export_table(filled, tmp_path / "link.csv", format="csv")
    assert (tmp_path / "link.csv").is_symlink()
    assert len((tmp_path / "real.csv").read_text()) > 100


def test_text_formats_need_neither_pandas_nor_pyarrow(
    filled: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("pandas", "pyarrow"):
        monkeypatch.setitem(sys.modules, name, None)
    for format in ("csv", "jsonl"):
        assert export_table(filled, tmp_path / format, format=format).rows == 2


def test_reading_what_is_not_parquet(tmp_path: Path) -> None:
    (tmp_path / "x.parquet").write_text("no")
    for name in ("x.parquet", "missing.parquet"):
        with pytest.raises(DatasetError, match=f"cannot read .*{name} as Parquet"):
            read_parquet(tmp_path / name)


def test_exporting_while_others_write(
    sqlite_url: str, example: Any, tmp_path: Path, start: Callable[..., subprocess.Popen[str]]
) -> None:
    with Dataset.open(sqlite_url) as dataset:
        example.fill(dataset)
    with Dataset.open(sqlite_url, read_only=True) as reader, Dataset.open(sqlite_url) as writer, writer.transaction():
        writer.record(example.row(settings=example.changed(threads=1)))
        assert export_table(reader, tmp_path / "t.csv", format="csv").rows == 2
