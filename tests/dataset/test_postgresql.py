"""What only a server has: it is started again, and its roles may do different things."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy

from op_profiler.dataset import Dataset, engine
from op_profiler.dataset.roles import allow
from op_profiler.errors import DatasetError, UsageError

from ..command_line import op_profiler
from ..postgresql import Server


def test_a_server_that_is_started_again_is_waited_for(
    postgresql: Server, postgres_url: str, example: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "SERVER_SECONDS", 600)  # beside any load

    def start() -> None:
        time.sleep(0.5)
        postgresql.start()

    with Dataset.open(postgres_url) as dataset:
        example.add_model(dataset)
        postgresql.stop()
        with pytest.raises(DatasetError, match="cannot be used"):
            Dataset.open(postgres_url)  # nobody knows yet that there is a server
        again = threading.Thread(target=start)
        again.start()
        with Dataset.open(postgres_url, was_open=True) as other:
            dataset.record(example.row())
            assert other.counts()["measurements"] == 1
        again.join()


def test_what_a_server_did_not_take_is_written_again(postgresql: Server, postgres_url: str, example: Any) -> None:
    tries: list[int] = []
    with Dataset.open(postgres_url) as dataset:
        example.add_model(dataset)

        def write() -> str:
            dataset.record(example.row())
            tries.append(1)
            if len(tries) == 1:
                postgresql.stop("immediate")
                postgresql.start()
            dataset.record_model_timing("m", example.settings, example.device, example.timing())
            return "stored"

        assert dataset.repeated(write) == "stored" and len(tries) == 2
        counts = dataset.counts()
        assert (counts["measurements"], counts["model_timings"]) == (1, 1)

        def fail() -> None:
            tries.append(1)
            dataset.record(example.row(model_key="nothing of this name"))

        with pytest.raises(DatasetError, match="refused"):
            dataset.repeated(fail)
        assert len(tries) == 3


def test_roles_read_or_write(postgres_url: str, example: Any) -> None:
    with Dataset.open(postgres_url) as dataset:
        example.add_model(dataset)
    address = allow(postgres_url, "a guest", writes=False)
    made, again = (sqlalchemy.make_url(one) for one in (address, allow(postgres_url, "a guest", writes=False)))
    assert (made.username, again.username, again.password) == ("a guest", "a guest", None) and made.password
    rack = allow(postgres_url, "rack", writes=True)
    with Dataset.open(rack) as dataset:
        dataset.record(example.row())
    with Dataset.open(address, read_only=True) as dataset:
        assert dataset.counts()["measurements"] == 1
    with pytest.raises(DatasetError, match="permission denied"), Dataset.open(address) as dataset:
        dataset.record(example.row(settings=example.changed(streams=2)))


def test_a_role_that_wrote_may_be_left_reading_only(postgres_url: str, example: Any) -> None:
    Dataset.open(postgres_url).close()
    address = allow(postgres_url, "narrowed", writes=True)
    narrowed = sqlalchemy.make_url(allow(postgres_url, "narrowed", writes=False))
    allow(postgres_url, str(sqlalchemy.make_url(postgres_url).username), writes=False)  # who made the tables keeps them
    with Dataset.open(postgres_url) as dataset:
        example.add_model(dataset)
    url = narrowed.set(password=sqlalchemy.make_url(address).password).render_as_string(hide_password=False)
    with Dataset.open(url, read_only=True) as reader:
        assert len(reader.models()) == 1
    with sqlalchemy.create_engine(url.replace("postgresql:", "postgresql+psycopg:")).connect() as rack:
        for statement in (
            "DELETE FROM measurements",
            "INSERT INTO op_profiler_schema VALUES (9, '')",
            "DROP TABLE models",
        ):
            with pytest.raises(sqlalchemy.exc.ProgrammingError, match="permission denied|must be owner"):
                rack.exec_driver_sql(statement)
            rack.rollback()


def test_only_who_made_the_tables_upgrades_them(postgres_url: str, example: Any) -> None:
    with Dataset.open(postgres_url) as dataset:
        example.fill(dataset)
        rack = allow(postgres_url, "upgrader", writes=True)
        with dataset.transaction(), dataset.read() as connection:
            connection.exec_driver_sql("ALTER TABLE models DROP COLUMN reads")
    with pytest.raises(DatasetError, match="must be owner of"):
        Dataset.open(rack)
    Dataset.open(postgres_url).close()
    with Dataset.open(rack) as dataset:
        assert [model.reads for model in dataset.models()] == [None]


def test_a_file_has_no_roles(sqlite_url: str) -> None:
    with pytest.raises(UsageError, match="roles are for postgresql"):
        allow(sqlite_url, "guest", writes=False)


@pytest.mark.parametrize("read_only", [True, False])
def test_a_reader_sees_one_state_and_cannot_write(postgres_url: str, example: Any, read_only: bool) -> None:
    with Dataset.open(postgres_url) as writer:
        example.add_model(writer)
        with Dataset.open(postgres_url, read_only=read_only) as reader, reader.read() as connection:
            count = "SELECT count(*) FROM measurements"
            assert connection.exec_driver_sql(count).scalar() == 0
            example.fill(writer)
            assert connection.exec_driver_sql(count).scalar() == 0 < reader.counts()["measurements"]
            assert connection.exec_driver_sql("SHOW transaction_read_only").scalar() == "on"


def test_no_command_shows_the_password_of_an_address(postgres_url: str, example: Any, tmp_path: Path) -> None:
    with Dataset.open(postgres_url) as dataset:
        example.fill(dataset)
    db = sqlalchemy.make_url(postgres_url).set(password="s3cret").render_as_string(hide_password=False)
    unknown = "0123456789abcdef"
    found = {
        "compared": op_profiler("compare", db, db, "--json", folder=tmp_path),
        "no run": op_profiler("compare", "before", "after", "--db", db, folder=tmp_path),
        "no time": op_profiler("predict", "mlp", "--db", db, folder=tmp_path),
        "no operator": op_profiler("schedule", unknown, "--db", db, folder=tmp_path),
        "no model": op_profiler("explain", unknown, "--db", db, folder=tmp_path),
        "merged": op_profiler("dataset", "merge", db, "--into", "sqlite:///a.db", folder=tmp_path),
        "into": op_profiler("dataset", "merge", "sqlite:///a.db", "--into", db, folder=tmp_path),
        "twice": op_profiler("dataset", "merge", db, "--into", db, folder=tmp_path),
        "parts": op_profiler("dataset", "merge", db, "--into", db, "--partition-by", "anchor", folder=tmp_path),
    }
    codes = {what: done.returncode for what, done in found.items()}
    good = ("compared", "merged", "into")
    assert codes == {what: 0 if what in good else 5 if what == "no time" else 2 for what in found}
    for what, done in found.items():
        assert "s3cret" not in done.stdout + done.stderr, what
        assert what == "merged" or "//" in done.stdout + done.stderr, "the address is told"
