"""Opening a dataset of another version: upgraded in one transaction, or refused and left alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy import Column, Connection, ForeignKey, MetaData, Table, Text

from op_profiler.dataset import Dataset, migrations, schema
from op_profiler.errors import DatasetError


def fill_licences(connection: Connection) -> None:
    connection.exec_driver_sql("UPDATE models SET licence = 'MIT' WHERE name = 'resnet-18'")


def fail_half_way(connection: Connection) -> None:
    connection.exec_driver_sql("DELETE FROM measurements")
    connection.exec_driver_sql("ALTER TABLE no_such_table ADD COLUMN x TEXT")


def grown() -> MetaData:
    """The tables with a column, an index and a table that there are not."""
    tables = MetaData()
    for table in schema.metadata.tables.values():
        table.to_metadata(tables)
    tables.tables["models"].append_column(Column("licence", Text, nullable=False, server_default="it's unknown"))
    Table("licences", tables, Column("model_key", ForeignKey("models.key"), index=True), Column("text", Text))
    return tables


def test_an_older_version_gets_what_is_declared_and_what_a_step_does(
    url: str, example: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Dataset.open(url) as dataset:
        example.fill(dataset)
        names = [model.name for model in dataset.models()]
    monkeypatch.setattr(schema, "metadata", grown())
    monkeypatch.setitem(migrations.STEPS, schema.VERSION + 1, (fill_licences,))
    monkeypatch.setattr(schema, "VERSION", schema.VERSION + 2)
    with pytest.raises(DatasetError, match="older version .* open it once for writing"):
        Dataset.open(url, read_only=True)
    for _ in range(2):
        with Dataset.open(url) as dataset, dataset.read() as connection:
            assert migrations.stored_version(connection) == schema.VERSION
            found = {name: licence for name, licence in connection.exec_driver_sql("SELECT name, licence FROM models")}
            assert found == {name: "MIT" if name == "resnet-18" else "it's unknown" for name in names}
            assert connection.exec_driver_sql("SELECT count(*) FROM licences").scalar() == 0
            assert dataset.counts()["measurements"] == 2


def test_an_upgrade_that_fails_changes_nothing(url: str, example: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with Dataset.open(url) as dataset:
        example.fill(dataset)
    with monkeypatch.context() as patch:
        patch.setattr(schema, "metadata", grown())
        patch.setitem(migrations.STEPS, schema.VERSION, (fail_half_way,))
        patch.setattr(schema, "VERSION", schema.VERSION + 1)
        with pytest.raises(DatasetError, match="no_such_table"):
            Dataset.open(url)
    with Dataset.open(url) as dataset, dataset.read() as connection:
        assert dataset.counts()["measurements"] == 2
        assert "licences" not in sqlalchemy.inspect(connection).get_table_names()


def test_a_newer_version_is_refused_and_left_alone(url: str, example: Any) -> None:
    with Dataset.open(url) as dataset:
        example.fill(dataset)
        with dataset.transaction() as connection:
            connection.execute(schema.schema_version.update().values(version=schema.VERSION + 1))
    file = Path(url.removeprefix("sqlite:///"))
    content = file.read_bytes() if url.startswith("sqlite") else b""
    for read_only in (True, False):
        with pytest.raises(DatasetError, match=rf"version {schema.VERSION + 1}; .* up to {schema.VERSION}.*Upgrade"):
            Dataset.open(url, read_only=read_only)
    if url.startswith("sqlite"):
        assert file.read_bytes() == content
