"""Commands under the compiler relax."""

from __future__ import annotations

import contextlib
import csv
import json
import sqlite3
import subprocess
from pathlib import Path

import numpy as np
import pytest

from op_profiler.compilers.relax import tvm_package

from ...collection import collector
from ...command_line import op_profiler


@pytest.fixture(scope="module", autouse=True)
def installed() -> None:
    if tvm_package.version() is None:
        pytest.skip(f"there is no TVM with Relax in {tvm_package.folder()}: {tvm_package.INSTALL}")


def _collect(*options: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    return op_profiler("collect", "--quiet", *options, folder=folder)


def test_a_model_is_measured_under_both_compilers_and_its_convolution_is_the_same_operator(tmp_path: Path) -> None:
    file = tmp_path / "results.db"
    model = (
        "--modelsource",
        "simple",
        "--modelname",
        "conv2d",
        "--inputshape",
        "1,16,8,8",
        "--db",
        f"sqlite:///{file}",
    )
    for compiler in ("relay", "relax"):
        ran = _collect(*model, "--compiler", compiler, "--threads", "1")
        assert ran.returncode == 0, ran.stderr
    with contextlib.closing(sqlite3.connect(file)) as connection:
        rows = connection.execute(
            "SELECT compiler, operator_key, median_us, tvm_version, template FROM measurements"
            " JOIN devices ON devices.key = device_key JOIN operators ON operators.key = operator_key"
            " JOIN schedules ON schedules.key = schedule_key WHERE anchor LIKE '%conv2d%'"
        ).fetchall()
        machines = connection.execute(
            "SELECT compiler, details, properties FROM model_timings JOIN devices ON devices.key = device_key"
        ).fetchall()
    assert {compiler for compiler, *_ in rows} == {"relay", "relax"} and len(rows) == 2
    assert len({key for _, key, *_ in rows}) == 1 and all(median_us > 0 for _, _, median_us, *_ in rows)
    version = str(tvm_package.version())
    assert ("relax", version, "conv2d_NCHWc.relax") in {(compiler, *others) for compiler, _, _, *others in rows}
    told = {compiler: (json.loads(details), json.loads(properties)) for compiler, details, properties in machines}
    assert told.keys() == {"relay", "relax"}
    assert all(min(details["gauge_us"].values()) > 0 for details, _ in told.values())
    assert told["relay"][0]["gauge_bytes"] == told["relax"][0]["gauge_bytes"]
    assert told["relay"][1]["peaks"].keys() == told["relax"][1]["peaks"].keys()
    where = ("--db", f"sqlite:///{file}", "--where", "compiler = 'relax'")
    exported = op_profiler("export", "--format", "csv", "--output", str(tmp_path / "rows.csv"), *where)
    assert exported.returncode == 0, exported.stderr
    with (tmp_path / "rows.csv").open() as lines:
        assert {(row["compiler"], row["tvm_version"]) for row in csv.DictReader(lines)} == {("relax", version)}
    beside = op_profiler("compare", "relay", "relax", "--db", f"sqlite:///{file}", "--json")
    assert beside.returncode == 0, beside.stderr
    (run,) = json.loads(beside.stdout)["runs"]
    assert [run[side]["compiler"] for side in ("before", "after")] == ["relay", "relax"]
    assert all(row["name"] is None or row["how"] == "key" for row in run["rows"]), "the same operators"
    refused = op_profiler("compare", "relay", "relax", "--db", f"sqlite:///{file}", "--rerun")
    assert refused.returncode == 2 and "without --rerun" in " ".join(refused.stderr.split())


def test_prefill_and_decode_of_a_decoder_are_models_apart_with_the_kernels_of_their_attention(tmp_path: Path) -> None:
    file, sizes = tmp_path / "results.db", ("hidden_size", "intermediate_size", "vocab_size")
    config = {"model_type": "llama", "num_hidden_layers": 1, "num_attention_heads": 2, **dict.fromkeys(sizes, 32)}
    (tmp_path / "config.json").write_text(json.dumps(config))
    steps = ("--prefill", "4", "--decode", "1", "--past", "16,40")
    model = ("--compiler", "relax", "--modelname", str(tmp_path), "--threads", "1", "--db", f"sqlite:///{file}")
    ran = _collect(*model, *steps)
    assert ran.returncode == 0, ran.stderr
    with contextlib.closing(sqlite3.connect(file)) as connection:
        rows = connection.execute(
            "SELECT models.name, operators.anchor, median_us FROM measurements JOIN models ON models.key = model_key"
            " JOIN operators ON operators.key = operator_key WHERE anchor LIKE 'attention.%'"
        ).fetchall()
    found = {(name.removeprefix(str(tmp_path)), anchor) for name, anchor, median_us in rows if median_us > 0}
    both = {"attention.rope", "attention.append"}
    assert found == {
        *((" (prefill 4)", anchor) for anchor in both | {"attention.prefill"}),
        *((f" (decode 1 after {past})", anchor) for past in (16, 40) for anchor in both | {"attention.decode"}),
    }
    with contextlib.closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("UPDATE measurements SET foreign_load = 0")  # of other tests
    told = op_profiler("analyze", "--db", f"sqlite:///{file}", "--factor", "past", "--format", "json")
    assert told.returncode == 0, told.stderr
    points = [point for point in json.loads(told.stdout)["turnarounds"] if point["factor"] == "past"]
    assert [16, 40] in [point["values"] for point in points]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--precision", "int8"), "--precision float32"),
        (("--executor", "vm"), "leave out --executor"),
        (("--target", "llvm,pynq"), "pynq"),
        (("--target", "cuda -arch=sm_90", "--dry-run", "--iftune", "true"), "--iftune with --target cuda"),
        (("--target", "cuda -arch=sm_90", "--host", "127.0.0.1", "--port", "9"), "the GPU of this machine"),
        (("--iftune", "true", "--host", "127.0.0.1", "--port", "9"), "--iftune with --host"),
        (("--modelname", "llama", "--decode", "1", "--past", "8", "--host", "127.0.0.1", "--port", "9"), "--host"),
        (("--vendor", "true"), "--vendor"),
        (("--pipeline", "stock", "--iftune", "true"), "--pipeline"),
        (("--pipeline", "stok"), "'stok'"),
        (("--pipeline", "no_such_module:passes"), "no_such_module"),
    ],
)
def test_what_it_cannot_do_is_refused_with_a_sentence(options: tuple[str, ...], told: str) -> None:
    ran = _collect("--compiler", "relax", "--modelname", "mlp", *options)
    assert ran.returncode == 2 and "Traceback" not in ran.stderr
    assert told in " ".join(ran.stderr.split())


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--merge",), "--merge"),
        (("--merge", "--cluster", "tcp://127.0.0.1:9"), "--merge is not there"),
        (("--target", "cuda"), "corun --target cuda"),
    ],
    ids=["merge", "merge on a cluster", "GPU"],
)
def test_plans_that_it_has_not_are_refused_before_anything(options: tuple[str, ...], told: str, tmp_path: Path) -> None:
    ran = op_profiler("corun", "mlp", "--compiler", "relax", *options, folder=tmp_path)
    assert ran.returncode == 2 and "Traceback" not in ran.stderr
    assert told in ran.stderr and "--compiler relax" in ran.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_model_is_compiled_for_a_board_that_is_not_there() -> None:
    ran = op_profiler("collect", "--compiler", "relax", "--modelname", "mlp", "--target", "pynq", "--dry-run")
    assert ran.returncode == 0, ran.stderr
    assert "not measured" in ran.stdout and "dense + add + relu" in ran.stdout


