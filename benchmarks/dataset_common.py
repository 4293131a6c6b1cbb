"""Datasets of any number of rows, made of the included measurements."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

DEVICES = 50
_ROUNDS = 3
_OF_DEVICES = ("devices", "models", "model_operators")
_OF_SETTINGS = ("settings",)
_OF_BOTH = ("measurements", "model_timings")


def say(text: str) -> None:
    """How far it is."""
    print(text, file=sys.stderr, flush=True)


def imported(folder: Path, *, trials: bool = False) -> str:
    """The address of the first included dataset, its samples cut; also with the trials."""
    from sqlalchemy import text

    from op_profiler.dataset import Dataset, import_table
    from op_profiler.shipped import shipped_processors, shipped_trials

    path, url = shipped_processors()[0].operators, f"sqlite:///{folder}/shipped.db"
    assert path is not None, "a dataset in results/ is missing"
    with Dataset.open(url) as dataset:
        import_table(dataset, path, format="parquet")
        if trials:
            searched = shipped_trials()
            assert searched is not None, "results/schedule_trials.parquet is missing"
            import_table(dataset, searched, format="parquet")
        with dataset.transaction(), dataset.read() as connection:
            for table in _OF_BOTH:
                rows = connection.execute(text(f"SELECT key, samples_us FROM {table}")).all()
                cut = [{"k": key, "s": json.dumps(json.loads(samples)[:_ROUNDS])} for key, samples in rows]
                connection.execute(text(f"UPDATE {table} SET samples_us = :s WHERE key = :k"), cut)
    return url


def fill(url: str, source: str, wanted: int, *, one_machine: bool = False) -> int:
    """Copies of what another dataset holds; how many measurements there are then.

    Args:
        one_machine: each copy is of models of its own on the same devices, under the same settings.
    """
    from sqlalchemy import text

    from op_profiler.dataset import Dataset, schema
    from op_profiler.dataset.merging import merge

    indices = [index for table in _OF_BOTH for index in schema.metadata.tables[table].indexes]
    with Dataset.open(url) as dataset:
        with Dataset.open(source, read_only=True) as shipped:
            merge([shipped], dataset)
        with dataset.transaction(), dataset.read() as connection:
            for table in (*_OF_DEVICES, *_OF_SETTINGS, *_OF_BOTH):
                connection.execute(text(f"CREATE TABLE own_{table} AS SELECT * FROM {table}"))
            own = connection.execute(text("SELECT count(*) FROM own_measurements")).scalar_one()
            for index in indices:
                index.drop(connection)
            if connection.dialect.name == "postgresql":
                for table in _OF_BOTH:
                    connection.execute(text(f"ALTER TABLE {table} SET UNLOGGED"))
        copies = max(wanted // own, 1)
        _copy(dataset, copies, one_machine)
        with dataset.transaction(), dataset.read() as connection:
            if connection.dialect.name == "postgresql":
                connection.execute(text("SET LOCAL maintenance_work_mem = '512MB'"))
            for table in (*_OF_DEVICES, *_OF_SETTINGS, *_OF_BOTH):
                connection.execute(text(f"DROP TABLE own_{table}"))
            for index in indices:
                index.create(connection)
        rows = int(dataset.counts()["measurements"])
    if url.startswith("postgresql"):
        import psycopg

        with psycopg.connect(url, autocommit=True) as server:
            server.execute("VACUUM ANALYZE")
    return rows


def _copy(dataset: Any, copies: int, one_machine: bool) -> None:
    from sqlalchemy import text

    each, started = 1 if one_machine else -(-copies // DEVICES), time.monotonic()
    for number in range(copies):
        device, setting = divmod(number, each)
        tables = (_OF_DEVICES if not setting else ()) + (_OF_SETTINGS if not device else ()) + _OF_BOTH
        with dataset.transaction(), dataset.read() as connection:
            if connection.dialect.name == "postgresql":
                connection.exec_driver_sql("SET LOCAL session_replication_role = replica")  # checks no references
            for table in tables:
                if table == "devices" and one_machine:
                    continue
                connection.execute(text(_copied(table, f"x{device:04x}", f"y{setting:04x}", one_machine)))
        if number % 25 == 24:
            say(f"{number + 1} of {copies} copies in {time.monotonic() - started:.0f} s")


def _copied(name: str, device: str, setting: str, one_machine: bool) -> str:
    """An INSERT of one more copy of what was imported: its keys begin with marks that no key has."""
    from op_profiler.dataset import schema

    both = f"'{device}{setting}' || substr(key, 11)"
    changed = {
        "key": both if name in _OF_BOTH else f"'{setting if name in _OF_SETTINGS else device}' || substr(key, 6)",
        "device_key": f"'{device}' || substr(device_key, 6)",
        "model_key": f"'{device}' || substr(model_key, 6)",
        "settings_key": f"'{setting}' || substr(settings_key, 6)",
    }
    if one_machine:
        del changed["device_key"]
    columns = [column.name for column in schema.metadata.tables[name].columns]
    values = [changed.get(column, column) for column in columns]
    return f"INSERT INTO {name} ({', '.join(columns)}) SELECT {', '.join(values)} FROM own_{name}"
