"""``op-profiler predict`` and ``evaluate`` as a user calls them, on a dataset that was measured here."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import io
import json
import runpy
import sqlite3
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from op_profiler.cli import predict
from op_profiler.cli.command import command
from op_profiler.operators.operator import Operator
from op_profiler.prediction.latency import answer, open_predictor
from op_profiler.prediction.latency.lowered_models import LoweredModel
from op_profiler.prediction.latency.network import Network
from op_profiler.prediction.latency.operator_predictor import OperatorPredictor

from ...command_line import ROOT, op_profiler
from ...installed import needs


def _run(command: str, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = op_profiler(command, *arguments, libraries=("xgboost",))
    assert done.returncode == code, done.stderr
    return done


def _forget_load(address: str) -> None:
    """What is asked is whether the commands work, not whether nothing else ran on the machine meanwhile."""
    with contextlib.closing(sqlite3.connect(address.removeprefix("sqlite:///"))) as connection, connection:
        for table in ("measurements", "model_timings"):
            connection.execute(f"UPDATE {table} SET foreign_load = 0")


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Some two dozen operators and two small networks, at one thread."""
    address = f"sqlite:///{tmp_path_factory.mktemp('predict') / 'd.db'}"
    _run("sample", "--kinds", "dense,elementwise,softmax", "--count", "16", "--rounds", "3", "--threads", "1",
         "--db", address, "--quiet")  # fmt: skip
    for name in ("mlp", "rnn"):
        _run("collect", "--modelname", name, "--threads", "1", "--schedules", "none", "--db", address, "--quiet")
    _forget_load(address)
    return address


def test_json_says_where_every_number_comes_from(db: str) -> None:
    found = json.loads(_run("predict", "mlp", "--db", db, "--format", "json").stdout)
    assert found["tiers"] == {"measured": 1.0}
    assert found["unsupported"] == []
    low, high = found["interval_us"]
    assert low < found["total_us"] < high
    kernels = sum(o["latency_us"] * o["calls"] for o in found["operators"])
    assert kernels == pytest.approx(found["total_us"])


def test_operators_can_be_told_apart_in_the_table_and_in_json(db: str) -> None:
    operators = json.loads(_run("predict", "mlp", "--db", db, "--format", "json").stdout)["operators"]
    assert [(one["title"], one["output"], one["layers"]) for one in operators] == [
        ("dense + add + relu", [1, 128], [["fc1"]]),
        ("dense + add + relu", [1, 64], [["fc2"]]),
        ("dense + add", [1, 10], [["fc3"]]),
        ("softmax", [1, 10], []),
    ]
    rows = _run("predict", "mlp", "--db", db).stdout.splitlines()
    cells = [[cell.strip() for cell in row.split("│")[2:5]] for row in rows if row.startswith("│")]
    assert ["dense + add + relu", "fc2", "1x64"] in cells


def test_what_was_not_measured_is_regressed_or_named(db: str) -> None:
    other = json.loads(_run("predict", "mlp", "--batchsize", "3", "--db", db, "--format", "json").stdout)
    assert {o["tier"] for o in other["operators"]} <= {"measured", "sampled", "interpolated", "regressed"}
    convolution = json.loads(_run("predict", "simple:conv2d", "--db", db, "--format", "json", code=1).stdout)
    assert convolution["bounded"] and convolution["total_us"] is None
    low, high = convolution["interval_us"]
    assert low > 0 and high is None


def test_a_network_with_operators_of_an_unknown_type_has_no_total() -> None:
    asked = ("predict", "mlp", "--precision", "float16", "--device", "AMD EPYC family 26", "--format", "json")
    found = json.loads(_run(*asked, code=1).stdout)
    assert (found["total_us"], found["interval_us"][1]) == (None, None) and found["partial_us"] > 0


def test_the_words_of_the_runtime_look_up_table(db: str) -> None:
    lines = _run("predict", "mlp", "--db", db, "--format", "runtime_lut", "--quiet").stdout.splitlines()
    assert lines[0].startswith("op type FC with input [[1, 784]")
    assert lines[1].startswith("run_time: [")
    assert lines[-2] == "All operators found in the table? True"
    assert lines[-1].startswith("The network run-time latency is ")
    words = ("--device", "AMD EPYC family 26", "--threads", "1,2", "--format", "runtime_lut", "--quiet")
    both = _run("predict", "mlp", *words).stdout.splitlines()
    assert (both[0], both[len(lines) + 1]) == ("threads: 1", "threads: 2") and len(both) == 2 * len(lines) + 2


