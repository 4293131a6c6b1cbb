"""Runs of a real model: collected, compared by their stored times and measured again in turns."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from op_profiler.building.request import BuildRequest
from op_profiler.comparison import compare as compare_module
from op_profiler.comparison.compare import compare_runs
from op_profiler.comparison.request import CompareRequest
from op_profiler.comparison.runs import KnownRun, TimedRun, load
from op_profiler.errors import ModelError, OpProfilerError, UsageError
from op_profiler.frontends.frontend import ModelRequest
from op_profiler.report.comparison import between, method
from op_profiler.schedules import record_files, records
from op_profiler.schedules.records import Conditions, Record

from ..command_line import op_profiler
from ..report.page.browser import data_of


class Reached(Exception):
    """The next step would be to measure."""


MLP = BuildRequest(model=ModelRequest(source="local", name="mlp"), schedules=records.NONE)
_SHORT = ["--seconds", "1"]


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    changes = {"OP_PROFILER_PATIENCE_SECONDS": "0", "COLUMNS": "200"}
    return op_profiler(*arguments, folder=folder, environment=changes)


def slow_schedule(target: Any, folder: Path) -> None:
    """A record for the first product of the MLP that leaves nothing to vectorize; its weights are laid out for it."""
    arguments = (("TENSOR", (1, 784), "float32"), ("TENSOR", (128, 784), "float32"), None, "float32")
    knobs = {"tile_y": [-1, 1, 1], "tile_x": [-1, 1, 1], "tile_k": [-1, 1], "tile_inner": [-1, 1]}
    config = {"index": 0, "code_hash": None, "entity": [[name, "sp", value] for name, value in knobs.items()]}
    file = record_files.record_file(str(folder), "llvm", MLP.kind.processor_name())
    assert file is not None
    record_files.keep(file, Record(str(target), "dense_pack.x86", arguments, config, (1e-5,), conditions=Conditions(1)))


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory, target: Any, cache_folder: Path) -> Path:
    """Three runs in one dataset: two alike, and one whose first product has a slow schedule."""
    folder = tmp_path_factory.mktemp("runs")
    slow_schedule(target, folder / "slow")
    for label, schedules in (("before", "none"), ("same", "none"), ("slow", "slow")):
        done = run(
            folder,
            *("collect", "--modelname", "mlp", "--threads", "1", "--quiet", "--db", "sqlite:///runs.db"),
            *("--label", label, "--schedules", schedules),
        )
        assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def folder(collected: Path, tmp_path: Path) -> Path:
    shutil.copy(collected / "runs.db", tmp_path / "runs.db")
    return tmp_path


@pytest.fixture
def told(folder: Path) -> Iterator[sqlite3.Connection]:
    """The dataset in which every run tells what another run would find: 2 % more or less, and a steady machine."""
    connection = sqlite3.connect(folder / "runs.db")
    windows = json.dumps([[10, 100.0, 300.0 + i % 2] for i in range(20)])
    with connection:
        for table in ("measurements", "model_timings"):
            connection.execute(
                f"UPDATE {table} SET median_us = 100.0, steady_us = 100.0, steady_low_us = 98.0, steady_high_us = 102.0"
            )
        connection.execute(
            f"UPDATE model_timings SET details = json_set(details, '$.gauge_windows_us', json('{windows}'))"
        )
    yield connection
    connection.close()


def key_of(connection: sqlite3.Connection, label: str) -> str:
    (key,) = connection.execute("SELECT key FROM models WHERE label = ?", (label,)).fetchone()
    return str(key)


def slow_down(connection: sqlite3.Connection, label: str, factor: float) -> str:
    """Make one operator of a run slower; its workload key."""
    key = key_of(connection, label)
    query = "SELECT operator_key FROM measurements WHERE model_key = ? ORDER BY operator_key LIMIT 1"
    (operator,) = connection.execute(query, (key,)).fetchone()
    columns = ", ".join(f"{c} = {c} * {factor}" for c in ("median_us", "steady_us", "steady_low_us", "steady_high_us"))
    with connection:
        connection.execute(
            f"UPDATE measurements SET {columns} WHERE model_key = ? AND operator_key = ?", (key, operator)
        )
    return str(operator)


def compare(folder: Path, before: str, after: str, **options: Any) -> Any:
    request = CompareRequest(before=before, after=after, db=f"sqlite:///{folder}/runs.db", **options)
    return compare_runs(request, lambda step: None)


def test_a_dataset_that_is_missing_is_named(folder: Path) -> None:
    for words in (("runs.db", "nosuch.db"), ("nosuch.db", "runs.db")):
        done = op_profiler("compare", *words, folder=folder)
        assert done.returncode == 5 and done.stderr.startswith("error: there is no dataset nosuch.db"), done.stderr


def test_stored_times_that_differ_as_runs_do_are_no_change(folder: Path, told: sqlite3.Connection) -> None:
    slow_down(told, "same", 1.02)
    found = compare(folder, "before", "same")
    assert found.judged == 5 and found.method == "stored" and found.above(0.0) == []
    assert {row.how for _, row in found.rows} == {None, "key"}


def test_a_stored_time_that_differs_by_more_is_a_change(folder: Path, told: sqlite3.Connection) -> None:
    operator = slow_down(told, "same", 1.3)
    found = compare(folder, "before", "same")
    ((_, row),) = found.above(0.05)
    assert row.keys == (operator, operator) and row.change is not None
    longer = 0.3 * row.change.before_us
    assert found.above(us=0.9 * longer) == [(found.runs[0], row)] and found.above(us=1.1 * longer) == []
    assert row.title and not row.title.startswith("fused_") and row.layer
    (layer, *others) = found.runs[0].layers
    assert layer.layer == row.layer and layer.real and not any(one.real for one in others)
    assert layer.after_us - layer.before_us == pytest.approx(row.calls[1] * longer)
    assert row.change.change == pytest.approx(0.3) and row.change.low is not None and 0 < row.change.low < 0.3
    ((_, faster),) = [(run, row) for run, row in compare(folder, "same", "before").rows if row.change.real]
    assert faster.change is not None and faster.change.change == pytest.approx(1 / 1.3 - 1)


def test_a_machine_that_moved_makes_changes_less_sure(folder: Path, told: sqlite3.Connection) -> None:
    slow_down(told, "same", 1.3)
    windows = json.dumps([[10, 130.0, 300.0] for _ in range(20)])
    with told:
        told.execute(
            f"UPDATE model_timings SET details = json_set(details, '$.gauge_windows_us', json('{windows}')) "
            "WHERE model_key = ?",
            (key_of(told, "same"),),
        )
    found = compare(folder, "before", "same")
    assert found.above(0.0) == [] and "the machine itself moved" in " ".join(found.runs[0].warnings)


def test_times_without_a_spread_between_runs_are_shown_and_not_judged(folder: Path, told: sqlite3.Connection) -> None:
    with told:
        for table in ("measurements", "model_timings"):
            told.execute(f"UPDATE {table} SET steady_us = NULL, steady_low_us = NULL, steady_high_us = NULL")
    slow_down(told, "same", 3.0)
    found = compare(folder, "before", "same")
    changes = [row.change for _, row in found.rows]
    assert found.judged == 0 and max(c.change for c in changes) == pytest.approx(2.0)
    assert found.above(0.0) == [] and all(c.real is None and c.low is None for c in changes)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("UPDATE devices SET machine_id = 'other' WHERE key = 'copy'", "another one"),
        ("UPDATE devices SET processor = 'other' WHERE key = 'copy'", "the machine is"),
        ("UPDATE devices SET kind = 'cuda' WHERE key = 'copy'", "the kind of target"),
    ],
)
def test_runs_of_different_machines_are_refused(
    folder: Path, told: sqlite3.Connection, change: str, reason: str
) -> None:
    _other_device(told, "same")
    with told:
        told.execute(change)
    with pytest.raises(UsageError, match=rf"{reason}.*--rerun"):
        compare(folder, "before", "same")


def test_other_differences_are_told(folder: Path, told: sqlite3.Connection) -> None:
    _other_device(told, "same")
    with told:
        told.execute("UPDATE devices SET tvm_version = '0.18', target = 'llvm -mcpu=x' WHERE key = 'copy'")
        told.execute("UPDATE models SET precision = 'int8' WHERE label = 'same'")
        told.execute("UPDATE model_timings SET foreign_load = 1 WHERE model_key = ?", (key_of(told, "same"),))
    (run,) = compare(folder, "before", "same").runs
    text = "\n".join(run.warnings)
    for words in ("TVM differs: 0.19.0 before, 0.18 after", "the target differs", "the precision differs: float32"):
        assert words in text
    assert "after was measured under background load (1 thread)" in text


def test_unsteady_times_are_not_compared(folder: Path, told: sqlite3.Connection) -> None:
    with told:
        told.execute("UPDATE model_timings SET disturbed_by = 'unsteady' WHERE model_key = ?", (key_of(told, "same"),))
    (run,) = compare(folder, "before", "same").runs
    assert run.rows and all(row.problem == "disturbed after: unsteady" and row.estimate is None for row in run.rows)
    assert "after was disturbed at 1 thread (unsteady)" in "\n".join(run.warnings)


def test_runs_of_two_compilers_stand_beside_each_other(folder: Path, told: sqlite3.Connection) -> None:
    _other_device(told, "same")
    slow_down(told, "same", 1.3)
    windows = json.dumps([[10, 300.0, 900.0] for _ in range(20)])
    with told:
        told.execute("UPDATE devices SET compiler = 'relax', tvm_version = '0.27', target = 'x' WHERE key = 'copy'")
        told.execute(
            f"UPDATE model_timings SET details = json_set(details, '$.gauge_windows_us', json('{windows}'))"
            " WHERE device_key = 'copy'"
        )
        told.execute("DELETE FROM model_timings WHERE model_key = ?", (key_of(told, "slow"),))
    found = compare(folder, "relay", "relax")
    (one,), text = found.runs, " ".join(found.runs[0].warnings)
    assert (one.before.model.label, one.after.model.label) == ("before", "same")
    assert "the compiler differs: relay before, relax after" in text and "TVM differs: 0.19.0 before, 0.27" in text
    assert "changed between the runs is unknown" in text and "kernels that never change took" not in text
    assert "target differs" not in text and "--rerun" not in method(found) and "(relay, " in between(one)
    ((_, row),) = found.above(0.05)  # other code of the probe widens no interval
    assert row.how == "key" and row.change is not None and row.change.change == pytest.approx(0.3)

    whole = compare(folder, str(folder / "runs.db"), f"sqlite:///{folder}/runs.db")
    assert [(run.before.compiler, run.after.compiler) for run in whole.runs] == [("relax",) * 2, ("relay",) * 2]
    alone = compare(folder, "same", str(folder / "runs.db"), model="mlp")
    assert [run.after.compiler for run in alone.runs] == ["relax"]
    assert any(note.startswith("only after") and note.endswith("relay") for note in alone.notes)


def _other_device(connection: sqlite3.Connection, label: str) -> None:
    """A run gets a device of its own."""
    names = [row[1] for row in connection.execute("PRAGMA table_info(devices)") if row[1] != "key"]
    columns = ", ".join(names)
    with connection:
        connection.execute(f"INSERT INTO devices (key, {columns}) SELECT 'copy', {columns} FROM devices LIMIT 1")
        for table, column in (("measurements", "model_key"), ("model_timings", "model_key"), ("models", "key")):
            connection.execute(
                f"UPDATE {table} SET device_key = 'copy' WHERE {column} = ?", (key_of(connection, label),)
            )


def test_an_operator_that_failed_and_one_that_is_new_are_told(folder: Path, told: sqlite3.Connection) -> None:
    key = key_of(told, "same")
    no_times = "median_us = NULL, min_us = NULL, mean_us = NULL, steady_us = NULL, rounds = 0, samples_us = '[]'"
    with told:
        first, second = (
            row[0] for row in told.execute("SELECT operator_key FROM measurements WHERE model_key = ? LIMIT 2", (key,))
        )
        told.execute(
            f"UPDATE measurements SET error = 'broken', {no_times} WHERE model_key = ? AND operator_key = ?",
            (key, first),
        )
        for table in ("measurements", "model_operators"):
            told.execute(f"DELETE FROM {table} WHERE model_key = ? AND operator_key = ?", (key, second))
    found = compare(folder, "before", "same")
    assert [row.problem for _, row in found.rows if row.problem] == ["failed after: broken"]
    (run,) = found.runs
    assert [one.key for one in run.only_before] == [second] and run.only_after == ()
    assert run.only_before[0].times_us == {1: 100.0}


def test_a_slow_schedule_is_found_in_turns_and_ends_with_1(folder: Path) -> None:
    done = run(
        folder,
        *("compare", "before", "slow", "--rerun", *_SHORT, "--fail-above", "20%", "--db", "sqlite:///runs.db"),
        *("--markdown", "out.md", "--report", "out.html", "--json"),
    )
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    (one,) = found["runs"]
    slower = [row for row in one["rows"] if row["change"]["real"] and row["change"]["change"] > 0.2]
    assert {row["name"] is None for row in slower} == {True, False}, "an operator, and with it the whole model"
    (operator,) = (row for row in slower if row["share"] > 0.5 and row["name"] is not None)
    assert operator["how"] == "layers" and operator["keys"][0] != operator["keys"][1]
    assert len(operator["schedules"]) == 2 and "tile_x=[-1, 1, 1]" in operator["schedules"][1]
    markdown, page = (folder / "out.md").read_text(), data_of(folder / "out.html")["comparison"]
    assert "| the whole model |" in markdown and "by its layers" in markdown and "slower" in markdown
    assert sum(bool(row.get("real") and row["change"] > 0.2) for row in page["rows"]) == len(slower)
    assert " real, of " in page["verdict"] and "before" in page["runs"][0]["between"]


def test_equal_runs_in_turns_are_not_above_a_limit(folder: Path, told: sqlite3.Connection) -> None:
    """With a limit that no noise reaches: whether small changes are called real is for simulated noise to test. One
    does not say which code built it."""
    with told:
        told.execute("UPDATE models SET recipe = json_set(recipe, '$.kept', '') WHERE label = 'same'")
    done = run(
        folder,
        *("compare", "before", "same", "--rerun", *_SHORT, "--fail-above", "100%", "--db", "sqlite:///runs.db"),
        *("--markdown", "out.md"),
    )
    assert done.returncode == 0, done.stderr
    assert "<details><summary>no change seen" in (folder / "out.md").read_text()
    assert "the whole model" in done.stdout and "measured in turns" in done.stdout
    assert "compared" in done.stdout.splitlines()[-2]
    assert "same was built again here" in done.stdout and "before was built" not in done.stdout


def test_a_run_that_does_not_tell_how_to_build_it_is_refused(folder: Path, told: sqlite3.Connection) -> None:
    with told:
        told.execute("UPDATE models SET recipe = NULL WHERE label = 'same'")
    with pytest.raises(UsageError, match="same cannot be built again"):
        compare(folder, "before", "same", rerun=True)


class TestBuiltAgain:
    """Where the cache folder no longer has the builds of the runs."""

    @pytest.fixture(autouse=True)
    def nothing_is_kept(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def reached(*_: object) -> None:
            raise Reached

        monkeypatch.setenv("OP_PROFILER_CACHE", str(tmp_path / "empty"))
        monkeypatch.setattr("op_profiler.building.prepared_model.open_machine", reached)

    def test_by_the_same_code_they_are_measured(self, folder: Path) -> None:
        with pytest.raises(Reached):
            compare(folder, "before", "slow", rerun=True)

    def test_what_keeps_the_processor_busy_is_named_before(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        found = "op_profiler.comparison.rerun.report_background_load"
        monkeypatch.setattr(found, lambda cores, say: say(f"{len(cores)} core is busy"))
        request = CompareRequest(before="before", after="slow", rerun=True, db=f"sqlite:///{folder}/runs.db")
        notes: list[str] = []
        with pytest.raises(Reached):
            compare_runs(request, lambda step: None, notes.append)
        assert notes == ["1 core is busy"]

    def test_by_other_code_they_are_refused(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """They would be kernels of today, under the names of both runs."""
        monkeypatch.setattr("op_profiler.cache.code_digest", lambda *parts: "of another commit")
        with pytest.raises(ModelError, match="op_profiler or TVM is not what it was when before was collected"):
            compare(folder, "before", "same", rerun=True)

    def test_for_another_machine_they_are_measured(
        self, folder: Path, told: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A warning says so: what was built there cannot be had here."""
        monkeypatch.setattr("op_profiler.cache.code_digest", lambda *parts: "of another commit")
        with told:
            told.execute("UPDATE devices SET target = 'llvm -mcpu=other'")
        with pytest.raises(Reached):
            compare(folder, "before", "same", rerun=True)