def test_a_model_is_tuned_recorded_and_rebuilt_with_the_records(tmp_path: Path) -> None:
    file, schedules, summary = tmp_path / "results.db", tmp_path / "schedules", tmp_path / "summary.json"
    model = ("--modelsource", "simple", "--modelname", "conv2d", "--inputshape", "1,16,14,14", "--threads", "1")
    places = ("--db", f"sqlite:///{file}", "--schedules", str(schedules), "--summary-json", str(summary))
    search = ("--iftune", "true", "--trials", "10", "--tuner", "random", "--ifcompare", "true")
    ran = _collect(*model, "--compiler", "relax", *places, *search)
    assert ran.returncode == 0, ran.stderr
    told = json.loads(summary.read_text())[0]
    (tuned,), (compared,) = told["tuning"], told["comparison"]
    assert tuned["new"] == 11 and tuned["best_in_model_us"] <= tuned["default_in_model_us"] and compared["agree"]
    (database,) = schedules.rglob("database_tuning_record.json")
    assert database.parent.name == "1-threads-model" and len(database.read_text().splitlines()) == 1
    with contextlib.closing(sqlite3.connect(file)) as connection:
        trials = connection.execute(
            "SELECT template, factor_tile, factor_vectorize, factor_parallel FROM schedules WHERE origin = 'trial'"
        ).fetchall()
        in_model = connection.execute(
            "SELECT DISTINCT origin FROM schedules JOIN measurements ON schedule_key = schedules.key"
            " JOIN settings ON settings.key = settings_key"
            " WHERE settings.executor = 'graph' AND template = 'conv2d_NCHWc.relax'"
        ).fetchall()
    assert len(trials) >= 10 and {template for template, *_ in trials} == {"conv2d_NCHWc.relax"}
    assert all(tile and vectorize and parallel for _, tile, vectorize, parallel in trials)
    assert ("tuned",) in in_model


