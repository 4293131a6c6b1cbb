"""The flat formats of one dataset read into another."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyarrow import parquet as pyarrow_parquet
from sqlalchemy import select

from op_profiler.dataset import Dataset, export_table, flat_rows, schema
from op_profiler.dataset.formats.flat_table import store_flat
from op_profiler.dataset.formats.importing import import_table
from op_profiler.dataset.formats.parquet import FORMAT as PARQUET
from op_profiler.errors import DatasetError
from op_profiler.measure.measurement import Measurement
from op_profiler.measure.statistics import summarize
from op_profiler.shipped import shipped_processors, shipped_trials

EACH = pytest.mark.parametrize("format", ["parquet", "csv", "jsonl"])


@pytest.fixture
def url(sqlite_url: str) -> str:
    """PostgreSQL reads and writes nothing of its own here; the store's tests have it."""
    return sqlite_url


@pytest.fixture
def varied(filled: Dataset, example: Any) -> Dataset:
    """Beside the filled model: a check point, and an operator outside of a model."""
    filled.record(example.row(1, settings=example.changed(threads=1), complete=False))
    filled.record(example.row(0, settings=example.changed(cache="hot"), model_key=""))
    return filled


@pytest.fixture
def other(tmp_path: Path) -> Any:
    with Dataset.open(f"sqlite:///{tmp_path / 'other.db'}") as opened:
        yield opened


@EACH
def test_everything_that_the_file_holds_is_in_the_other_dataset(
    varied: Dataset, other: Dataset, tmp_path: Path, format: str
) -> None:
    path = tmp_path / "table"
    export_table(varied, path, format=format)
    done = import_table(other, path, format=format)
    assert (done.rows, done.failed, done.unreadable, done.known) == (4, 1, 0, 0), done.problems
    assert list(flat_rows(other)) == list(flat_rows(varied))
    again = import_table(other, path, format=format)
    assert (again.rows, again.known) == (0, 4)
    assert list(flat_rows(other)) == list(flat_rows(varied))


@EACH
def test_what_is_newer_stays(varied: Dataset, other: Dataset, example: Any, tmp_path: Path, format: str) -> None:
    export_table(varied, tmp_path / "table", format=format)
    example.add_model(other)
    other.record(example.row(0, measurement=example.measurement(7)))
    done = import_table(other, tmp_path / "table", format=format)
    assert (done.rows, done.known) == (3, 1)
    (row,) = [r for r in flat_rows(other) if r["cache"] == "model" and r["complete"] and r["error"] is None]
    assert row["rounds"] == 7
    assert len(other.model_operators("m")) == 2 and other.models()[0].extracted


@EACH
@pytest.mark.parametrize(
    ("measurement", "complete"),
    [
        (Measurement(error="CUDA: out of memory"), True),
        (dataclasses.replace(summarize(np.full((8, 1), 50.0)), foreign_load=True), True),
        (summarize(np.full((3, 1), 6.0)), False),
    ],
    ids=["failure", "background load", "check point"],
)
def test_an_older_time_takes_the_place_of_what_is_worse(
    measurement: Measurement,
    complete: bool,
    filled: Dataset,
    other: Dataset,
    example: Any,
    tmp_path: Path,
    format: str,
) -> None:
    """Whatever comes first, the same stays."""
    settings = example.changed(cache="hot")
    filled.record(example.row(0, settings=settings, model_key="", measurement=summarize(np.full((8, 1), 5.0))))
    worse = example.row(0, settings=settings, model_key="", measurement=measurement, complete=complete)
    export_table(filled, tmp_path / "table", format=format, where="cache = 'hot'")
    example.add_model(other)
    other.record(worse)
    done = import_table(other, tmp_path / "table", format=format)
    assert (done.rows, done.failed, done.known) == (1, 0, 0)
    for _ in range(2):
        assert list(flat_rows(other)) == list(flat_rows(filled, where="cache = 'hot'"))
        other.record(worse)


def test_a_newer_failure_moves_neither_a_time_nor_another_failure(
    filled: Dataset, other: Dataset, example: Any
) -> None:
    example.add_model(other)
    for measurement in (Measurement(error="an earlier one"), example.measurement()):
        other.record(example.row(1, measurement=measurement))
    (there,), (earlier,) = flat_rows(other), other.failures()
    newer = "2999-01-01T00:00:00+00:00"
    (failed,) = [row | {"measured_at": newer} for row in flat_rows(filled) if row["error"] is not None]
    assert failed["measurement_key"] == there["measurement_key"]
    done = store_flat(other, [(1, failed)], None)
    assert (done.rows, done.failed, done.known, done.unreadable) == (0, 0, 1, 0)
    (stays,) = flat_rows(other)
    assert all(stays[name] == there[name] for name in ("measured_at", "median_us", "error"))
    failures = {one.error: one.failed_at for one in other.failures()}
    assert failures == {"an earlier one": earlier.failed_at, failed["error"]: newer}


@pytest.mark.parametrize("newest_first", [False, True])
def test_of_one_measurement_twice_in_a_file_the_newer_stays_with_its_time(
    filled: Dataset, other: Dataset, newest_first: bool
) -> None:
    (row,) = [row for row in flat_rows(filled) if row["error"] is None]
    times = {"2020-01-01T00:00:00+00:00": 111.0, "2021-01-01T00:00:00+00:00": 222.0}
    rows = [row | {"measured_at": when, "median_us": us} for when, us in times.items()]
    assert store_flat(other, enumerate(rows[::-1] if newest_first else rows, 1), None).unreadable == 0
    (stays,) = flat_rows(other)
    assert (stays["median_us"], stays["measured_at"]) == (222.0, "2021-01-01T00:00:00+00:00")