def test_a_run_whose_operators_are_others_as_it_is_built_is_refused(folder: Path, told: sqlite3.Connection) -> None:
    with told:
        told.execute("UPDATE models SET recipe = (SELECT recipe FROM models WHERE label = 'same') WHERE label = 'slow'")
    done = run(folder, "compare", "before", "slow", "--rerun", *_SHORT, "--db", "sqlite:///runs.db")
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "of its operators as it is built here" in done.stderr and "collect it again" in done.stderr


def test_of_too_many_rows_whole_models_are_drawn(
    folder: Path, told: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    with told:
        told.execute("UPDATE models SET name = label")
    loaded: list[weakref.ref[TimedRun]] = []

    def held() -> int:
        return sum(run() is not None for run in loaded)

    def counted(known: KnownRun) -> TimedRun:
        run = load(known)
        loaded.append(weakref.ref(run))
        assert held() <= 2, "the times of two runs are in memory, whatever the datasets hold"
        return run

    monkeypatch.setattr(compare_module, "load", counted)
    whole = str(folder / "runs.db")
    everything = compare(folder, whole, whole)
    assert len(everything.runs) == 3 and everything.notes == () and len(loaded) == 6 and not held()
    monkeypatch.setattr(compare_module, "MOST_ROWS", 8)
    drawn = compare(folder, whole, whole)
    (one,) = drawn.runs
    assert drawn.notes[0].startswith("1 of 3 models are compared: of more than 8 rows whole models are drawn")
    (same,) = (run for run in everything.runs if run.title == one.title)
    assert [row.estimate for row in same.rows] == [row.estimate for row in one.rows] and len(one.rows) == 5
    assert compare(folder, whole, whole).runs == drawn.runs, "the same ones each time"


class TestWhichRuns:
    def test_a_file_an_address_a_label_and_a_key_mean_runs(self, folder: Path, told: sqlite3.Connection) -> None:
        shutil.copy(folder / "runs.db", folder / "other.db")
        key = key_of(told, "slow")
        whole = compare(folder, str(folder / "runs.db"), f"sqlite:///{folder}/other.db")
        assert {run.before.model.label for run in whole.runs} == {"slow"}, "of several runs the newest"
        assert "before: of several runs of mlp the newest counts" in " ".join(whole.notes)
        assert compare(folder, "before", key).runs[0].after.model.key == key
        assert compare(folder, str(folder / "runs.db"), key, model=key).runs[0].before.model.key == key

    def test_what_means_nothing_is_refused(self, folder: Path) -> None:
        with pytest.raises(UsageError, match="unknown run 'befor'; the nearest known: before"):
            compare(folder, "befor", "same")
        with pytest.raises(UsageError, match="no run of 'resnet-18'"):
            compare(folder, "before", "same", model="resnet-18")
        with pytest.raises(OpProfilerError, match="nowhere.db"):
            compare(folder, f"sqlite:///{folder}/nowhere.db", "same")

    def test_runs_without_a_common_thread_count_are_refused(self, folder: Path, told: sqlite3.Connection) -> None:
        _other_threads(told, "same")
        with pytest.raises(UsageError, match="no thread count in common: 1 before, 2 after"):
            compare(folder, "before", "same")


def _other_threads(connection: sqlite3.Connection, label: str) -> None:
    names = [row[1] for row in connection.execute("PRAGMA table_info(settings)") if row[1] not in ("key", "threads")]
    columns = ", ".join(names)
    with connection:
        connection.execute(f"INSERT INTO settings (key, threads, {columns}) SELECT 'two', 2, {columns} FROM settings")
        for table in ("measurements", "model_timings"):
            connection.execute(
                f"UPDATE {table} SET settings_key = 'two' WHERE model_key = ?", (key_of(connection, label),)
            )
