"""What a dataset holds, several made one, and models taken out; on every kind of database and between them."""

from __future__ import annotations

import dataclasses
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from op_profiler.dataset import CorunMember, Dataset, export_table, flat_rows, read_parquet, schema
from op_profiler.dataset.explanations import record_explanations
from op_profiler.dataset.formats.combined import combine
from op_profiler.dataset.maintain import contents, remove_models
from op_profiler.dataset.merging import merge
from op_profiler.dataset.quarantined_models import quarantine, release
from op_profiler.errors import DatasetError, UsageError
from op_profiler.measure.measurement import Measurement
from op_profiler.report.dataset import show_contents

from ..command_line import op_profiler


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Dataset]:
    with Dataset.open(f"sqlite:///{tmp_path}/other.db") as opened:
        yield opened


def everything(dataset: Dataset) -> dict[str, list[Any]]:
    """All rows of all tables but the version's."""
    tables = [t for t in schema.metadata.tables.values() if t is not schema.schema_version]
    return {t.name: sorted(map(repr, map(dict, dataset.rows(t.select())))) for t in tables}


def side_by_side(example: Any, model: str) -> list[CorunMember]:
    return [
        CorunMember(
            operator_key=example.operator(i).key,
            schedule=example.schedule,
            settings=example.settings,
            model_key=model,
            alone_samples_us=(1.0,),
            together_samples_us=(1.5,),
        )
        for i in range(2)
    ]


def test_contents_tell_what_failed_and_what_is_noisy(filled: Dataset, example: Any) -> None:
    quiet = dataclasses.replace(example.measurement(), foreign_load=False, settled=False)
    one_thread = example.changed(threads=1)
    filled.record_all([example.row(0, settings=one_thread, measurement=quiet)])
    filled.record(example.row(1, settings=one_thread, complete=False))
    filled.record(example.row(0, settings=example.changed(cache="hot"), model_key=""))
    held = contents(filled)
    (model,) = held.models
    assert (model.key, model.name, model.operators, model.threads) == ("m", "resnet-18", 2, (2,))
    assert (model.measured, model.failed, model.foreign_load, model.unsettled, model.unfinished) == (2, 1, 1, 1, 1)
    assert model.device == example.device.processor
    assert (model.compiler, model.pipeline, model.tuned) == ("relay", None, None)
    (device,) = held.devices
    assert device["processor"] == example.device.processor and device["rows"] == 5
    assert held.elsewhere == {"default": 1} and held.failures == 1 and held.coruns == 0
    assert held.size_bytes > 10_000 and held.version == schema.VERSION


def test_builds_of_one_model_can_be_told_apart(dataset: Dataset, example: Any, capsys: Any) -> None:
    relax = dataclasses.replace(example.device, compiler="relax")
    dataset.add_device(relax)
    for key, device, changes in (
        ("relay", example.device, {"base_key": "relay"}),
        ("tuned", example.device, {"base_key": "relay"}),
        ("stock", relax, {"recipe": {"request": {"pipeline": "stock"}}}),
        ("vm", example.device, {"executor": "vm"}),
    ):
        example.add_model(dataset, key, operators=2, device_key=device.key, **changes)
    told = {one.key: (one.compiler, one.pipeline, one.tuned) for one in contents(dataset).models}
    assert told == {
        "relay": ("relay", None, False),
        "tuned": ("relay", None, True),
        "stock": ("relax", "stock", None),
        "vm": ("relay", None, None),
    }
    show_contents(contents(dataset))
    shown = " ".join(capsys.readouterr().out.split())
    for words in ("default", "tuned", "relax,", "pipeline", "stock", "executor", "vm"):
        assert words in shown


def test_merged_datasets_hold_what_each_held_and_nothing_twice(dataset: Dataset, other: Dataset, example: Any) -> None:
    example.fill(other)
    example.add_model(other, "n", operators=3)
    other.record(example.row(2, model_key="n"))
    other.record_corun(example.device, side_by_side(example, "n"))
    record_explanations(other, "n", {example.operator(2).key: {"us": 1.0}})
    written = merge([other], dataset)
    assert everything(dataset) == everything(other)
    assert written["measurements"] == 3 and written["failures"] == 1 and written["coruns"] == 1
    assert list(flat_rows(dataset)) == list(flat_rows(other))
    again = merge([other, other], dataset)
    assert not any(again.values())
    assert everything(dataset) == everything(other)


