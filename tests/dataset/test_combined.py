"""Databases, Parquet files and folders of Parquet files made one, whichever is the source and whichever the target."""

from __future__ import annotations

import dataclasses
import json
import subprocess
from collections.abc import Callable, Iterator, Sized
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import make_url

from op_profiler.dataset import Dataset, flat_rows, read_parquet, schema
from op_profiler.dataset.checks import Finding
from op_profiler.dataset.explanations import explanations_of, record_explanations
from op_profiler.dataset.formats import flat_table, importing
from op_profiler.dataset.formats.combined import combine, is_parquet
from op_profiler.errors import DatasetError, OpProfilerError, UnknownNameError, UsageError
from op_profiler.measure.measurement import Measurement

from ..command_line import op_profiler

pytest.importorskip("pyarrow")

KINDS = ("sqlite", "postgresql", "file", "folder")
PARTS = ("device_key", "threads")
LINKS = schema.model_operators.select()

Start = Callable[..., "subprocess.Popen[str]"]

MERGE_STEP_BY_STEP = """
import pathlib, time
from op_profiler.dataset.formats.combined import combine

source, into, parts, go = sys.argv[1:]

def announce(step):
    print(step, flush=True)
    while step.startswith("writing") and not pathlib.Path(go).exists():
        time.sleep(0.01)

combine([source], into, partition_by=parts.split(",") if parts else (), announce=announce)
"""


@pytest.fixture
def place(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Callable[[str, str], str]]:
    """A place of a kind, by a name of one's own."""
    dropped: list[tuple[str, str]] = []

    def place_of(kind: str, name: str) -> str:
        if kind == "postgresql":
            server = str(request.getfixturevalue("postgres_server"))
            _on(server, f"CREATE DATABASE {name}")
            dropped.append((server, name))
            return make_url(server).set(database=name).render_as_string(hide_password=False)
        path = f"{tmp_path}/{name}"
        return {"sqlite": f"sqlite:///{path}.db", "file": f"{path}.parquet", "folder": path}[kind]

    yield place_of
    for server, name in dropped:
        _on(server, f"DROP DATABASE {name} WITH (FORCE)")


def _on(server: str, statement: str) -> None:
    import psycopg

    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(statement)


@pytest.fixture
def two(tmp_path: Path, example: Any) -> tuple[str, str]:
    """Two datasets with three rows each, one of which both have."""
    addresses = f"sqlite:///{tmp_path}/one.db", f"sqlite:///{tmp_path}/two.db"
    with Dataset.open(addresses[0]) as one:
        example.fill(one)
        one.record(example.row(0, settings=example.changed(cache="hot"), model_key=""))
    with Dataset.open(addresses[1]) as two:
        example.add_model(two, "n", operators=3)
        two.record_all([example.row(number, model_key="n") for number in (0, 2)])
    combine([addresses[0]], f"{tmp_path}/hot.parquet")
    with Dataset.open(addresses[1]) as two:
        hot = [(1, row) for row in read_parquet(tmp_path / "hot.parquet") if row["cache"] == "hot"]
        assert flat_table.store_flat(two, hot, None).rows == 1
    return addresses


def held(place: str) -> list[Any]:
    """The flat rows of a place; where they lie in a folder is no part of them."""
    if is_parquet(place):
        rows = read_parquet(place)
    else:
        with Dataset.open(place, read_only=True) as dataset:
            rows = list(flat_rows(dataset))
    return sorted((sorted(row.items()) for row in rows), key=repr)


