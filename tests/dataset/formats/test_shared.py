"""Calibrations that users share: nothing private is in them, and nothing else than they may hold is adopted."""

from __future__ import annotations

import contextlib
import getpass
import hashlib
import json
import os
import pickle
import platform
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from op_profiler.dataset import Dataset, flat_rows, read_parquet
from op_profiler.dataset.formats import shared as sharing
from op_profiler.dataset.formats.adopting import adopt
from op_profiler.dataset.formats.shared import SHARED, write_shared
from op_profiler.errors import DatasetError
from op_profiler.prediction.latency.examples import load_examples
from op_profiler.report.shared import show_rows

from ... import shared_calibration as private
from ...command_line import op_profiler

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
pytest.importorskip("onnx")

Row = dict[str, Any]
Change = Callable[[Any], Any]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shared")


@pytest.fixture(scope="module")
def db(folder: Path) -> str:
    return private.measured(folder)


@pytest.fixture(scope="module")
def everything(db: str) -> list[Row]:
    """All rows of the dataset, also those of the private model."""
    with Dataset.open(db, read_only=True) as dataset:
        return list(flat_rows(dataset))


@pytest.fixture(scope="module")
def rows(db: str, folder: Path) -> list[Row]:
    """What is shared of them."""
    found = private.shared_of(db, folder)
    assert found == private.shared_of(db, folder), "the same machine has the same digits in its next file"
    return found


@pytest.fixture
def file(rows: list[Row], tmp_path: Path) -> Path:
    write_shared(rows, tmp_path / "shared.parquet")
    return tmp_path / "shared.parquet"


def test_nothing_private_is_shared(everything: list[Row], file: Path, folder: Path) -> None:
    models = {row["model_name"] for row in everything}
    assert any(private.MODEL in name for name in models), "it is in the dataset"
    assert {row["run_label"] for row in everything} >= {private.LABEL}
    host = hashlib.sha256(f"op_profiler {private.PRIVATE['OP_PROFILER_HOST_ID']}".encode()).hexdigest()[:16]
    assert {row["machine_id"] for row in everything} == {host}, "it was measured under that name"
    names = [*private.PRIVATE.values(), private.MODEL, private.LABEL, private.FOLDER, str(folder), "/tmp", "/home"]
    names += [name for name in (platform.node(), getpass.getuser(), os.uname().release) if len(name) > 4]
    for column in ("machine_id", "device_key", "model_key", "model_name", "run_id", "measured_at", "measurement_key"):
        names += {row[column] for row in everything if row[column]}
    decoded = json.dumps(pq.read_table(file).to_pylist())
    metadata = str(pq.read_metadata(file).to_dict())
    content = file.read_bytes()
    for name in names:
        assert name.lower() not in decoded.lower() and name not in metadata, name
        assert name.lower().encode() not in content.lower(), name
    assert decoded.count("calibrate-apart-") == len(pq.read_table(file))


def test_only_the_declared_columns_are_shared(file: Path) -> None:
    found = pq.ParquetFile(file)
    assert found.schema_arrow.names == list(SHARED) and not found.metadata.metadata
    assert file.stat().st_size < 100_000


def test_what_is_shared_is_shown(rows: list[Row], capsys: pytest.CaptureFixture[str]) -> None:
    show_rows(rows)
    shown = capsys.readouterr().out
    assert f"{len(rows)} rows of " in shown and rows[0]["processor"] in shown and rows[0]["measured_at"] in shown
    assert not [name for name in SHARED if name not in shown]


def test_predictors_learn_the_same_from_what_was_adopted(everything: list[Row], file: Path, db: str) -> None:
    before = load_examples(db=db, device=everything[0]["device_key"])
    place = file.with_name("adopted.parquet")
    done = adopt([file], str(place))
    assert done.new == done.files[0].rows == done.processors[0].measurements and done.files[0].repeated == 0
    after = load_examples(file=place)
    sampled = before.where(before.sampled[before.model])
    assert sorted(after.latency_us) == sorted(sampled.latency_us)
    assert {one.key for one in after.operators} == {before.operators[at].key for at in sampled.operator}
    assert sorted(after.traffic_bytes) == pytest.approx(sorted(sampled.traffic_bytes))
    (device,), (known,) = after.devices, before.devices
    assert device.key != known.key
    assert (device.processor, device.target, device.peaks) == (known.processor, known.target, known.peaks)