def test_merging_keeps_the_better_row_whichever_side_it_is_on(dataset: Dataset, other: Dataset, example: Any) -> None:
    clean = dataclasses.replace(example.measurement(), foreign_load=False)
    for one in (dataset, other):
        example.add_model(one, operators=3)
    dataset.record(example.row(0, measurement=clean))
    dataset.record(example.row(1, measurement=Measurement(error="does not compile")))
    dataset.record(example.row(2))
    other.record(example.row(0))
    other.record(example.row(1))
    newer = dataclasses.replace(example.measurement(), median_us=7.0)
    other.record(example.row(2, measurement=newer))
    merge([other], dataset)
    found = dataset.measurements_of("m", threads=2, cache="model")
    assert [found[example.operator(i).key].measurement for i in range(3)] == [clean, example.measurement(), newer]
    assert [f.error for f in dataset.failures()] == ["does not compile"]


def test_a_merge_that_fails_changes_nothing(
    dataset: Dataset, other: Dataset, example: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    example.fill(other)
    with other.transaction() as connection:  # a row that the tables of the other side refuse
        connection.exec_driver_sql("PRAGMA ignore_check_constraints = ON")
        connection.execute(schema.model_timings.update().values(min_us=-1.0))
    with pytest.raises(DatasetError):
        merge([other], dataset)
    assert dataset.models() == [] and not any(dataset.counts().values())


def test_a_removed_model_leaves_what_holds_without_it(filled: Dataset, example: Any) -> None:
    example.add_model(filled, "n", operators=3)
    filled.record(example.row(2, model_key="n"))
    filled.record_corun(example.device, side_by_side(example, "n"))
    hot = example.row(0, settings=example.changed(cache="hot"), model_key="")
    filled.record(hot)
    removed = remove_models(filled, ["n"])
    assert removed["models"] == 1 and removed["measurements"] == 1 and removed["coruns"] == 1
    assert removed["operators"] == 1  # that only n had
    assert [m.key for m in filled.models()] == ["m"]
    assert len(filled.measurements_of("m", threads=2, cache="model")) == 2
    remove_models(filled, ["m"])
    counts = filled.counts()
    assert counts["models"] == 0 and counts["measurements"] == 1 and counts["operators"] == 1
    assert filled.failures() == [] and counts["devices"] == 1


def test_any_number_of_groups_goes(postgres_url: str, example: Any) -> None:
    """A statement of PostgreSQL takes 65,535 values."""
    with Dataset.open(postgres_url) as dataset:
        example.fill(dataset)
        dataset.record_corun(example.device, side_by_side(example, "m"))
        for table, columns in (
            ("coruns", [column.name for column in schema.coruns.c]),
            ("corun_members", [column.name for column in schema.corun_members.c]),
        ):
            copied = ", ".join({"key": "'k' || n", "corun_key": "'k' || n"}.get(name, name) for name in columns)
            copy = f"INSERT INTO {table} SELECT {copied} FROM {table}, generate_series(1, 70000) AS n"
            with dataset.transaction(), dataset.read() as connection:
                connection.exec_driver_sql(copy)
        assert remove_models(dataset, ["m"])["coruns"] == 70_001
        assert not dataset.rows(schema.coruns.select())


def test_a_side_by_side_run_that_failed_does_not_replace_one_with_times(dataset: Dataset, example: Any) -> None:
    example.add_model(dataset)
    members = side_by_side(example, "m")
    dataset.record_corun(example.device, members)
    failed = [dataclasses.replace(one, together_samples_us=(), error="a lane failed") for one in members]
    dataset.record_corun(example.device, failed)
    (corun,) = dataset.coruns()
    assert corun.members == tuple(members)
    (failure,) = dataset.failures("m")
    assert failure.error == "a lane failed" and failure.settings == example.settings


# The command


def command(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return op_profiler("dataset", *words, folder=folder)


def test_the_command_lists_merges_and_removes(tmp_path: Path, example: Any) -> None:
    with Dataset.open(f"sqlite:///{tmp_path}/a.db") as one:
        example.fill(one)
        example.add_model(one, "n", name="vgg-16")
    shown = command(tmp_path, "--db=sqlite:///a.db")
    assert shown.returncode == 0 and "local:resnet-18" in shown.stdout and "failures: 1" in shown.stdout
    listed = command(tmp_path, "--db=sqlite:///a.db", "--failures")
    assert "operator: resnet-18: conv2d + clip | 1x65x112x112 at 2 threads" in listed.stdout
    assert json.loads(command(tmp_path, "--db=sqlite:///a.db", "--failures", "--json").stdout)[0]["cause"] == "operator"
    with Dataset.open(f"sqlite:///{tmp_path}/a.db") as one:
        quarantine(one, "0" * 32, "vgg-16 took 2 workers down", example.settings, example.device)
    listed = command(tmp_path, "--db=sqlite:///a.db", "--failures")
    assert "operator: quarantined: vgg-16 took 2 workers down\n" in listed.stdout
    with Dataset.open(f"sqlite:///{tmp_path}/a.db") as one:
        release(one, "0" * 32)

    assert command(tmp_path, "merge", "sqlite:///a.db", "--into=sqlite:///a.db").returncode == 2
    merged = command(tmp_path, "merge", "sqlite:///a.db", "--into=sqlite:///new/c.db", "--json")
    assert merged.returncode == 0 and json.loads(merged.stdout)["models"] == 2
    assert command(tmp_path, "merge", "sqlite:///none.db", "--into=sqlite:///c.db").returncode == 5

    db = "--db=sqlite:///new/c.db"
    asked = command(tmp_path, "remove", "resnet-18", db)
    assert asked.returncode == 2 and "--yes" in asked.stderr
    wrong = command(tmp_path, "remove", "resnet18", "--yes", db)
    assert wrong.returncode == 2 and "resnet-18" in wrong.stderr
    assert command(tmp_path, "remove", "local:resnet-18", "--yes", db).returncode == 0
    held = json.loads(command(tmp_path, "--json", db).stdout)
    assert [model["name"] for model in held["models"]] == ["vgg-16"] and held["failures"] == 0


def test_databases_and_parquet_files_are_merged_in_any_combination(
    filled: Dataset, sqlite_url: str, example: Any, tmp_path: Path
) -> None:
    table, parts, whole = (str(tmp_path / name) for name in ("table.parquet", "parts", "whole.parquet"))
    export_table(filled, Path(table), format="parquet")
    filled.record(example.row(0, settings=example.changed(cache="hot"), model_key=""))
    export_table(filled, Path(parts), format="parquet", partition_by=("anchor",), where="cache = 'hot'")
    combine([table, parts], whole)
    assert sorted(map(str, read_parquet(whole))) == sorted(map(str, flat_rows(filled)))
    address = f"sqlite:///{tmp_path}/other.db"
    combine([whole], address)
    with Dataset.open(address, read_only=True) as other:
        assert sorted(map(str, flat_rows(other))) == sorted(map(str, flat_rows(filled)))
    combine([address], whole)  # what the file has stays, and nothing comes twice
    assert len(read_parquet(whole)) == len(list(flat_rows(filled)))
    with pytest.raises(UsageError, match="is one of the sources"):
        combine([whole, table], whole)
    with pytest.raises(DatasetError, match="there is no"):
        combine([str(tmp_path / "missing.parquet")], address)


def test_files_are_merged_into_a_server(other: Dataset, postgres_url: str, example: Any, tmp_path: Path) -> None:
    table, address = str(tmp_path / "table.parquet"), f"sqlite:///{tmp_path}/other.db"
    example.fill(other)
    export_table(other, Path(table), format="parquet")
    combine([table, address], postgres_url)
    written = combine([address, table], postgres_url).written
    assert written["measurements"] == written["models"] == written["operators"] == 0
    with Dataset.open(postgres_url, read_only=True) as merged:
        assert everything(merged)["measurements"] == everything(other)["measurements"]
        assert list(flat_rows(merged)) == list(flat_rows(other))


def test_a_file_is_one_of_the_sources_however_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="is one of the sources"):
        combine(["sqlite:///a.db"], f"sqlite:///{tmp_path}/a.db")