def test_a_newer_file_brings_the_newer_time_of_the_whole_model(filled: Dataset, other: Dataset) -> None:
    rows = [row for row in flat_rows(filled) if row["error"] is None]
    for when, us in (("2021", 50.0), ("2022", 40.0), ("2020", 90.0)):
        times = {"measured_at": f"{when}-01-01T00:00:00+00:00", "median_us": us, "whole_model_us": 2 * us}
        store_flat(other, enumerate([row | times for row in rows], 1), None)
    (row,) = flat_rows(other)
    assert (row["median_us"], row["whole_model_us"]) == (40.0, 80.0)
    (timing,) = other.rows(select(schema.model_timings))
    assert timing["measured_at"] == row["measured_at"] == "2022-01-01T00:00:00+00:00"


def test_a_table_takes_the_place_of_no_whole_model_with_its_rounds(filled: Dataset) -> None:
    before = filled.rows(select(schema.model_timings))
    newer = [row | {"measured_at": "2999-01-01T00:00:00+00:00", "whole_model_us": 7.0} for row in flat_rows(filled)]
    store_flat(filled, enumerate(newer, 1), None)
    assert filled.rows(select(schema.model_timings)) == before


def test_an_empty_table(other: Dataset, varied: Dataset, tmp_path: Path) -> None:
    for format in ("parquet", "csv", "jsonl"):
        export_table(varied, tmp_path / "x", format=format, where="threads = 99")
        assert import_table(other, tmp_path / "x", format=format).rows == 0


def test_other_columns_are_named(other: Dataset, tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    (tmp_path / "x.csv").write_text("measurement_key,anchor\na,nn.conv2d\n")
    with pytest.raises(DatasetError, match="operator_key, operator_name.* more missing.*--columns"):
        import_table(other, tmp_path / "x.csv", format="csv")
    for rows in (1, 0):
        parquet.write_table(pyarrow.table({"anchor": ["nn.conv2d"] * rows}), tmp_path / "x.parquet")
        with pytest.raises(DatasetError, match="measurement_key, operator_key"):
            import_table(other, tmp_path / "x.parquet", format="parquet")


def test_files_that_are_damaged(varied: Dataset, other: Dataset, tmp_path: Path) -> None:
    path = tmp_path / "table"
    export_table(varied, path, format="parquet")
    whole = path.read_bytes()
    for content in (whole[: len(whole) // 2], b"\x00\xff\x80", b""):
        path.write_bytes(content)
        with pytest.raises(DatasetError):
            import_table(other, path, format="parquet")
        if content != whole[: len(whole) // 2]:
            with pytest.raises(DatasetError):
                import_table(other, path, format="csv")
    export_table(varied, path, format="csv")
    path.write_text(path.read_text()[:-120])
    done = import_table(other, path, format="csv")
    assert (done.rows, done.unreadable) == (3, 1) and "cut off" in done.problems[0]


def test_rows_that_contradict_their_keys_are_counted(varied: Dataset, other: Dataset, tmp_path: Path) -> None:
    path = tmp_path / "table"
    export_table(varied, path, format="csv")
    path.write_text(path.read_text().replace("fused_nn", "renamed_nn").replace('"[1,3,224', '"[1,3,225'))
    text = path.read_text().replace("EPYC", "Ryzen")
    path.write_text(text)
    done = import_table(other, path, format="csv")
    assert done.rows == 0 and done.unreadable == 4 and "its device has the key" in done.problems[0]


def test_a_cell_larger_than_csv_reads_by_itself(filled: Dataset, other: Dataset, example: Any, tmp_path: Path) -> None:
    filled.record(example.row(0, measurement=example.measurement(20000)))
    export_table(filled, tmp_path / "x", format="csv")
    assert import_table(other, tmp_path / "x", format="csv").rows == 2
    assert max(row["rounds"] for row in flat_rows(other)) == 20000


def test_a_file_from_before_a_column_was_added_is_read(tmp_path: Path) -> None:
    shipped = shipped_trials()
    assert shipped is not None
    rows = [row for _, row in PARQUET.read(shipped)]
    assert len(rows) > 7000
    assert rows[0] is not None and rows[0]["timing_details"] is None and rows[0]["governor"] is None


def test_a_file_of_an_older_version_is_read(other: Dataset) -> None:
    """The first file that shipped was written before there were several compilers."""
    path = next(one for one in shipped_processors() if one.folder.name.startswith("amd-epyc-family-26")).operators
    assert path is not None
    assert "compiler" not in pyarrow_parquet.read_schema(path).names
    done = store_flat(other, itertools.islice(PARQUET.read(path), 20), None)
    assert (done.rows, done.unreadable) == (20, 0), done.problems
    assert {device.compiler for device in map(other.find_device, keys_of(other)) if device} == {"relay"}


def keys_of(dataset: Dataset) -> set[str]:
    """Of the devices that something was measured on."""
    return {row["device_key"] for row in flat_rows(dataset, columns=["device_key"])}
