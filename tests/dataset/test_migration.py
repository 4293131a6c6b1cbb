"""Datasets of older versions, as those versions wrote them."""

from __future__ import annotations

import contextlib
import dataclasses
import sqlite3
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy import Table, event

from op_profiler.dataset import Dataset, engine, flat_rows, keys, migrations, schema
from op_profiler.dataset.address import parse_url
from op_profiler.dataset.row import Model
from op_profiler.errors import DatasetError
from op_profiler.measure.measurement import RESOURCE_FIELDS, Device, Measurement, Settings
from op_profiler.operators.locations import LOCATION_COLUMNS
from op_profiler.operators.operator import Operator
from op_profiler.schedules.factors import NAMES as FACTOR_NAMES
from op_profiler.schedules.schedule import Schedule

KNOBS = {"tile_ic": [4, 16], "tile_oc": [4, 16], "tile_ow": [8, 14], "unroll_kw": True}


@pytest.fixture(params=[f"version{number}.sql" for number in range(1, schema.VERSION)])
def old(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    path = tmp_path / f"{request.param}.db"
    connection = sqlite3.connect(path)
    connection.executescript(Path(__file__).with_name(request.param).read_text())
    connection.close()
    return f"sqlite:///{path}"


def test_an_older_dataset_gets_new_columns_and_keeps_its_rows(old: str) -> None:
    with Dataset.open(old) as dataset, dataset.read() as connection:
        assert migrations.stored_version(connection) == schema.VERSION
        rows = list(flat_rows(dataset))
        assert len(rows) == 2 and {row["model_name"] for row in rows} == {"resnet-18"}
        for row in rows:
            assert row["knobs"]["tile_ow"] == [8, 14]
            assert row["tile"] == {"oc": 16, "ow": 14} and row["split"] == {"ic": 16}
            assert row["compiler"] == "relay" and row["core_type"] == "common" and row["launches"] is None
            assert row["threads"] == 2 and row["governor"] is None and row["numa_node_effective"] is None
            assert row["vectorize"] == 16 and row["unroll"] == "unroll_kw" and row["reorder"] is None
            assert row["run_label"] == "" and row["project_revision"] is None and row["user_revision"] is None
            assert row["layers"] is row["fx_nodes"] is row["source_lines"] is None
        assert len(dataset.measurements_of("m", threads=2, cache="model")) == 2
        assert [model.recipe for model in dataset.models()] == [None]


def test_an_older_dataset_takes_devices_without_cores_afterwards(old: str, example: Any) -> None:
    with Dataset.open(old) as dataset:
        dataset.add_device(dataclasses.replace(example.device, processor="unnamed", cores=None))
    with sqlite3.connect(old.removeprefix("sqlite:///")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("SELECT count(*) FROM devices WHERE cores IS NULL").fetchall() == [(1,)]


def test_an_upgraded_dataset_has_the_columns_of_a_new_one(old: str, sqlite_url: str) -> None:
    def columns(url: str) -> dict[str, set[tuple[str, str, int, int]]]:
        with Dataset.open(url), sqlite3.connect(url.removeprefix("sqlite:///")) as connection:
            rows = {t: connection.execute(f"PRAGMA table_info({t})").fetchall() for t in schema.metadata.tables}
        return {t: {(name, kind, null, key) for _, name, kind, null, _, key in r} for t, r in rows.items()}

    assert columns(old) == columns(sqlite_url)


def test_what_the_newest_version_got_before_its_release_is_added(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_closed", {})  # one that another test closed knows that all columns were there
    with Dataset.open(url), sqlalchemy.create_engine(parse_url(url)).begin() as connection:
        connection.exec_driver_sql("DROP TABLE explanations")
        connection.exec_driver_sql("ALTER TABLE models DROP COLUMN reads")
    with pytest.raises(DatasetError, match="open it once for writing"):
        Dataset.open(url, read_only=True)
    Dataset.open(url).close()
    with Dataset.open(url, read_only=True) as dataset:
        assert dataset.models() == [] and dataset.rows(schema.explanations.select()) == []


@pytest.mark.parametrize(
    ("kind", "table"),
    [
        (Operator, schema.operators),
        (Schedule, schema.schedules),
        (Settings, schema.settings),
        (Device, schema.devices),
        (Measurement, schema.measurements),
        (Measurement, schema.model_timings),
        (Model, schema.models),
    ],
)
def test_every_field_has_a_column_which_older_datasets_can_get(kind: type[Any], table: Table) -> None:
    fields = {field.name for field in dataclasses.fields(kind)} - {"factors"}
    assert fields <= set(table.columns.keys())
    added = [column for column in table.columns if column.info["since"] > 1]
    assert all(column.nullable or column.server_default is not None for column in added)


def test_a_resumed_collection_finds_what_an_older_version_stored(old: str, example: Any) -> None:
    what = {"schedule": Schedule("conv2d_NCHWc.x86", KNOBS), "device_key": example.device.key, "model_key": "m"}
    with Dataset.open(old) as dataset:
        stored = {key for key in dataset.measurements_of("m", threads=2, cache="model")}
        assert stored
        for key in stored:
            assert dataset.find_measurement(key, settings=example.settings, **what) is not None
        assert dataset.find_model_timing("m", threads=2, cache="model", resources={"core_set": (0, 1)}) is not None
        assert dataset.find_model_timing("m", threads=2, cache="model", resources={"core_set": (1, 0)}) is None
        assert dataset.find_model_timing("m", threads=2, cache="model", resources={"governor": "powersave"}) is None


def test_failures_of_an_older_dataset_are_kept_with_their_cause(old: str) -> None:
    path = old.removeprefix("sqlite:///")
    if "version5" in path or "version6" in path:
        pytest.skip("failures are kept since version 5")
    threads = "asked for 2 threads, TVM's pool answers 1; TVM_NUM_THREADS was 1 when TVM was imported"
    with sqlite3.connect(path) as connection:
        no_times = "median_us = NULL, min_us = NULL, mean_us = NULL, rounds = 0"
        connection.execute(f"UPDATE model_timings SET error = ?, {no_times}", (threads,))
    connection.close()
    with Dataset.open(old) as dataset:
        failures = {row["operator_key"]: row for row in dataset.rows(schema.failures.select())}
        assert len(failures) == 2
        whole = failures.pop(None)
        assert (whole["error"], whole["error_cause"], whole["schedule_key"]) == (threads, "machine", None)
        (operator,) = failures.values()
        assert operator["error_cause"] == "operator" and operator["model_key"] == "m"
        key = keys.failure_key(operator["measured_key"], operator["error"])
        assert operator["key"] == key and operator["machine_state"] is None
        by_error = {row["error"]: row for row in flat_rows(dataset)}
        assert by_error[operator["error"]]["error_cause"] == "operator"
        assert by_error[None]["error_cause"] is None


def test_whether_an_older_timing_settled_is_told_by_a_column(old: str, example: Any) -> None:
    with Dataset.open(old) as dataset:
        found = dataset.find_model_timing("m", threads=2, cache="model", resources={"core_set": (0, 1)})
        assert found is not None and found.timing.coverage is None
        assert found.timing.whole_model.energy_cache == "model"
        (timed,) = [row for row in flat_rows(dataset) if row["error"] is None]
        assert timed["energy_cache"] == "hot"  # operators were called over and over for it
        assert found.timing.whole_model.settled is True and "settled" not in found.timing.details


@pytest.mark.parametrize(("low_us", "settled"), [(99, True), (98, False), (None, False)])
def test_operators_of_an_older_dataset_settled_by_their_own_intervals(
    low_us: float | None, settled: bool, old: str, example: Any
) -> None:
    if "version6" in old:
        pytest.skip("each operator has its own convergence since version 6")
    with sqlite3.connect(old.removeprefix("sqlite:///")) as connection:
        connection.execute(
            "UPDATE measurements SET median_us = 100, ci_low_us = ?, ci_high_us = 101 WHERE error IS NULL", (low_us,)
        )
    connection.close()
    with Dataset.open(old) as dataset:
        (timed,) = [row for row in flat_rows(dataset) if row["error"] is None]
        assert timed["settled"] is settled and timed["run_id"] is None and timed["discarded_share"] is None
        found = dataset.find_model_timing("m", threads=2, cache="model", resources={"core_set": (0, 1)})
        assert found is not None and found.timing.whole_model.settled is True


def test_keys_are_those_of_version_3(example: Any) -> None:
    """Computed by the code before there were resources."""
    assert example.settings.key == "c1e927b8660276d0"
    assert keys.measurement_key("o", "s", "d", example.settings, "m") == "a76640a3e1bada04d63602d84eea2df6"
    assert keys.timing_key("m", "d", example.settings) == "61fd2d52874a946749ef4af3735e147c"
    read_back = example.changed(governor_effective="powersave", numa_node_effective=0)
    assert keys.timing_key("m", "d", read_back) == "61fd2d52874a946749ef4af3735e147c"
    asked = {keys.timing_key("m", "d", example.changed(**{name: 1})) for name in RESOURCE_FIELDS}
    assert len(asked | {"61fd2d52874a946749ef4af3735e147c"}) == len(RESOURCE_FIELDS) + 1


@pytest.fixture
def old_on_server(postgres_url: str, example: Any) -> str:
    """Version 1 on PostgreSQL, made from today's tables by taking away what it did not have."""
    with Dataset.open(postgres_url) as dataset:
        example.fill(dataset)
    with sqlalchemy.create_engine(parse_url(postgres_url)).begin() as connection:
        for name in FACTOR_NAMES:
            connection.exec_driver_sql(f"ALTER TABLE schedules DROP COLUMN factor_{name}")
        connection.exec_driver_sql("ALTER TABLE model_operators DROP COLUMN schedule_key")
        connection.exec_driver_sql("ALTER TABLE model_operators DROP COLUMN launches")
        for name in LOCATION_COLUMNS:
            connection.exec_driver_sql(f"ALTER TABLE model_operators DROP COLUMN {name}")
        connection.exec_driver_sql("ALTER TABLE devices DROP COLUMN core_type")
        connection.exec_driver_sql("ALTER TABLE devices ALTER COLUMN cores SET NOT NULL")
        for name in RESOURCE_FIELDS:
            connection.exec_driver_sql(f"ALTER TABLE settings DROP COLUMN {name}, DROP COLUMN {name}_effective")
        connection.exec_driver_sql("DROP TABLE corun_members, coruns, failures")
        for table in ("measurements", "model_timings"):
            between = ("steady_us", "steady_low_us", "steady_high_us", "again_low_us", "again_high_us")
            for name in ("error_cause", "settled", "energy_cache", "call_overhead_us", *between):
                connection.exec_driver_sql(f"ALTER TABLE {table} DROP COLUMN {name}")
        connection.exec_driver_sql("ALTER TABLE model_timings DROP COLUMN coverage")
        for name in ("base_key", "asked", "label", "recipe"):
            connection.exec_driver_sql(f"ALTER TABLE models DROP COLUMN {name}")
        for name in ("project_revision", "user_revision"):
            connection.exec_driver_sql(f"ALTER TABLE model_timings DROP COLUMN {name}")
        connection.exec_driver_sql("ALTER TABLE devices DROP COLUMN machine_id")
        connection.exec_driver_sql("UPDATE op_profiler_schema SET version = 1")
    return postgres_url


def test_postgresql_of_version_1_is_upgraded(old_on_server: str, example: Any) -> None:
    with Dataset.open(old_on_server) as dataset:
        assert len(list(flat_rows(dataset))) == 2
        assert dataset.coruns() == []
        assert len(dataset.rows(schema.failures.select())) == 1
        dataset.add_device(dataclasses.replace(example.device, processor="unnamed", cores=None))


WRITE = """
with Dataset.open(sys.argv[1]) as dataset:
    example.add_model(dataset, sys.argv[2])
    dataset.record(example.row(model_key=sys.argv[2]))
"""


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_upgrades_race_with_each_other_and_with_a_writer_of_the_old_version(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, start: Callable[..., subprocess.Popen[str]]
) -> None:
    """It writes when they come, and goes on when one of them has upgraded the tables under it."""
    if kind == "sqlite":
        url, path = f"sqlite:///{tmp_path}/old.db", tmp_path / "old.db"
        with contextlib.closing(sqlite3.connect(path)) as made:
            made.executescript(Path(__file__).with_name("version1.sql").read_text())
        lock = "BEGIN IMMEDIATE"
    else:
        url, lock = str(request.getfixturevalue("old_on_server")), f"SELECT pg_advisory_xact_lock({0x6F705F70})"
    old_writer = sqlalchemy.create_engine(parse_url(url))
    if kind == "sqlite":  # the driver would begin transactions by itself
        event.listen(old_writer, "connect", lambda connection, _record: setattr(connection, "isolation_level", None))

    def write(connection: sqlalchemy.Connection, key: str) -> None:
        columns = "name, source, batch_size, precision, executor, target, notes, device_key, extracted, added_at"
        connection.exec_driver_sql(
            f"INSERT INTO models (key, {columns}) SELECT '{key}', {columns} FROM models WHERE key = 'm'"
        )

    with old_writer.begin() as connection:
        connection.exec_driver_sql(lock)
        write(connection, "old")
        newer = [start(WRITE, url, f"new{number}") for number in range(3)]
        assert newer[0].poll() is None
    for process in newer:
        _, errors = process.communicate(timeout=900)
        assert process.returncode == 0, errors
    with old_writer.begin() as connection:
        connection.exec_driver_sql(lock)
        write(connection, "older")
    old_writer.dispose()
    with Dataset.open(url, read_only=True) as dataset, dataset.read() as connection:
        assert migrations.stored_version(connection) == schema.VERSION
        assert {model.key for model in dataset.models()} == {"m", "old", "older", "new0", "new1", "new2"}
        assert dataset.counts()["measurements"] == 2 + 3 and len(dataset.failures()) == 1