def test_rows_name_their_file_and_nothing_is_adopted_twice(file: Path, rows: list[Row], tmp_path: Path) -> None:
    half, into = tmp_path / "of all.parquet", f"sqlite:///{tmp_path / 'all.db'}"
    write_shared(rows[: len(rows) // 2], half)
    done = adopt([half, file], into)
    assert done.new == len(rows) and [one.repeated for one in done.files] == [0, len(rows) // 2]
    digest = hashlib.sha256(half.read_bytes()).hexdigest()
    assert done.files[0].sha256 == digest and done.files[0].label == f"of-all-{digest[:16]}"
    with Dataset.open(into, read_only=True) as dataset:
        found = list(flat_rows(dataset, columns=["run_id", "run_label"]))
    assert {row["run_id"] for row in found} == {one.sha256[:16] for one in done.files}
    assert done.files[0].label in {row["run_label"] for row in found}
    assert adopt([file, half], into).new == 0


def _set(column: str, value: Any) -> Change:
    return lambda table: table.set_column(
        table.schema.get_field_index(column),
        table.schema.field(column),
        pa.array([value] * len(table), table.schema.field(column).type),
    )


def _cast(table: Any, column: str, kind: Any) -> Any:
    place = table.schema.get_field_index(column)
    return table.cast(table.schema.set(place, table.schema.field(place).with_type(kind)))


REFUSED: dict[str, tuple[Change, str]] = {
    "negative": (_set("median_us", -1.0), "row 1 of .*: median_us holds '-1.0'"),
    "no number": (_set("whole_model_us", float("nan")), "whole_model_us holds 'nan'"),
    "too large": (_set("steady_us", 1e12), "steady_us holds"),
    "no time": (_set("median_us", None), "median_us holds 'None'"),
    "time of day": (_set("measured_at", "2026-11-29T04:55:00+00:00"), "measured_at holds"),
    "future": (_set("measured_at", "2999-11-29T00:00:00+00:00"), "measured_at holds"),
    "path": (_set("target", "llvm -mcpu=/home/me"), "target holds"),
    "name": (_set("model_name", "resnet-18"), "model_name holds 'resnet-18'"),
    "property": (_set("device_properties", '{"system": "Linux"}'), "device_properties holds"),
    "markup": (_set("processor", "<script>"), "processor holds"),
    "operator": (_set("structure", "0->1"), "its operator has the key"),
    "schedule": (_set("knobs", '{"tile": 3}'), "its schedule has the key"),
    "device": (_set("cores", 77), "its device has the key"),
    "JSON": (_set("attrs", "[{]"), "row 1 of"),
    "deep": (_set("attrs", "[" * 9 + "]" * 9), "attrs holds"),
    "other JSON": (_set("inputs", "[[1]]"), "row 1 of"),
    "long": (_set("structure", "a" * 70_000), "structure has 70000 characters"),
    "column": (lambda table: table.append_column("host", pa.array(["me"] * len(table))), "other columns: host"),
    "no column": (lambda table: table.drop_columns(["target"]), "other columns: target"),
    "type": (lambda table: _cast(table, "threads", pa.int32()), "another order, or other types"),
    "order": (lambda table: table.select(table.column_names[::-1]), "another order"),
    "repeated": (lambda table: pa.concat_tables([table, table.slice(0, 1)]), "row .*: it repeats another row"),
}


@pytest.mark.parametrize(("change", "words"), REFUSED.values(), ids=REFUSED)
def test_what_may_not_be_shared_is_not_adopted(change: Change, words: str, file: Path) -> None:
    pq.write_table(change(pq.read_table(file)), other := file.with_name("other.parquet"), store_schema=False)
    place = file.with_name("adopted.parquet")
    with pytest.raises(DatasetError, match=words):
        adopt([file, other], str(place))
    assert not place.exists()


def test_metadata_is_not_adopted(file: Path) -> None:
    table = pq.read_table(file)
    with pq.ParquetWriter(file, table.schema, store_schema=False) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({"host": "me"})
    with pytest.raises(DatasetError, match="it has metadata next to its columns, .*host"):
        adopt([file], None)


def test_types_of_pyarrow_are_not_read(file: Path) -> None:
    pq.write_table(pq.read_table(file), file)
    with pytest.raises(DatasetError, match="metadata of pyarrow"):
        adopt([file], None)


class _Runs:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("code-was-run",)


@pytest.mark.parametrize("content", [pickle.dumps(_Runs()), b"", b"PAR1", b"PAR1" + b"x" * 80 + b"PAR1"])
def test_other_files_are_refused(content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.parquet").write_bytes(content)
    with pytest.raises(DatasetError, match="is no file of 'op-profiler calibrate --share'"):
        adopt([tmp_path / "x.parquet"], None)
    assert not (tmp_path / "code-was-run").exists()
    with pytest.raises(DatasetError, match="cannot read"):
        adopt([tmp_path / "nowhere.parquet"], None)


def test_sizes_are_limited(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, words in (("MOST_ROWS", "rows, and 1 is the most"), ("_MOST_UNPACKED_BYTES", "it unpacks to")):
        with monkeypatch.context() as patch, pytest.raises(DatasetError, match=words):
            patch.setattr(sharing, name, 1)
            adopt([file], None)
    with file.open("ab") as more:
        more.truncate(sharing.MOST_BYTES + 1)
    with pytest.raises(DatasetError, match="is larger than 32 MiB"):
        adopt([file], None)


def test_a_board_is_shared_without_the_name_that_its_user_gave_it(everything: list[Row]) -> None:
    row = next(row for row in everything if row["model_source"] == "sample")
    properties = {"key": "melchior", "address": "melchior:9090", "board": "Xilinx Zynq"}
    board = row | {"processor": "melchior", "device_properties": properties}
    found = sharing._without_names(board, b"salt")
    assert "melchior" not in json.dumps(found) and found["processor"] == "Xilinx Zynq"
    assert found["host_fingerprint"] != row["host_fingerprint"] and sharing._identity(found)


def test_the_command_checks_merges_and_says_what_it_did(file: Path, rows: list[Row]) -> None:
    folder = file.parent
    checked = op_profiler("dataset", "adopt", "shared.parquet", folder=folder)
    assert checked.returncode == 0 and "nothing was written" in checked.stdout, checked.stderr
    done = op_profiler("dataset", "adopt", "shared.parquet", "--into", "all.parquet", folder=folder)
    assert f"into all.parquet: {len(rows)} new measurements" in done.stdout, done.stderr
    assert len(read_parquet(folder / "all.parquet")) == len(rows)
    told = json.loads(
        op_profiler("dataset", "adopt", "shared.parquet", "--db", "all.db", "--json", folder=folder).stdout
    )
    assert told["new"] == len(rows) and told["processors"][0]["processor"] == rows[0]["processor"]
    for arguments, words in (
        (["--into", "all.parquet", "--db", "all.db"], "not both"),
        (["--into", "all.csv"], "is no Parquet file"),
    ):
        refused = op_profiler("dataset", "adopt", "shared.parquet", *arguments, folder=folder)
        assert refused.returncode == 2 and words in refused.stderr


@pytest.mark.slow
def test_calibrate_shows_what_it_shares(tmp_path: Path) -> None:
    variables = private.environment(tmp_path)
    line = ["calibrate", "--budget", "1s", "--rounds", "3", "--threads", "1", "--db", "c.db", "--share", "mine.parquet"]
    first = op_profiler(*line, folder=tmp_path, environment=variables)
    assert first.returncode in (0, 1) or "under background load" in first.stderr, first.stderr
    with contextlib.closing(sqlite3.connect(tmp_path / "c.db")) as connection, connection:
        connection.execute("UPDATE measurements SET foreign_load = false, disturbed_by = NULL")
    done = op_profiler(*line, folder=tmp_path, environment=variables)
    assert done.returncode in (0, 1), done.stderr
    names, written = done.stdout.index("operator_key"), done.stdout.index("written to mine.parquet; nothing was sent")
    assert names < written and "columns; the first row" in done.stdout
    content = (tmp_path / "mine.parquet").read_bytes() + json.dumps(
        pq.read_table(tmp_path / "mine.parquet").to_pylist()
    ).encode()
    assert not [name for name in private.PRIVATE.values() if name.encode() in content]
    told = json.loads(op_profiler(*line, "--json", folder=tmp_path, environment=variables).stdout)
    assert told["shared"]["rows"] >= 20 and list(told["shared"]["columns"]) == list(SHARED)