def test_a_search_that_was_killed_goes_on_where_it_stopped(tmp_path: Path) -> None:
    model = ("--modelsource", "simple", "--modelname", "conv2d", "--inputshape", "1,16,14,14", "--threads", "1")
    search = (*model, "--compiler", "relax", "--iftune", "true", "--trials", "28", "--tuner", "random")
    changes = {"OP_PROFILER_SCHEDULES": str(tmp_path / "schedules")}
    trials = "SELECT count(*) FROM measurements JOIN schedules ON schedules.key = schedule_key WHERE origin = 'trial'"

    def a_part() -> bool:
        return any(count >= 5 for (count,) in collector.stored(tmp_path, trials))

    collector.killed(tmp_path, *search, when=a_part, changes=changes)
    ((before,),) = collector.rows(tmp_path, trials)
    assert before < 28
    ran = collector.run(tmp_path, *search, "--summary-json", "summary.json", **changes)
    assert ran.returncode == 0, ran.stderr
    (tuned,) = collector.summary(tmp_path)[0]["tuning"]
    assert tuned["trials"] == 29 and tuned["new"] == tuned["trials"] - before
    assert collector.rows(tmp_path, trials) == [(tuned["trials"],)], "nothing is there twice"


def test_tuners_of_another_compiler_are_refused_with_a_sentence() -> None:
    ran = _collect("--compiler", "relax", "--modelname", "mlp", "--iftune", "true", "--tuner", "xgb_knob")
    assert ran.returncode == 2 and "Traceback" not in ran.stderr
    assert "--compiler relax" in ran.stderr and "trees, random, gridsearch" in ran.stderr


def test_the_user_s_pipeline_is_measured_and_another_content_of_it_is_another_model(tmp_path: Path) -> None:
    file = tmp_path / "results.db"
    module = tmp_path / "own_passes.py"
    text = "from tvm import relax\n\ndef passes(target):\n    return relax.get_default_pipeline(target)\n"
    model = ("--modelname", "mlp", "--db", f"sqlite:///{file}", "--threads", "1", "--compiler", "relax")
    for written in (text, text + "# changed\n"):
        module.write_text(written)
        ran = _collect(*model, "--pipeline", "own_passes:passes", folder=tmp_path)
        assert ran.returncode == 0, ran.stderr
    with contextlib.closing(sqlite3.connect(file)) as connection:
        models = connection.execute("SELECT key, notes FROM models").fetchall()
        templates = connection.execute("SELECT DISTINCT template FROM schedules").fetchall()
    assert len(models) == 2 and all("own_passes:passes" in notes for _, notes in models)
    assert templates == [("own_passes:passes.relax",)]


def test_plans_run_kernels_of_relax_also_tuned_ones_and_outputs_agree_with_the_virtual_machine(tmp_path: Path) -> None:
    told = tmp_path / "told.json"
    options = ["--compiler", "relax", "--policy", "collaborate", "--rounds", "3", "--quiet", "--json", str(told)]
    patience = {"OP_PROFILER_PATIENCE_SECONDS": "0"}
    ran = op_profiler("corun", "mlp", "mlp", *options, environment=patience)
    assert ran.returncode == 0, ran.stderr
    found = json.loads(told.read_text())
    assert found["outputs_agree"] and {one["policy"] for one in found["tried"]} >= {"collaborate"}