def listed(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("into", KINDS)
def test_each_kind_goes_into_each(
    into: str, place: Callable[[str, str], str], two: tuple[str, str], example: Any, tmp_path: Path
) -> None:
    given = [two[0]]
    for kind in KINDS[1:]:  # each with a model of its own
        address = f"sqlite:///{tmp_path}/of_{kind}.db"
        with Dataset.open(address) as dataset:
            example.add_model(dataset, kind)
            dataset.record(example.row(0, model_key=kind))
        given.append(place(kind, f"given_{kind}"))
        combine([address], given[-1], partition_by=PARTS if kind == "folder" else ())
        assert held(given[-1]) == held(address)
    target = place(into, "target")
    combine([two[1]], target, partition_by=PARTS if into == "folder" else ())
    written = combine(given, target).written
    assert written["measurements"] == 5 and written["models"] == 4, "one of six is there already"
    rows = {dict(row)["measurement_key"]: row for place_of_rows in (*given, two[1]) for row in held(place_of_rows)}
    assert len(rows) == 8 and held(target) == sorted(rows.values(), key=repr)
    if into == "folder":  # it keeps its columns
        (device,) = Path(target).iterdir()
        assert device.name.startswith("device_key=") and [one.name for one in device.iterdir()] == ["threads=2"]


def test_what_is_there_already_is_not_stored_again(two: tuple[str, str], tmp_path: Path) -> None:
    table = f"{tmp_path}/table.parquet"
    combine([two[0]], table)
    again = combine([two[0]], table).written
    assert again["measurements"] == again["models"] == again["operators"] == 0 and held(table) == held(two[0])
    combine([table], two[1])
    assert not any(combine([table], two[1]).written.values())
    assert not any(combine([table], two[0]).written.values())
    with Dataset.open(two[0], read_only=True) as dataset:
        (timing,) = dataset.rows(schema.model_timings.select())
    assert timing["rounds"] == 3, "what a table tells of a whole model takes the place of no time with its rounds"


@pytest.mark.parametrize("into", ["sqlite", "postgresql"])
def test_a_model_of_a_table_becomes_whole(
    into: str, place: Callable[[str, str], str], example: Any, tmp_path: Path
) -> None:
    whole, table, target = f"sqlite:///{tmp_path}/whole.db", f"{tmp_path}/table.parquet", place(into, "target")
    with Dataset.open(whole) as dataset:
        example.add_model(dataset, operators=3, base_key="base", asked=["it"], recipe={"a": 1}, reads=[[], [0], [1]])
        operators = dataset.model_operators("m")
        schedules = {operator.key: example.schedule for operator, _ in operators}
        dataset.add_operators("m", operators, schedules, code={operators[0][0].key: "kernel"})
        dataset.record(example.row(0))
        kept = {(row["operator_key"], row["schedule_key"], row["code"]) for row in dataset.rows(LINKS)}
        (model,) = dataset.models()
    combine([whole], table)
    combine([table], target)
    written = combine([whole], target).written
    assert (written["models"], written["model_operators"]) == (0, 2), "what was there in part is no new row"
    with Dataset.open(target, read_only=True) as dataset:
        (merged,) = dataset.models()
        assert merged == dataclasses.replace(model, added_at=merged.added_at)
        assert {(row["operator_key"], row["schedule_key"], row["code"]) for row in dataset.rows(LINKS)} == kept
        assert dataset.model_operators("m") == operators
    assert not any(combine([whole], target).written.values())


def test_the_command_makes_a_folder_and_fills_it(two: tuple[str, str], tmp_path: Path) -> None:
    words = ("dataset", "merge", "--into", "parts")
    made = op_profiler(*words, two[0], "--partition-by", "anchor", "--json", folder=tmp_path)
    assert made.returncode == 0 and json.loads(made.stdout)["measurements"] == 3, made.stderr
    again = op_profiler(*words, two[1], "--quiet", folder=tmp_path)
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")
    assert len(held(f"{tmp_path}/parts")) == 5
    parted = op_profiler(*words, two[1], "--partition-by", "threads,cache", folder=tmp_path)
    assert parted.returncode == 0 and parted.stdout.startswith("into parts: ")
    (threads,) = (tmp_path / "parts").iterdir()
    assert {path.name for path in threads.iterdir()} == {"cache=hot", "cache=model"}


def test_the_summary_counts_what_a_parquet_file_holds_and_names_the_rest(example: Any, tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path}/a.db"
    with Dataset.open(address) as dataset:
        example.add_model(dataset, operators=3)  # of which one is measured
        example.add_model(dataset, "unmeasured")
        dataset.record(example.row(0))
        dataset.record(example.row(1, measurement=Measurement(error="no")))
    words = ("dataset", "merge", address, "--into", "parts", "--partition-by", "anchor")
    first = op_profiler(*words, "--json", folder=tmp_path)
    counts = json.loads(first.stdout)
    assert counts == {
        **dict.fromkeys(("devices", "models", "schedules", "settings"), 1),
        **{"operators": 2, "measurements": 2, "left_out": {"models": 1, "operators": 1}},
    }
    again = op_profiler(*words, folder=tmp_path)
    assert again.stdout.splitlines() == [
        "into parts: 0 devices, 0 models, 0 operators, 0 schedules, 0 settings, 0 measurements",
        "not written, since Parquet holds measurements only: 1 model, 1 operator",
    ]


def test_what_is_no_folder_of_parts_stays_as_it_is(two: tuple[str, str], tmp_path: Path) -> None:
    folder, file = tmp_path / "parts", tmp_path / "table.parquet"
    folder.mkdir()
    with pytest.raises(UsageError, match="is an empty folder; --partition-by"):
        combine([two[0]], str(folder))
    with pytest.raises(UnknownNameError, match="unknown column in --partition-by 'ancor'"):
        combine([two[0]], str(folder), partition_by=("ancor",))
    combine([two[0]], str(folder), partition_by=("anchor",))
    combine([two[0]], str(file))
    for address in (str(file), two[1]):
        with pytest.raises(UsageError, match="--partition-by is for a folder"):
            combine([two[0]], address, partition_by=("anchor",))
    with pytest.raises(UsageError, match="is one of the sources"):
        combine([f"{tmp_path}/../{tmp_path.name}/parts"], str(folder))
    with pytest.raises(UsageError, match="neither the address of a dataset"):
        combine([two[0]], str(tmp_path / "new"))
    with pytest.raises(UsageError, match=r"a\.csv is neither .* op-profiler import --format csv"):
        combine([two[0], "a.csv"], str(file))
    (folder / "notes.txt").write_text("mine")
    there = listed(folder)
    with pytest.raises(UsageError, match=r"is no folder of Parquet files: it holds notes\.txt"):
        combine([two[1]], str(folder))
    assert listed(folder) == there and len(there) == 2


def test_a_dataset_is_named_by_its_path_too(two: tuple[str, str], tmp_path: Path) -> None:
    paths = [address.removeprefix("sqlite:///") for address in two]
    assert all(path.endswith(".db") for path in paths)
    done = op_profiler("dataset", "merge", *paths, "--into", "all.db", folder=tmp_path)
    assert done.returncode == 0 and done.stdout.startswith("into all.db: "), done.stderr
    assert combine(two, f"sqlite:///{tmp_path}/all.db").written["operators"] == 0, "all is there"
    with pytest.raises(UsageError, match="is one of the sources"):
        combine(paths, two[0])


def test_what_would_be_lost_or_read_twice_is_refused(two: tuple[str, str], tmp_path: Path) -> None:
    from pyarrow import array, parquet

    folder, file = tmp_path / "parts", tmp_path / "table.parquet"
    (folder / "empty").mkdir(parents=True)
    combine([two[0]], str(folder), partition_by=("anchor",))
    combine([two[0]], str(file))
    with pytest.raises(UsageError, match=r"all\.parquet lies in .*parts, which is one of the sources"):
        combine([two[1], str(folder)], str(folder / "all.parquet"))
    for place in (file, next(folder.rglob("*.parquet"))):
        table = parquet.read_table(place, partitioning=None)
        parquet.write_table(table.append_column("mine", array([1] * table.num_rows)), place)
    there = listed(tmp_path)
    for place in (file, folder):
        with pytest.raises(UsageError, match=f"{place.name} has columns of others, which would be lost: mine"):
            combine([two[1]], str(place))
    with pytest.raises(OpProfilerError, match=r"cannot write --into .*No such file"):
        combine([two[0]], f"{tmp_path}/none/all.parquet")
    with pytest.raises(OpProfilerError, match=r"cannot write --into .*is not a folder"):
        combine([two[0]], f"{file}/parts", partition_by=("anchor",))
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(OpProfilerError, match=r"cannot write .*loop"):
        combine([two[0]], f"{tmp_path}/loop", partition_by=("anchor",))
    assert listed(tmp_path) == there


def test_rows_that_cannot_be_read_are_not_left_out_without_a_word(two: tuple[str, str], tmp_path: Path) -> None:
    from pyarrow import array, parquet

    folder, file = tmp_path / "parts", tmp_path / "table.parquet"
    combine([two[1]], str(folder), partition_by=("anchor",))
    combine([two[0]], str(file))
    table = parquet.read_table(file)
    at = table.schema.get_field_index("operator_key")
    parquet.write_table(table.set_column(at, table.schema.field(at), array(["0" * 16] * table.num_rows)), file)
    there = listed(folder)
    with pytest.raises(DatasetError, match=r"^3 rows of .*table.parquet cannot be read \(row 1: its operator has"):
        combine([str(file)], str(folder))
    assert listed(folder) == there


def test_a_folder_stays_where_the_new_one_cannot_be_written(
    two: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyarrow import dataset as parts

    folder = tmp_path / "parts"
    combine([two[0]], str(folder), partition_by=("anchor",))
    there, beside = listed(folder), sorted(tmp_path.iterdir())

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(parts, "write_dataset", full)
    with pytest.raises(OpProfilerError, match="No space left"):
        combine([two[1]], str(folder))
    assert listed(folder) == there and sorted(tmp_path.iterdir()) == beside


@pytest.mark.parametrize("kind", ["file", "folder"])
@pytest.mark.parametrize("killed", [False, True])
def test_merges_into_one_place_wait_for_each_other(
    kind: str, killed: bool, place: Callable[[str, str], str], two: tuple[str, str], start: Start, tmp_path: Path
) -> None:
    into = place(kind, "target")
    words = (into, ",".join(PARTS) if kind == "folder" else "", str(tmp_path / "go"))
    first = start(MERGE_STEP_BY_STEP, two[0], *words)
    assert first.stdout is not None
    assert [first.stdout.readline() for _ in range(2)][1] == f"writing {into}\n"
    second = start(MERGE_STEP_BY_STEP, two[1], *words)
    assert second.stdout is not None
    assert second.stdout.readline() == f"waiting: another process merges into {into}\n"
    if killed:
        first.kill()
        first.wait(100)
    (tmp_path / "go").touch()
    for process in (first, second):
        _, errors = process.communicate(timeout=100)
        assert process.returncode == (-9 if killed and process is first else 0), errors
    expected = {dict(row)["measurement_key"] for address in two[killed:] for row in held(address)}
    assert {dict(row)["measurement_key"] for row in held(into)} == expected
    assert not list(tmp_path.glob(".op_profiler-*.lock"))


def test_memory_does_not_grow_with_the_rows(two: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """An import holds some numbers of each row, to look for what is wrong beside the others; a merge holds none."""
    looked: list[int] = []

    def look(work: Sized, *_: object) -> list[Finding]:
        looked.append(len(work))
        return []

    monkeypatch.setattr(importing, "check_rows", look)
    with Dataset.open(two[0]) as dataset:
        rows = [(number, row) for number, row in enumerate(flat_rows(dataset), 1)]
        for checked in (True, False):
            assert flat_table.store_flat(dataset, rows, None, checked=checked).known == len(rows) == 3
    assert looked == [3, 0]


@pytest.mark.parametrize("into", ["sqlite", "postgresql"])
def test_newer_facts_stay_and_gaps_are_filled(
    into: str, place: Callable[[str, str], str], example: Any, tmp_path: Path
) -> None:
    """Whichever dataset is merged into which."""
    failed = example.row(0, measurement=Measurement(error="kernel hung"))
    older, newer = f"sqlite:///{tmp_path}/older.db", f"sqlite:///{tmp_path}/newer.db"
    for url in (older, newer):
        with Dataset.open(url) as dataset:
            example.add_model(dataset, recipe=None if url == older else {"a": 1})
            operators = dataset.model_operators("m")
            dataset.add_operators("m", operators, code=None if url == older else {operators[0][0].key: "kernel"})
            record_explanations(dataset, "m", {operators[0][0].key: {"of": url}})
            dataset.record(failed)
            (last,) = dataset.failures()
    for number, order in enumerate([(older, newer), (newer, older)]):
        target = place(into, f"target{number}")
        for url in order:
            combine([url], target)
        with Dataset.open(target) as dataset:
            (model,), (failure,) = dataset.models(), dataset.failures()
            assert (model.recipe, failure.failed_at) == ({"a": 1}, last.failed_at)
            ((_, explained),) = explanations_of(dataset, "m").values()
            assert explained == {"of": newer}
            assert [row["code"] for row in dataset.rows(LINKS)].count("kernel") == 1
