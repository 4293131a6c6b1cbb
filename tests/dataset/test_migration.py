"""Datasets of older versions, as those versions wrote them."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from op_profiler.dataset import Dataset, flat_rows, schema


@pytest.fixture(params=["version1.sql", "version2.sql"])
def old(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    path = tmp_path / "old.db"
    connection = sqlite3.connect(path)
    connection.executescript(Path(__file__).with_name(request.param).read_text())
    connection.close()
    return f"sqlite:///{path}"


def test_an_older_dataset_gets_new_columns_and_keeps_its_rows(old: str) -> None:
    with Dataset.open(old) as dataset, dataset.read() as connection:
        assert schema.stored_version(connection) == schema.VERSION
        rows = list(flat_rows(dataset))
        assert len(rows) == 2 and {row["model_name"] for row in rows} == {"resnet-18"}
        for row in rows:
            assert row["knobs"]["tile_ow"] == [8, 14]
            assert row["tile"] == {"oc": 16, "ow": 14} and row["split"] == {"ic": 16}
            assert row["core_type"] == "common" and row["launches"] is None
            assert row["vectorize"] == 16 and row["unroll"] == "unroll_kw" and row["reorder"] is None
        assert len(dataset.measurements_of("m", threads=2, cache="model")) == 2


def test_an_older_dataset_takes_devices_without_cores_afterwards(old: str, example: Any) -> None:
    import dataclasses

    with Dataset.open(old) as dataset:
        dataset.add_device(dataclasses.replace(example.device, processor="unnamed", cores=None))
    with sqlite3.connect(old.removeprefix("sqlite:///")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("SELECT count(*) FROM devices WHERE cores IS NULL").fetchall() == [(1,)]


def test_postgresql_of_version_1_is_upgraded(postgres_url: str, example: Any) -> None:
    """Made from today's tables by taking away what version 1 did not have."""
    import dataclasses

    import sqlalchemy

    with Dataset.open(postgres_url) as dataset:
        example.fill(dataset)
    engine = sqlalchemy.create_engine(postgres_url.replace("postgresql://", "postgresql+psycopg://"))
    with engine.begin() as connection:
        for name in schema.FACTOR_NAMES:
            connection.exec_driver_sql(f"ALTER TABLE schedules DROP COLUMN factor_{name}")
        connection.exec_driver_sql("ALTER TABLE model_operators DROP COLUMN schedule_key")
        connection.exec_driver_sql("ALTER TABLE model_operators DROP COLUMN launches")
        connection.exec_driver_sql("ALTER TABLE devices DROP COLUMN core_type")
        connection.exec_driver_sql("ALTER TABLE devices ALTER COLUMN cores SET NOT NULL")
        connection.exec_driver_sql("UPDATE op_profiler_schema SET version = 1")
    with Dataset.open(postgres_url) as dataset:
        assert len(list(flat_rows(dataset))) == 2
        dataset.add_device(dataclasses.replace(example.device, processor="unnamed", cores=None))