def test_csv_has_a_row_an_operator(db: str) -> None:
    rows = list(csv.DictReader(io.StringIO(_run("predict", "mlp", "--db", db, "--format", "csv").stdout)))
    assert all(float(row["low_us"]) <= float(row["latency_us"]) <= float(row["high_us"]) for row in rows)
    assert {row["tier"] for row in rows} == {"measured"}


def test_a_stored_predictor_says_the_same(db: str, tmp_path: Path) -> None:
    path = tmp_path / "p.zip"
    first = _run("predict", "mlp", "--db", db, "--format", "json", "--save", str(path)).stdout
    again = _run("predict", "mlp", "--predictor", str(path), "--format", "json").stdout
    assert json.loads(first) == json.loads(again)


@needs("tflite")
def test_what_only_regresses_is_told_the_loops_of_all(
    predictor: OperatorPredictor,
    strangers: list[Operator],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What the default looks up it needs no loops for; whose loops are told is seen here, and no model is needed."""
    told: list[str] = []

    def noted(network: Network, one: OperatorPredictor, threads: list[int], **_: object) -> Network:
        told.append(one.choice)
        return dataclasses.replace(network, name=one.choice)

    monkeypatch.setattr(Network, "with_loops", noted)
    monkeypatch.setattr(answer, "lowered_model", lambda *_: LoweredModel("net", tuple(strangers[:8]), {}))

    def opened(choice: str, **_: object) -> OperatorPredictor:
        return dataclasses.replace(predictor, choice=choice)

    monkeypatch.setattr(open_predictor, "open_predictor", opened)
    (tmp_path / "x.tflite").write_bytes(b"\0\0\0\0TFL3")
    command(predict.predict)(models=[str(tmp_path / "x.tflite")], format="csv", db="sqlite:///x.db", quiet=True)
    row, *_ = csv.DictReader(io.StringIO(capsys.readouterr().out))
    columns = [name.removesuffix("_us") for name in row if name.endswith("_us")]
    assert columns and told == ["default", *columns] and row["name"] == columns[0]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["no-such-model"], 2, "no-such-model"),
        (["mlp", "--predictor", "crystal-ball"], 2, "predictor"),
        (["mlp", "--threads", "2"], 2, "Measure with: op-profiler sample --count 500 --threads 2"),
        (["mlp", "--threads", "1000"], 2, " cores"),
        (["mlp", "--input_dims", "{data: 3}"], 2, "--input_dims takes JSON"),
        (["mlp", "--input_dtype", "int8"], 2, "takes data: float32"),
        (["mlp", "--format", "yaml"], 2, "table"),
        (["mlp", "--device", "a toaster"], 5, "no device fits"),
    ],
)
def test_wrong_questions_get_an_answer(db: str, arguments: list[str], code: int, message: str) -> None:
    assert message in _run("predict", *arguments, "--db", db, code=code).stderr


def test_quiet_tells_nothing_of_the_compilers_own_warnings() -> None:
    assert "WARNING" not in _run("predict", "mlp", "--precision", "int8", "--quiet", code=1).stderr


def test_a_target_that_does_not_fit_the_device_is_refused() -> None:
    done = _run("predict", "mlp", "--target", "llvm", "--device", "H100", code=2)
    assert "--target llvm does not fit the times of NVIDIA H100" in done.stderr and "--device" in done.stderr


def test_few_measurements_of_another_compiler_are_not_to_be_sampled(db: str, tmp_path: Path) -> None:
    copy = tmp_path / "relax.db"
    with contextlib.closing(sqlite3.connect(db.removeprefix("sqlite:///"))) as connection, connection:
        connection.execute("VACUUM INTO ?", (str(copy),))
    with contextlib.closing(sqlite3.connect(copy)) as connection, connection:
        connection.execute("UPDATE devices SET compiler = 'relax'")
        of_mlp = "SELECT m.key FROM measurements m JOIN models n ON n.key = m.model_key WHERE n.name = 'mlp'"
        connection.execute(f"DELETE FROM measurements WHERE key NOT IN ({of_mlp})")
    few = _run("predict", "mlp", "--compiler", "relax", "--db", f"sqlite:///{copy}", code=5).stderr
    assert "Measure operators with: op-profiler collect --compiler relax" in few


def test_a_dataset_that_is_not_there(tmp_path: Path) -> None:
    done = _run("predict", "mlp", "--db", f"sqlite:///{tmp_path / 'none.db'}", code=5)
    assert "none.db" in done.stderr
    assert not (tmp_path / "none.db").exists()


def test_a_dataset_without_times_to_learn_from_says_what_to_do(tmp_path: Path) -> None:
    from op_profiler.dataset import Dataset

    address = f"sqlite:///{tmp_path / 'empty.db'}"
    with Dataset.open(address):
        pass
    assert "--remeasure noisy" in _run("predict", "mlp", "--db", address, code=5).stderr


def test_evaluate_leaves_models_out(db: str) -> None:
    done = _run("evaluate", "--db", db, "--split", "model,random", "--predictor", "xgboost", "--json", "--quiet")
    scores = json.loads(done.stdout)
    assert [score["split"] for score in scores] == ["model", "model operators", "random"]
    for score in scores:
        assert {"mape", "median", "p90", "within_10", "bias", "coverage_90"} <= set(score)
    assert "random" in _run("evaluate", "--db", db, "--split", "rnadom", code=2).stderr


def test_what_has_no_estimate_has_no_error_and_quiet_leaves_a_line(db: str) -> None:
    words = ("evaluate", "--db", db, "--split", "random", "--predictor", "lookup")
    (row,) = (line for line in _run(*words).stdout.splitlines() if "lookup" in line)
    assert set(cell.strip() for cell in row.strip("│").split("│")[3:-1]) == {"-"}  # columns without any are left out
    assert _run(*words, "--quiet").stdout == "random: lookup: MAPE -, bias -\n"


def test_the_first_line_says_whose_times_they_are(db: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from op_profiler.dataset.address import absolute_address
    from op_profiler.prediction.latency.calibration import note_calibration
    from op_profiler.prediction.latency.examples import load_examples
    from op_profiler.prediction.latency.open_predictor import shipped_processor
    from op_profiler.report.page.predictions import open_for
    from op_profiler.schedules.records import slug
    from op_profiler.targets.llvm.identity import processor_name

    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    device = load_examples(db=db).devices[0]
    before = _run("predict", "mlp").stdout.splitlines()[0]
    assert before.startswith("times of ")
    ships = shipped_processor().folder.name == slug(processor_name())
    assert ("NOT of this machine" in before) == ("op-profiler calibrate" in before) == (not ships)
    named = _run("predict", "mlp", "--device", "AMD EPYC family 26").stdout.splitlines()[0]
    assert named.startswith("times of AMD EPYC family 26 model 2 (llvm") and "NOT" not in named
    note = note_calibration("llvm", absolute_address(db), device.key)
    assert note.is_relative_to(tmp_path)
    after = _run("predict", "mlp")
    assert after.stdout.splitlines()[0] == f"times of {device.processor} ({device.target})"
    assert "measured on this machine" in after.stderr
    assert "% measured" in after.stdout
    saved = tmp_path / "adapted.zip"
    with_file = _run("predict", "mlp", "--save", str(saved)), _run("predict", "mlp", "--predictor", str(saved))
    told = [one.stdout.splitlines() for one in (after, *with_file)]
    assert told[0] == told[1]
    assert told[0][:-1] == told[2][:-1]
    assert told[2][-1].endswith(f"--predictor {saved}"), "the command that checks it asks the same predictor"
    of_another = _run("predict", "mlp", "--predictor", str(saved), "--device", "a toaster", code=5)
    assert "adapted.zip holds times of" in of_another.stderr and "leave out --device" in of_another.stderr
    for processor, another in ((device.processor, False), (f"{device.processor}9", True)):
        _, whose = open_for.__wrapped__("default", "llvm", processor)  # what it keeps is not of this folder
        assert "measured on this machine" in whose, "a report predicts alike"
        assert ("measured on another machine" in whose) == another
    note.write_text(note.read_text().replace(device.key, "another"))
    damaged = _run("predict", "mlp")
    assert "cannot be used" in damaged.stderr
    assert damaged.stdout.startswith(before)


def test_quiet_and_json_tell_whose_times_they_are(db: str) -> None:
    from op_profiler.schedules.records import slug
    from op_profiler.targets.llvm.identity import processor_name

    quiet = _run("predict", "mlp", "--target", "pynq", "--quiet")
    assert "NOT of pynq" in quiet.stderr and quiet.stdout.startswith("total")
    assert _run("predict", "mlp", "--db", db, "--quiet").stderr == ""
    here = json.loads(_run("predict", "mlp", "--db", db, "--format", "json", "--quiet").stdout)
    assert here["of_this_machine"] and here["device"]["processor"] == processor_name()
    named = ("--device", "AMD EPYC family 26", "--format", "json", "--quiet")
    there = json.loads(_run("predict", "mlp", *named).stdout)
    assert there["device"]["processor"] == "AMD EPYC family 26 model 2"
    assert there["of_this_machine"] == (slug(processor_name()) == slug("AMD EPYC family 26 model 2"))


def test_the_processor_of_a_target_answers_where_it_ships_and_else_that_is_said() -> None:
    words = ("predict", "mlp", "--quiet", "--target")
    ships = {"znver4": "AMD EPYC family 25 model 17", "znver5": "AMD EPYC family 26 model 2"}
    told = {cpu: json.loads(_run(*words, f"llvm -mcpu={cpu}", "--format", "json").stdout) for cpu in ships}
    assert {cpu: one["device"]["processor"] for cpu, one in told.items()} == ships
    assert "NOT of" not in _run(*words, "llvm -mcpu=znver4").stderr
    other = _run(*words, "llvm -mcpu=haswell").stderr
    assert "NOT of llvm -mcpu=haswell" in other and "--db" in other


def test_what_ships_of_a_processor_is_made_of_datasets(
    db: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from op_profiler.prediction.latency.open_predictor import examples_for, open_predictor
    from op_profiler.schedules.records import slug
    from op_profiler.targets.llvm.identity import processor_name

    script = runpy.run_path(str(ROOT / "collector" / "ship_processor.py"))
    monkeypatch.setattr("op_profiler.shipped._FOLDER", tmp_path)
    for of in ([db], ["--again"]):
        monkeypatch.setattr("sys.argv", ["ship_processor.py", *of, "--results", str(tmp_path / "results")])
        script["main"]()
        (folder,) = (tmp_path / "results").iterdir()
        assert folder.name == slug(processor_name())
        assert {path.name for path in folder.iterdir()} == {"operators.parquet", "operator_loops.npz", "predictor.zip"}
        found = examples_for(db=None, device=None)
        assert found.models == examples_for(db=db, device=None).models
        assert not found.left_out.get("around sampled operators")
        assert open_predictor(note=pytest.fail).device == found.devices[0], "what ships is read, not fitted"
        with np.load(folder / "operator_loops.npz") as loops:
            assert loops["keys"].tolist() == [operator.key for operator in found.operators]
            assert np.isfinite(loops["loops"]).all(axis=1).mean() > 0.9
        (folder / "predictor.zip").write_text("of other features")
    _interrupt(script, folder, monkeypatch)


def test_machines_of_a_kind_ship_as_one_device(db: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from op_profiler.dataset.formats.parquet import read_parquet
    from op_profiler.prediction.latency.open_predictor import examples_for

    monkeypatch.setattr("op_profiler.shipped._FOLDER", tmp_path)
    script = runpy.run_path(str(ROOT / "collector" / "ship_processor.py"))["main"]
    here = db.removeprefix("sqlite:///")
    _run("export", "--db", db, "--format", "parquet", "--output", str(tmp_path / "here.parquet"))
    monkeypatch.setenv("OP_PROFILER_HOST_ID", "another machine of this kind")
    there = tmp_path / "there.db"
    _run(
        "collect",
        "--modelname",
        "mlp",
        "--threads",
        "1",
        "--schedules",
        "none",
        "--db",
        f"sqlite:///{there}",
        "--quiet",
    )
    _forget_load(f"sqlite:///{there}")
    for sources in ([here, str(there)], [str(tmp_path / "here.parquet"), str(there)]):
        monkeypatch.setattr("sys.argv", ["ship_processor.py", *sources, "--results", str(tmp_path / "results")])
        script()
        (folder,) = (tmp_path / "results").iterdir()
        assert len({row["device_key"] for row in read_parquet(folder / "operators.parquet", ["device_key"])}) == 2
        found = examples_for(db=None, device=None)
        assert len(found.devices) == 1 and sorted(found.models).count("mlp") == 2
        assert np.isfinite(found.reference_us).all(), "what tells how much slower one machine is than another"
    with contextlib.closing(sqlite3.connect(there)) as connection, connection:
        connection.execute("UPDATE devices SET host_fingerprint = 'of another kind'")
    with pytest.raises(SystemExit, match="machines of one kind"):
        script()


def _interrupt(script: dict[str, Any], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Made again and stopped before the last of the three files: all stay as they were."""
    from op_profiler.prediction.latency import predictor_files
    from op_profiler.shipped import shipped_processors

    def stopped(_: object, path: Path) -> None:
        assert path.with_name("operator_loops.npz").exists()
        assert [one.folder.name for one in shipped_processors()] == [folder.name], "what is being made is not used"
        raise KeyboardInterrupt

    before = {path: path.read_bytes() for path in folder.iterdir()}
    monkeypatch.setattr(predictor_files, "save", stopped)
    with pytest.raises(KeyboardInterrupt):
        script["main"]()
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
    assert list(folder.parent.iterdir()) == [folder]


@pytest.mark.slow
def test_calibrate_measures_and_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    address = f"sqlite:///{tmp_path / 'c.db'}"
    line = ["calibrate", "--budget", "1s", "--rounds", "3", "--threads", "1", "--db", address, "--json"]
    first = op_profiler(*line)
    assert first.returncode in (0, 1) or "under background load" in first.stderr, first.stderr
    _forget_load(address)
    found = json.loads(op_profiler(*line).stdout)
    assert found["operators"] >= 20
    said = _run("predict", "mlp").stderr
    assert "adapted to" in said or "fitted to" in said, "by whether this processor ships"


def test_several_models_are_rows_the_fastest_first(db: str, tmp_path: Path) -> None:
    names = tmp_path / "names.txt"
    names.write_text("# candidates\nmlp\n\nlocal:no-such-model\n")
    done = _run("predict", "rnn", f"@{names}", "mlp", "--db", db, "--format", "json", code=1)
    found = json.loads(done.stdout)
    assert [one["model"] for one in found] == ["mlp", "rnn", "local:no-such-model"]
    assert found[0]["low_us"] < found[0]["total_us"] < found[0]["high_us"] and found[0]["sources"] == {"measured": 1.0}
    assert found[0]["total_us"] < found[1]["total_us"] and "no-such-model" in found[2]["error"]
    alone = json.loads(_run("predict", "mlp", "--db", db, "--format", "json").stdout)
    assert found[0]["total_us"] == pytest.approx(alone["total_us"])


def test_only_models_below_a_latency_are_shown(db: str) -> None:
    alone = json.loads(_run("predict", "mlp", "--db", db, "--format", "json").stdout)
    limit = f"{alone['total_us'] * 1.01:.3f}us"
    done = _run("predict", "mlp", "rnn", "--below", limit, "--db", db, "--format", "csv")
    assert [row["model"] for row in csv.DictReader(io.StringIO(done.stdout))] == ["mlp"]
    assert "1 of 2 below" in done.stderr


@pytest.mark.parametrize("command", ["predict", "check", "evaluate"])
def test_devices_are_listed(command: str, db: str) -> None:
    shipped = _run(command, "--device", "list").stdout
    assert "AMD EPYC family 25" in shipped and "H100" in shipped
    assert "devices: 1" in _run(command, "--device", "list", "--db", db).stdout


def test_devices_are_columns() -> None:
    done = _run("predict", "mlp", "--device", "znver4,emeraldrapids")
    (row,) = [line for line in done.stdout.splitlines() if line.startswith("│ mlp")]
    assert row.count(" to ") == 2 and "AMD EPYC" in done.stdout and "Xeon" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["mlp", "rnn", "--save", "p.bin"], "are for one model on one device"),
        (["mlp", "--below", "5"], "5ms, 800us or 1.5s"),
        ([], "no model in the command; name one"),
        (["@nowhere.txt"], "cannot read the list of models nowhere.txt"),
    ],
)
def test_what_does_not_fit_several_models_is_refused(arguments: list[str], words: str) -> None:
    assert words in _run("predict", *arguments, code=2).stderr
