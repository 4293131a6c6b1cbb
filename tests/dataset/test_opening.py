"""Opening a database: what is made, what is refused, and that nothing is written over."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy import event

from op_profiler.dataset import Dataset, schema
from op_profiler.dataset.address import absolute_address
from op_profiler.errors import DatasetError, MissingPackageError, UsageError


def file_of(url: str) -> Path:
    return Path(url.removeprefix("sqlite:///"))


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = (
        "import sys, op_profiler.dataset as d; assert 'Dataset' in dir(d) or d.__all__;"
        "heavy = {'sqlalchemy', 'pandas', 'pyarrow', 'psycopg'} & set(sys.modules); assert not heavy, heavy"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2] / "python")}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)


def test_every_public_name_is_there() -> None:
    import op_profiler.dataset as package

    assert all(getattr(package, name) is not None for name in package.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        package.Nothing  # noqa: B018


def test_what_was_written_is_there_when_opened_again(url: str, example: Any) -> None:
    with Dataset.open(url) as dataset:
        example.fill(dataset)
        counts = dataset.counts()
    for read_only in (True, False):
        with Dataset.open(url, create=False, read_only=read_only) as dataset:
            assert dataset.counts() == counts


@pytest.mark.parametrize("name", ["mine.db", "what? #1.sqlite", "of three.sqlite3"])
def test_the_path_of_a_sqlite_file_stands_for_its_address(name: str, tmp_path: Path, example: Any) -> None:
    path = tmp_path / name
    with Dataset.open(str(path)) as dataset:
        example.fill(dataset)
        counts = dataset.counts()
    with sqlite3.connect(path) as found, Dataset.open(str(path), create=False, read_only=True) as again:
        assert found.execute("select count(*) from measurements").fetchone()[0] > 0
        assert again.counts() == counts
    assert absolute_address("mine.db") == f"sqlite:///{Path('mine.db').absolute()}"


def test_reading_a_model_takes_no_more_statements_than_reading_one_operator(sqlite_url: str, example: Any) -> None:
    """That is why it takes 50 ms; to time it would tell of the machine and its load as well."""
    models = {"small": 1, "large": 60}
    with Dataset.open(sqlite_url) as dataset:
        for key, count in models.items():
            example.add_model(dataset, key, operators=count)
            dataset.record_all([example.row(i, model_key=key) for i in range(count)])
    counts = {}
    for key, operators in models.items():
        statements: list[str] = []
        with Dataset.open(sqlite_url, read_only=True) as dataset, listening(statements):
            assert len(dataset.model_operators(key)) == operators
            assert len(dataset.measurements_of(key, threads=2, cache="model")) == operators
        counts[key] = len(statements)
    assert 0 < counts["large"] == counts["small"]


@contextlib.contextmanager
def listening(statements: list[str]) -> Iterator[None]:
    """Note every statement that goes to a database."""

    def note(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        statements.append(statement)

    event.listen(sqlalchemy.Engine, "before_cursor_execute", note)
    try:
        yield
    finally:
        event.remove(sqlalchemy.Engine, "before_cursor_execute", note)


def test_sqlite_is_set_up_for_several_processes(sqlite_url: str) -> None:
    with Dataset.open(sqlite_url) as dataset, dataset.read() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA busy_timeout").scalar() == 30_000
        assert connection.exec_driver_sql("PRAGMA foreign_keys").scalar() == 1


def test_a_dataset_opened_for_reading_refuses_to_write(url: str, example: Any) -> None:
    with Dataset.open(url) as dataset:
        example.add_model(dataset)
    with Dataset.open(url, read_only=True) as dataset, pytest.raises(DatasetError, match="read-only"):
        dataset.record(example.row())


def test_reading_leaves_no_other_files(sqlite_url: str, example: Any) -> None:
    with Dataset.open(sqlite_url) as dataset:
        example.fill(dataset)
    content = file_of(sqlite_url).read_bytes()
    with Dataset.open(sqlite_url, read_only=True) as dataset:
        assert dataset.counts()["measurements"] == 2
    assert os.listdir(file_of(sqlite_url).parent) == ["test.db"]
    assert file_of(sqlite_url).read_bytes() == content


def test_the_connection_that_reads_cannot_write(filled: Dataset) -> None:
    with pytest.raises(DatasetError, match="read-?only"), filled.read() as connection:
        connection.exec_driver_sql("DELETE FROM measurements")
    assert filled.counts()["measurements"] == 2


def test_nothing_is_made_where_that_was_not_asked_for(url: str) -> None:
    for options in ({"create": False}, {"read_only": True}):
        with pytest.raises(DatasetError, match="no dataset"):
            Dataset.open(url, **options)
    if url.startswith("sqlite"):
        assert not file_of(url).parent.exists()


# Files that are something else


@pytest.mark.parametrize(
    "content", [b"PK\3\4" + b"x" * 5000, b"SQLite format 3\0" + b"\xff" * 4080], ids=["zip", "junk"]
)
@pytest.mark.parametrize("read_only", [False, True], ids=["write", "read"])
def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path, content: bytes, read_only: bool) -> None:
    path = tmp_path / "other.db"
    path.write_bytes(content)
    with pytest.raises(DatasetError, match="other.db .*nothing was changed"):
        Dataset.open(f"sqlite:///{path}", read_only=read_only)
    assert path.read_bytes() == content


@pytest.mark.parametrize("share", [0.001, 0.1, 0.5, 0.96, 0.9999])
def test_a_file_that_was_cut_off_is_refused_and_left_alone(sqlite_url: str, example: Any, share: float) -> None:
    with Dataset.open(sqlite_url) as dataset:
        example.fill(dataset)
    path = file_of(sqlite_url)
    content = path.read_bytes()[: int(path.stat().st_size * share)]
    path.write_bytes(content)
    with pytest.raises(DatasetError, match="cut off; nothing was changed. Restore a copy"):
        Dataset.open(sqlite_url)
    assert path.read_bytes() == content


def test_an_empty_file_holds_no_dataset_and_becomes_one(tmp_path: Path) -> None:
    path = tmp_path / "empty.db"
    path.touch()
    with pytest.raises(DatasetError, match="contains no dataset"):
        Dataset.open(f"sqlite:///{path}", read_only=True)
    with Dataset.open(f"sqlite:///{path}") as dataset:
        assert dataset.models() == []


def test_a_database_of_another_program_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "browser.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE cookies (value TEXT)")
    connection.close()
    content = path.read_bytes()
    with pytest.raises(DatasetError, match="another program .cookies.; nothing was changed"):
        Dataset.open(f"sqlite:///{path}")
    assert path.read_bytes() == content


def test_postgresql_is_shared_with_other_programs_unless_names_collide(postgres_url: str) -> None:
    import psycopg

    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("CREATE TABLE cookies (value TEXT)")
        connection.execute("CREATE TABLE models (value TEXT)")
        with pytest.raises(DatasetError, match="another program .models."):
            Dataset.open(postgres_url)
        connection.execute("DROP TABLE models")
    with Dataset.open(postgres_url) as dataset:
        assert dataset.models() == []


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="is a folder"):
        Dataset.open(f"sqlite:///{tmp_path}")


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DatasetError, match="cannot be opened: Not a directory"):
        Dataset.open(f"sqlite:///{tmp_path}/file/folder/x.db")


def test_what_was_closed_connects_again_and_serves_one_at_a_time(url: str) -> None:
    with Dataset.open(url) as first, Dataset.open(url) as second:
        engines = first._engine, second._engine
        assert engines[0] is not engines[1]
    with Dataset.open(url, read_only=True) as reader, Dataset.open(url) as third, Dataset.open(url) as fourth:
        assert reader._engine not in engines and third._engine is not fourth._engine
        assert engines[0] in (third._engine, fourth._engine)
        assert reader.counts() == third.counts() == fourth.counts()


def test_closing_twice_gives_nothing_back_that_another_one_has(url: str) -> None:
    first = Dataset.open(url)
    first.close()
    with Dataset.open(url) as second:
        first.close()
        with Dataset.open(url) as third:
            assert third._engine is not second._engine


def test_the_same_address_in_another_folder_is_another_file(
    tmp_path: Path, example: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("one", "other"):
        (tmp_path / folder).mkdir()
        monkeypatch.chdir(tmp_path / folder)
        with Dataset.open("sqlite:///same.db") as dataset:
            assert not dataset.models()
            example.add_model(dataset)
            assert len(dataset.models()) == 1


def test_tables_that_went_since_they_were_read_are_missed(url: str) -> None:
    """What was found complete is asked less the next time."""
    Dataset.open(url).close()
    statements: list[str] = []
    for _ in range(2):
        Dataset.open(url, read_only=True).close()
    with listening(statements):
        Dataset.open(url, read_only=True).close()
    assert len([one for one in statements if one.startswith("SELECT")]) == 1
    with Dataset.open(url) as dataset, dataset.transaction(), dataset.read() as connection:
        connection.exec_driver_sql(f"DROP TABLE {schema.schema_version.name}")
    with pytest.raises(DatasetError, match="contains tables of another program"):
        Dataset.open(url, read_only=True)


# Addresses


@pytest.mark.parametrize(
    "url, message",
    [
        ("results/x", r"write it like results/\S+\.db"),
        ("", r"write it like results/\S+\.db"),
        ("sqlite://", "in memory"),
        ("sqlite:///:memory:", "in memory"),
        ("mysql://user:secret@host/name", "mysql are not supported"),
    ],
)
def test_addresses_that_cannot_work(url: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        Dataset.open(url)
    assert "secret" not in str(caught.value)


def test_a_server_that_does_not_answer(tmp_path: Path) -> None:
    pytest.importorskip("psycopg")
    with pytest.raises(DatasetError, match="cannot be used: .*Check the address") as caught:
        Dataset.open(f"postgresql://someone:secret@/name?host={tmp_path}")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg", "postgresql+psycopg2"])
def test_every_way_to_write_postgresql_uses_psycopg(postgres_url: str, scheme: str) -> None:
    with Dataset.open(postgres_url.replace("postgresql", scheme, 1)) as dataset:
        assert dataset._engine.driver == "psycopg"


def test_postgresql_without_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingPackageError, match="env_var.sh postgres"):
        Dataset.open("postgresql://host/name")


def test_paths_with_characters_that_mean_something_in_addresses(tmp_path: Path, example: Any) -> None:
    url = sqlalchemy.URL.create("sqlite", database=str(tmp_path / "a b%20#1 µ.db")).render_as_string()
    with Dataset.open(url) as dataset:
        example.fill(dataset)
    with Dataset.open(url, read_only=True) as dataset:
        assert dataset.counts()["measurements"] == 2
