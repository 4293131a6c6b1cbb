"""Operators that ran side by side, in every kind of database."""

from __future__ import annotations

import csv
import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from op_profiler.cli import application
from op_profiler.dataset import CorunMember, Dataset, export_table, flat_rows, read_parquet
from op_profiler.dataset.flat import CORUNS
from op_profiler.errors import DatasetError, UsageError
from op_profiler.schedules.schedule import Schedule


@pytest.fixture
def pair(example: Any) -> tuple[CorunMember, CorunMember]:
    """A convolution of the model on core 0, and one outside of it on core 1, which is slowed down to half its speed."""
    one = CorunMember(
        operator_key=example.operator(0).key,
        schedule=example.schedule,
        settings=example.changed(threads=1, core_set=(0,), core_set_effective=(0,), parallel_type="stream"),
        model_key="m",
        alone_samples_us=(10.0, 0.1 + 0.2, 30.5),
        together_samples_us=(11.0, 12.0),
    )
    other = dataclasses.replace(
        one,
        operator_key=example.operator(1).key,
        schedule=Schedule("another.x86"),
        settings=dataclasses.replace(one.settings, core_set=(1,), core_set_effective=(1,)),
        model_key="",
        alone_samples_us=(4.0,),
        together_samples_us=(8.0,),
    )
    return one, other


def test_a_group_comes_back_as_it_went_in(filled: Dataset, example: Any, pair: Any) -> None:
    filled.record_corun(example.device, pair, load_before=0.25, load_after=0.0, foreign_load=True)
    (found,) = filled.coruns()
    assert found.members == pair
    assert (found.load_before, found.load_after, found.foreign_load) == (0.25, 0.0, True)
    assert found.device_key == example.device.key and found.measured_at.endswith("+00:00")
    assert filled.coruns(example.device.key) == [found]
    assert filled.coruns("another device") == []
    assert [m.slowdown for m in found.members] == [1.15, 2.0]


def test_the_same_group_is_kept_once_in_whatever_order(filled: Dataset, example: Any, pair: Any) -> None:
    filled.record_corun(example.device, pair)
    read_back = dataclasses.replace(pair[0].settings, core_set_effective=(0, 1), governor_effective="powersave")
    newer = dataclasses.replace(pair[0], settings=read_back, together_samples_us=(9.0,))
    filled.record_corun(example.device, (pair[1], newer))
    (found,) = filled.coruns()
    assert found.members == (pair[1], newer)
    assert (found.load_before, found.foreign_load) == (None, False)


def test_groups_with_other_settings_devices_or_members_are_others(filled: Dataset, example: Any, pair: Any) -> None:
    one, other = pair
    asked = dataclasses.replace(one, settings=dataclasses.replace(one.settings, cache_ways=4))
    groups = [pair, (asked, other), (one, one), (one, one, other), (one, dataclasses.replace(other, model_key="m"))]
    for members in groups:
        filled.record_corun(example.device, members)
    elsewhere = dataclasses.replace(example.device, processor="another")
    filled.record_corun(elsewhere, pair)
    assert [c.members for c in filled.coruns()] == [*groups, pair]
    assert [c.members for c in filled.coruns(elsewhere.key)] == [pair]


def test_a_member_that_failed_has_its_reason_and_no_slowdown(filled: Dataset, example: Any, pair: Any) -> None:
    failed = dataclasses.replace(pair[1], together_samples_us=(), error="half \ud800 and nul \0")
    never = dataclasses.replace(failed, alone_samples_us=(), error="does not build")
    filled.record_corun(example.device, (pair[0], failed, never))
    members = filled.coruns()[0].members
    assert [m.error for m in members] == [None, "half ? and nul ", "does not build"]
    assert [m.slowdown for m in members] == [1.15, None, None]
    assert (members[1].alone_median_us, members[2].alone_median_us) == (4.0, None)