def _dense_layers(path: Path, widths: list[int]) -> None:
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(0)
    pairs = list(zip(widths, widths[1:]))
    weights = [
        numpy_helper.from_array(rng.standard_normal(pair).astype("float32"), f"w{at}") for at, pair in enumerate(pairs)
    ]
    nodes = []
    for at in range(len(pairs)):
        nodes.append(helper.make_node("MatMul", [f"x{at}", f"w{at}"], [f"y{at}"]))
        nodes.append(helper.make_node("Relu", [f"y{at}"], [f"x{at + 1}"]))
    nodes.append(helper.make_node("Softmax", [f"x{len(pairs)}"], ["y"]))
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, width])
        for name, width in (("x0", widths[0]), ("y", widths[-1]))
    ]
    graph = helper.make_graph(nodes, "layers", ends[:1], ends[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    path.write_bytes(model.SerializeToString())


def test_predict_and_evaluate_learn_from_what_was_collected_and_from_the_loops_that_the_collector_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("onnx", reason="the models are written as ONNX")
    from op_profiler.prediction.latency.open_predictor import examples_for

    monkeypatch.setenv("OP_PROFILER_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "results.db"
    learning = ("--compiler", "relax", "--db", f"sqlite:///{file}")
    for number, name in enumerate(("first", "second")):
        widths = [*range(64 + 80 * number, 144 + 80 * number, 8), 512, 1032 + 8 * number]
        _dense_layers(tmp_path / f"{name}.onnx", widths)
        model = ("--modelsource", "file", "--modelname", f"{name}.onnx", "--threads", "1,2")
        ran = _collect(*model, *learning, folder=tmp_path)
        assert ran.returncode == 0, ran.stderr
    with contextlib.closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("UPDATE measurements SET foreign_load = 0")  # of other tests
    monkeypatch.setenv("OP_PROFILER_COMPILER", "relax")
    examples = examples_for(db=f"sqlite:///{file}", device=None, compiler="relax")
    assert len(examples) >= 40 and examples.loops is not None and np.isfinite(examples.loops).all()

    ran = op_profiler("predict", "mlp", *learning, "--predictor", "xgboost", "--format", "json", libraries=("xgboost",))
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    low, high = found["interval_us"]
    assert low < found["total_us"] < high and not set(found["tiers"]) & {"measured"}
    chosen = ("--split", "random", "--predictor", "xgboost", "--json", "--quiet")
    ran = op_profiler("evaluate", *learning, *chosen, libraries=("xgboost",))
    assert ran.returncode == 0, ran.stderr
    scores = json.loads(ran.stdout)
    assert [score["split"] for score in scores] == ["random"] and scores[0]["tested"] > 0 and scores[0]["mape"] > 0


def test_options_of_the_collector_have_their_effect(tmp_path: Path) -> None:
    data = np.random.default_rng(0).standard_normal((2, 1, 28, 28)).astype("float32")
    np.savez(tmp_path / "inputs.npz", data=data)
    model = ("--compiler", "relax", "--modelname", "mlp", "--batchsize", "2", "--db", "sqlite:///results.db")
    given = ("--inputdata", "inputs.npz", "--importer", "relay", "--report", "page.html", "--counters")
    ran = _collect(*model, *given, "--sweep", "core_set=0", "--threads", "1", "--label", "one", folder=tmp_path)
    assert ran.returncode == 0, ran.stderr
    ran = _collect(*model, "--cache", "cold", "--threads", "1", folder=tmp_path)
    assert ran.returncode == 0, ran.stderr
    with contextlib.closing(sqlite3.connect(tmp_path / "results.db")) as connection:
        runs = connection.execute(
            "SELECT DISTINCT models.label, models.batch_size, cache, core_set FROM measurements"
            " LEFT JOIN models ON models.key = model_key JOIN settings ON settings.key = settings_key"
            " WHERE median_us > 0"
        ).fetchall()
        layers = connection.execute("SELECT layers FROM model_operators WHERE layers IS NOT NULL").fetchall()
    assert {(label, batch, cache) for label, batch, cache, _ in runs} == {("one", 2, "model"), (None, None, "cold")}
    assert any("0" in str(cores) for *_, cores in runs)
    assert {"fc1", "fc2", "fc3"} <= {names[0] for (text,) in layers for names in json.loads(text) if names}
    assert "mlp" in (tmp_path / "page.html").read_text()


def test_devices_tell_of_both_compilers() -> None:
    compilers = json.loads(op_profiler("devices", "--local", "--json").stdout)["compilers"]
    assert compilers["relax"] == f"apache-tvm {tvm_package.version()}"
    assert compilers["relay"] != "none"
