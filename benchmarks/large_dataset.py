"""How does a dataset of ten million measurements behave: opening, looking up, exporting, and its summary?

    python benchmarks/large_dataset.py [sqlite | postgresql ...] [--keep FILE]     (20 minutes, 15 GB; --keep goes on)

The measurements that ship are copied, with samples of their first three rounds so that the disk has room: each copy is
of a device and a setting of its own. 50 devices have as many copies of every model. What slows the copying down is off
meanwhile: indices are made afterwards, and PostgreSQL neither waits for its disk nor checks references.

Look-up: the operators of a model with what was measured of them, and one measurement by its key. Export: a condition
that a tenth of the rows meet, to Parquet, in a process of its own, whose most memory is told. Summary: what
`op-profiler dataset` reads.

Goal: open and look-up under 1 ms; a million rows exported in 30 s and under 1 GB; the summary in 2 s.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from common import ROOT, run_of, store
from fleet_common import SHARE, postgresql_server

_ROWS = int(10_000_000 * SHARE)
_DEVICES = 50
_ROUNDS = 3
_EXPORTED_DEVICES = 5  # a tenth
_OF_DEVICES = ("devices", "models", "model_operators")
_OF_SETTINGS = ("settings",)
_OF_BOTH = ("measurements", "model_timings")


def measure(name: str) -> dict[str, Any]:
    """One kind of database."""
    with _address(name) as url:
        started = time.monotonic()
        rows = fill(url)
        filled = time.monotonic() - started
        print(f"{name}: {rows} rows in {filled:.0f} s", file=sys.stderr, flush=True)
        return {"database": name, "rows": rows, **looked_up(url), **exported(url), **summed_up(url)}


@contextlib.contextmanager
def _address(name: str) -> Iterator[str]:
    with contextlib.ExitStack() as stack:
        if name == "postgresql":
            # As a team would set it, for a machine that does other things too.
            settings = ("shared_buffers=1GB", "maintenance_work_mem=256MB", "max_wal_size=8GB", "fsync=off")
            yield stack.enter_context(postgresql_server(*settings)).url
        else:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            yield f"sqlite:///{folder}/large.db"


def fill(url: str) -> int:
    """Copies of the measurements that ship; how many rows there are then."""
    from sqlalchemy import text

    from op_profiler.dataset import Dataset, schema
    from op_profiler.dataset.formats.importing import import_table
    from op_profiler.shipped import shipped_operators

    indices = [index for table in _OF_BOTH for index in schema.metadata.tables[table].indexes]
    path = shipped_operators()
    assert path is not None, "results/operators.parquet is missing"
    with Dataset.open(url) as dataset:
        import_table(dataset, path, format="parquet")
        with dataset.transaction(), dataset.read() as connection:
            _cut_samples(connection)
            for table in (*_OF_DEVICES, *_OF_SETTINGS, *_OF_BOTH):
                connection.execute(text(f"CREATE TABLE own_{table} AS SELECT * FROM {table}"))
            own = connection.execute(text("SELECT count(*) FROM own_measurements")).scalar_one()
            for index in indices:
                index.drop(connection)
        copies = max(_ROWS // own, 1)
        each = -(-copies // _DEVICES)
        for number in range(copies):
            device, setting = divmod(number, each)
            tables = (_OF_DEVICES if not setting else ()) + (_OF_SETTINGS if not device else ()) + _OF_BOTH
            with dataset.transaction(), dataset.read() as connection:
                _check_no_references(connection)
                for table in tables:
                    connection.execute(text(_copied(table, f"x{device:04x}", f"y{setting:04x}")))
        with dataset.transaction(), dataset.read() as connection:
            for table in (*_OF_DEVICES, *_OF_SETTINGS, *_OF_BOTH):
                connection.execute(text(f"DROP TABLE own_{table}"))
            for index in indices:
                index.create(connection)
        rows = int(dataset.counts()["measurements"])
    if url.startswith("postgresql"):
        _analyze(url)
    return rows


def _check_no_references(connection: Any) -> None:
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql("SET LOCAL session_replication_role = replica")


def _cut_samples(connection: Any) -> None:
    from sqlalchemy import text

    for table in ("measurements", "model_timings"):
        rows = connection.execute(text(f"SELECT key, samples_us FROM {table}")).all()
        cut = [{"k": key, "s": json.dumps(json.loads(samples)[:_ROUNDS])} for key, samples in rows]
        connection.execute(text(f"UPDATE {table} SET samples_us = :s WHERE key = :k"), cut)


def _copied(name: str, device: str, setting: str) -> str:
    """An INSERT of one more copy of what was imported: its keys begin with marks that no key has."""
    from op_profiler.dataset import schema

    both = f"'{device}{setting}' || substr(key, 11)"
    changed = {
        "key": both if name in _OF_BOTH else f"'{setting if name in _OF_SETTINGS else device}' || substr(key, 6)",
        "device_key": f"'{device}' || substr(device_key, 6)",
        "model_key": f"'{device}' || substr(model_key, 6)",
        "settings_key": f"'{setting}' || substr(settings_key, 6)",
    }
    columns = [column.name for column in schema.metadata.tables[name].columns]
    values = [changed.get(column, column) for column in columns]
    return f"INSERT INTO {name} ({', '.join(columns)}) SELECT {', '.join(values)} FROM own_{name}"


def _analyze(url: str) -> None:
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")


def looked_up(url: str) -> dict[str, Any]:
    """Milliseconds, medians."""
    from sqlalchemy import select

    from op_profiler.dataset import Dataset, schema

    def opened() -> None:
        Dataset.open(url, read_only=True).close()

    with Dataset.open(url, read_only=True) as dataset:
        key = dataset.rows(select(schema.measurements.c.key).limit(1))[0]["key"]
        model = dataset.rows(select(schema.models.c.key).limit(1))[0]["key"]
        by_key = select(schema.measurements).where(schema.measurements.c.key == key)
        return {
            "open_ms": _milliseconds(opened, 20),
            "by_key_ms": _milliseconds(lambda: dataset.rows(by_key), 200),
            "operators_of_a_model_ms": _milliseconds(lambda: dataset.model_operators(model), 50),
        }


def _milliseconds(call: Callable[[], object], times: int) -> float:
    call()
    found = []
    for _ in range(times):
        started = time.perf_counter()
        call()
        found.append(time.perf_counter() - started)
    return round(statistics.median(found) * 1e3, 3)


def exported(url: str) -> dict[str, Any]:
    """A process that exports a tenth of the rows, and tells its most memory."""
    from sqlalchemy import select

    from op_profiler.dataset import Dataset, schema

    with Dataset.open(url, read_only=True) as dataset:
        keys = sorted(row["key"] for row in dataset.rows(select(schema.devices.c.key)) if row["key"].startswith("x"))
    chosen = ", ".join(f"'{key}'" for key in keys[:_EXPORTED_DEVICES])
    with tempfile.TemporaryDirectory() as folder:
        words = ["export", "--db", url, "--output", str(Path(folder) / "some.parquet"), "--json"]
        script = (
            "import resource, sys; from op_profiler.cli import main\n"
            "try: main()\n"
            "finally: print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)"
        )
        started = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-c", script, *words, "--where", f"device_key IN ({chosen})"],
            env={**os.environ, "PYTHONPATH": str(ROOT / "python")},
            capture_output=True,
            text=True,
            check=True,
        )
        seconds = time.monotonic() - started
    return {
        "exported_rows": json.loads(done.stdout)["rows"],
        "export_s": round(seconds, 1),
        "export_peak_mib": round(int(done.stderr.split()[-1]) / 1024),
    }


def summed_up(url: str) -> dict[str, Any]:
    """Seconds of what ``op-profiler dataset`` reads."""
    from op_profiler.dataset import Dataset
    from op_profiler.dataset.maintain import contents

    with Dataset.open(url, read_only=True) as dataset:
        contents(dataset)
        started = time.monotonic()
        held = contents(dataset)
        return {
            "summary_s": round(time.monotonic() - started, 2),
            "size_gib": round(held.size_bytes / 2**30, 2),
            "models": len(held.models),
        }


def main() -> None:
    run = run_of(__file__, __doc__, measure, ["sqlite", "postgresql"])
    rows = [found.result for found in run.found]
    for row in rows:
        print(row, flush=True)
    told = "; ".join(
        f"{r['database']}: {r['exported_rows']:,} rows exported in {r['export_s']} s, summary in {r['summary_s']} s"
        for r in rows
    )
    store(__file__, f"{rows[0]['rows']:,} rows: {told}", {"databases": rows}, whole=run.whole and SHARE == 1)


if __name__ == "__main__":
    main()
