"""Tables of other programs, of ours, and datasets."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest

from .damage import BYTES, LINES, TEXT, Damage, damaged
from .harness import Commands

DAMAGES: dict[str, tuple[Damage, ...]] = {
    **{name: TEXT for name in ("tinynas", "paddle", "gsoc", "csv")},
    **{name: LINES for name in ("runtime_lut", "autotvm", "jsonl")},
    "parquet": BYTES,
}
TABLES = [(format, kind, seed) for format, kinds in DAMAGES.items() for seed, kind in enumerate(kinds)]
READERS = [
    ["export", "--format", "csv", "--output", "x.csv"],
    ["analyze", "--format", "json"],
    ["evaluate", "--predictor", "mean", "--split", "random"],
    ["import", "--format", "paddle", "paddle"],
    ["predict", "mlp"],
    ["schedule", "0123456789abcdef", "--trials-from", "none"],
]


def _id(value: object) -> str:
    return getattr(value, "__name__", None) or (value[0] if isinstance(value, list) else str(value))


@pytest.mark.parametrize(("format", "kind", "seed"), TABLES, ids=_id)
def test_a_damaged_table(
    format: str, kind: Damage, seed: int, commands: Commands, tables: dict[str, bytes], tmp_path: Path
) -> None:
    (tmp_path / "table").write_bytes(damaged(tables[format], kind, seed))
    (tmp_path / "x.db").write_bytes(tables["sqlite"])
    commands.check(tmp_path, "import", "table", "--format", format, "--db", "sqlite:///x.db", written=["x.db"])


@pytest.mark.parametrize("format", DAMAGES)
@pytest.mark.parametrize("other", [*DAMAGES, "sqlite"])
def test_a_table_of_another_format(
    format: str, other: str, commands: Commands, tables: dict[str, bytes], tmp_path: Path
) -> None:
    if format == other:
        pytest.skip("it is of this format")
    (tmp_path / "table").write_bytes(tables[other])
    commands.check(tmp_path, "import", "table", "--format", format, "--db", "sqlite:///x.db", codes=(2, 5))


@pytest.mark.parametrize("command", READERS, ids=_id)
@pytest.mark.parametrize("kind", BYTES, ids=_id)
def test_a_damaged_dataset(
    command: list[str], kind: Damage, commands: Commands, tables: dict[str, bytes], tmp_path: Path
) -> None:
    (tmp_path / "x.db").write_bytes(damaged(tables["sqlite"], kind, len(command[0])))
    (tmp_path / "paddle").write_bytes(tables["paddle"])
    (tmp_path / "x.csv").write_text("an older file\n")
    commands.check(tmp_path, *command, "--db", "sqlite:///x.db", written=["x.db", "x.csv"])


@pytest.mark.parametrize("kind", BYTES, ids=_id)
def test_a_damaged_file_to_analyze(kind: Damage, commands: Commands, tables: dict[str, bytes], tmp_path: Path) -> None:
    (tmp_path / "x.parquet").write_bytes(damaged(tables["parquet"], kind, 7))
    commands.check(tmp_path, "analyze", "--file", "x.parquet", "--format", "json")


@pytest.mark.parametrize("kind", BYTES, ids=_id)
def test_a_damaged_shared_calibration(
    kind: Damage, commands: Commands, tables: dict[str, bytes], shared: bytes, tmp_path: Path
) -> None:
    (tmp_path / "shared.parquet").write_bytes(damaged(shared, kind, 5))
    (tmp_path / "x.db").write_bytes(tables["sqlite"])
    commands.check(tmp_path, "dataset", "adopt", "shared.parquet", "--db", "sqlite:///x.db", written=["x.db"])


CONDITIONS = [
    *(
        "anchor = 'nn.conv2d'; DROP TABLE operators",
        "1=1) UNION SELECT 1 --",
        "(",
        ")",
        "'",
        "''",
        "anchor",
        "threads =",
    ),
    *("threads = 1 or", "\x01", "é = 1", "threads = 1e999", "threads = " + "9" * 4000, "(" * 3000 + "1" + ")" * 3000),
    *(
        "anchor like 'x' escape 'yy'",
        "threads / 0 = 1",
        "threads = :x",
        "threads = ?",
        "case when 1 then 2",
        "%s",
        "{}",
    ),
    *(
        "load_extension('x')",
        "anchor = 'a\x00b'",
        "and",
        "not not not 1",
        " ",
        "samples_us = 1",
        "round()",
        "abs(1,2,3)",
    ),
]


@pytest.mark.parametrize("where", CONDITIONS, ids=lambda text: repr(text[:20]))
def test_a_condition_that_is_none(where: str, commands: Commands, tables: dict[str, bytes], tmp_path: Path) -> None:
    (tmp_path / "x.db").write_bytes(tables["sqlite"])
    (tmp_path / "x.csv").write_text("an older file\n")
    arguments = ["export", "--output", "x.csv", "--where", where, "--db", "sqlite:///x.db"]
    commands.check(tmp_path, *arguments, written=["x.csv"])
    assert (tmp_path / "x.db").read_bytes() == tables["sqlite"]


def test_a_dataset_of_a_version_that_never_was(commands: Commands, tables: dict[str, bytes], tmp_path: Path) -> None:
    (tmp_path / "x.db").write_bytes(tables["sqlite"])
    with contextlib.closing(sqlite3.connect(tmp_path / "x.db")) as connection, connection:
        connection.execute("UPDATE op_profiler_schema SET version = 0")
    (tmp_path / "paddle").write_bytes(tables["paddle"])
    commands.check(tmp_path, "import", "--format", "paddle", "paddle", "--db", "sqlite:///x.db", codes=(5,))