@pytest.mark.parametrize(
    "changes",
    [
        {"together_samples_us": ()},
        {"alone_samples_us": ()},
        {"error": "but timed"},
        {"together_samples_us": (0.0,)},
        {"alone_samples_us": (-1.0,)},
    ],
    ids=["neither time nor error", "not compared", "both", "zero", "negative"],
)
def test_a_stand_in_for_a_time_is_refused_with_its_group(
    filled: Dataset, example: Any, pair: Any, changes: dict[str, Any]
) -> None:
    with pytest.raises(DatasetError, match="refused"):
        filled.record_corun(example.device, (pair[0], dataclasses.replace(pair[1], **changes)))
    with pytest.raises(DatasetError, match="refused"):
        filled.record_corun(example.device, (pair[0], dataclasses.replace(pair[1], operator_key="never stored")))
    assert filled.coruns() == []


def test_a_group_without_members_is_refused_before_the_database_is_asked(filled: Dataset, example: Any) -> None:
    """It would insert one member of which nothing is told."""
    with pytest.raises(DatasetError, match="refused: it has no members"):
        filled.record_corun(example.device, ())
    assert filled.coruns() == []


def test_groups_as_a_flat_table(filled: Dataset, example: Any, pair: Any, tmp_path: Path) -> None:
    failed = dataclasses.replace(pair[1], together_samples_us=(), error="no")
    filled.record_corun(example.device, pair, load_before=0.5)
    filled.record_corun(example.device, (pair[0], pair[0], failed))
    rows = list(flat_rows(filled, table=CORUNS))
    assert [(row["position"], row["slowdown"]) for row in rows] == [
        (0, 1.15),
        (1, 2.0),
        (0, 1.15),
        (1, 1.15),
        (2, None),
    ]
    assert len({row["corun_key"] for row in rows}) == 2
    assert rows[0]["core_set"] == [0] and rows[0]["model_name"] == "resnet-18" and rows[1]["model_name"] is None
    assert rows[0]["alone_samples_us"] == [10.0, 0.1 + 0.2, 30.5] and rows[0]["load_before"] == 0.5
    assert rows[0]["processor"] == example.device.processor and rows[4]["error"] == "no"
    assert len({column.name for column in CORUNS.columns}) == len(CORUNS.columns)
    for format in ("parquet", "csv", "jsonl"):
        assert export_table(filled, tmp_path / format, format=format, table="coruns").rows == 5
    assert read_parquet(tmp_path / "parquet") == rows
    assert [json.loads(line) for line in (tmp_path / "jsonl").read_text().splitlines()] == rows
    with open(tmp_path / "csv", newline="") as file:
        assert [row["slowdown"] for row in csv.DictReader(file)] == ["1.15", "2.0", "1.15", "1.15", ""]
    slow = export_table(filled, tmp_path / "slow", format="csv", where="slowdown > 1.5", table="coruns")
    assert slow.rows == 1
    with pytest.raises(UsageError, match="'median_us'; the nearest known: .*the columns are: corun_key"):
        export_table(filled, tmp_path / "x", format="csv", where="median_us > 1", table="coruns")
    with pytest.raises(UsageError, match="unknown table 'corun'; the nearest known: coruns"):
        export_table(filled, tmp_path / "x", format="csv", table="corun")


def test_the_command_exports_and_explains_them(sqlite_url: str, example: Any, pair: Any, tmp_path: Path) -> None:
    with Dataset.open(sqlite_url) as dataset:
        example.fill(dataset)
        dataset.record_corun(example.device, pair)

    def export(*words: str) -> Result:
        return CliRunner().invoke(application(), ["export", "--table", "coruns", "--db", sqlite_url, *words])

    out = tmp_path / "coruns.csv"
    done = export("--format", "csv", str(out), "--threads", "1", "--where", "slowdown > 1.1", "--json")
    assert json.loads(done.output)["rows"] == 2 and out.read_text().startswith("corun_key,position,")
    listed = export("--columns").output
    assert [line.split()[0] for line in listed.splitlines()] == [column.name for column in CORUNS.columns]
    assert isinstance(export("--format", "tinynas", str(out)).exception, UsageError)
