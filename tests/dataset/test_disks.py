"""A dataset on a disk that is full, in a file that may not be written, and behind a lock that is not released."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from op_profiler.dataset import Dataset
from op_profiler.errors import DatasetError


def as_nobody(work: Callable[[], list[str]]) -> list[str]:
    """What `work` returns in a process that does not have root's right to write everywhere."""

    def run() -> None:
        if os.getuid() == 0:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
        results.put(work())

    context = multiprocessing.get_context("fork")  # the interpreter itself may be where only root can read
    results = context.SimpleQueue()
    process = context.Process(target=run)
    process.start()
    process.join(60)
    assert process.exitcode == 0
    return results.get()


def message_of(url: str) -> str:
    with pytest.raises(DatasetError) as caught:
        Dataset.open(url)
    return str(caught.value)


def test_read_only_files_and_folders(example: Any) -> None:
    with tempfile.TemporaryDirectory() as name:  # below pytest's own folders nobody but their owner may look
        folder = Path(name)
        url = f"sqlite:///{folder}/test.db"
        with Dataset.open(url) as dataset:
            example.fill(dataset)
        (folder / "test.db").chmod(0o444)
        (folder / "closed").mkdir(0o000)
        folder.chmod(0o555)

        def work() -> list[str]:
            names = ("test.db", "new.db", "new/new.db", "closed/new.db")
            messages = [message_of(f"sqlite:///{folder}/{name}") for name in names]
            with Dataset.open(url, read_only=True) as dataset:
                return [*messages, str(dataset.counts()["measurements"])]

        out = as_nobody(work)
        folder.chmod(0o755)
        assert sorted(os.listdir(folder)) == ["closed", "test.db"]
    assert "test.db cannot be written: the file or its folder is read-only" in out[0]
    assert "new.db cannot be opened: its folder is missing or may not be used" in out[1]
    assert "cannot be opened: Permission denied" in out[2]
    assert "cannot be opened: Permission denied" in out[3]
    assert out[4] == "2"


def test_a_full_disk_loses_nothing_and_says_so(sqlite_url: str, example: Any) -> None:
    with Dataset.open(sqlite_url) as dataset:
        example.fill(dataset)
        with dataset.read() as connection:
            pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        dataset._engine.dispose()  # the next connection gets the limit, which stands in for a disk without free space

        @event.listens_for(dataset._engine, "connect")
        def limit(connection: Any, _record: Any) -> None:
            connection.execute(f"PRAGMA max_page_count = {pages + 1}")

        row = example.row(settings=example.changed(threads=1), measurement=example.measurement(5000))
        with pytest.raises(DatasetError, match="disk is full.*free some space"):
            dataset.record(row)
        assert dataset.counts()["measurements"] == 2
        event.remove(dataset._engine, "connect", limit)  # who opens the same dataset next may get this engine
    with Dataset.open(sqlite_url) as dataset:
        dataset.record(row)
        assert dataset.counts()["measurements"] == 3


@pytest.fixture
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits to write asks again at once."""
    monkeypatch.setattr("op_profiler.dataset.engine.TELL_SECONDS", 0.1)


@pytest.mark.usefixtures("short_waits")
def test_a_lock_that_is_never_released(url: str, example: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("op_profiler.dataset.engine.LOCK_SECONDS", 0.2)
    with Dataset.open(url) as dataset, Dataset.open(url) as other:
        with dataset.transaction(), pytest.raises(DatasetError, match=r"locked by another process .* merge") as refused:
            example.add_model(other)
        assert "server" not in str(refused.value)
        example.add_model(other)


@pytest.mark.usefixtures("short_waits")
def test_a_lock_that_is_held_for_long_is_waited_for(url: str, example: Any, capfd: pytest.CaptureFixture[str]) -> None:
    """One merges, and another one opens the dataset and writes to it."""
    outcome: list[int] = []

    def write() -> None:
        with Dataset.open(url) as other:
            example.fill(other)
            outcome.append(other.counts()["measurements"])

    with Dataset.open(url) as dataset:
        second, told = threading.Thread(target=write), ""
        with dataset.transaction():
            second.start()
            while "waiting: another process writes to " not in told:
                assert second.is_alive(), told
                told += capfd.readouterr().err
                time.sleep(0.01)
        second.join()
    assert outcome == [2]
