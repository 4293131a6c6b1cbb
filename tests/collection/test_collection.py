"""The whole way of a user: command line, worker process, dataset, summary; with kills and crashes on the way."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "collector" / "op_performance_collector.py"


def run(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT / "python"), **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def summary(folder: Path) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = json.loads((folder / "summary.json").read_text())
    return entries


def rows(folder: Path, query: str) -> list[tuple[Any, ...]]:
    with sqlite3.connect(folder / "results" / "op_profiler.db") as connection:
        return connection.execute(query).fetchall()


def goes_on(before: list[tuple[Any, ...]], now: list[tuple[Any, ...]]) -> bool:
    """Whether samples are the first ones of those that are there now. Rows are of key, samples and what a call takes,
    which was subtracted: a run that goes on measures it again, so it is added.
    """
    first, all_ = ({key: np.add(json.loads(us), call_us or 0.0) for key, us, call_us in rows} for rows in (before, now))
    return all(np.allclose(all_[key][: len(us)], us, rtol=0, atol=0.002) for key, us in first.items())


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    folder = tmp_path_factory.mktemp("collected")
    done = run(folder, "--modelsource=local", "--modelname", "mlp", "--summary-json", "summary.json")
    return folder, done


def test_a_collection_prints_its_tables_and_nothing_of_tvm(collected: Any) -> None:
    folder, done = collected
    assert done.returncode == 0, done.stderr
    assert "whole model" in done.stdout and "GFLOP/s" in done.stdout and "ratio" in done.stdout
    assert "tuned" not in done.stdout + done.stderr and "Traceback" not in done.stderr


def test_the_summary_has_what_it_promises(collected: Any) -> None:
    folder, _ = collected
    entries = summary(folder)
    assert [e["threads"] for e in entries] == sorted({e["threads"] for e in entries})
    for entry in entries:
        assert entry["threads_effective"] == entry["threads"]
        assert entry["operators"] == entry["measured"] == 4
        assert entry["reused"] == entry["failed"] == 0
        assert (entry["ratio"] is None) == (entry["not_a_pair"] is not None)  # where the machine was busy


def test_the_ratio_is_the_median_of_what_the_rounds_tell(collected: Any) -> None:
    folder, _ = collected
    whole = dict(rows(folder, "SELECT settings_key, samples_us FROM model_timings"))
    sums = {key: np.zeros(len(json.loads(samples))) for key, samples in whole.items()}
    for key, samples in rows(folder, "SELECT settings_key, samples_us FROM measurements"):
        sums[key] += np.array(json.loads(samples)).sum(axis=1)
    told = dict(rows(folder, "SELECT settings_key, json_extract(details, '$.ratio_per_round') FROM model_timings"))
    for key, ratio in told.items():
        assert ratio == pytest.approx(np.median(sums[key] / np.array(json.loads(whole[key]))[:, 0]), abs=0.001)


def test_every_operator_has_a_schedule_samples_and_an_interval(collected: Any) -> None:
    folder, _ = collected
    found = rows(
        folder,
        "SELECT s.template, m.samples_us, m.rounds, m.ci_low_us, m.median_us, m.ci_high_us, m.complete "
        "FROM measurements m JOIN schedules s ON s.key = m.schedule_key",
    )
    assert len(found) == 4 * len(summary(folder))
    for template, samples, rounds, low, median, high, complete in found:
        assert template != "unknown" and complete
        assert len(json.loads(samples)) == rounds >= 11
        assert low <= median <= high


def test_what_was_subtracted_from_times_stands_beside_them(collected: Any) -> None:
    folder, _ = collected
    found = rows(folder, "SELECT call_overhead_us, min_us FROM measurements")
    assert found and all(overhead is not None and least > 0 for overhead, least in found)
    (details,) = {
        details for (details,) in rows(folder, "SELECT json_extract(details, '$.call_overhead_us') FROM model_timings")
    }
    assert details is None  # where older versions kept what they did not subtract
    assert rows(folder, "SELECT DISTINCT call_overhead_us FROM model_timings") == [(None,)]


def test_the_second_collection_measures_nothing(collected: Any) -> None:
    folder, _ = collected
    before = rows(folder, "SELECT key, measured_at FROM measurements ORDER BY key")
    done = run(folder, "--modelname", "mlp", "--summary-json", "summary.json", "--quiet")
    assert done.returncode == 0 and done.stdout == "" and done.stderr == ""
    assert all(e["measured"] == 0 and e["reused"] == 4 for e in summary(folder))
    assert rows(folder, "SELECT key, measured_at FROM measurements ORDER BY key") == before


def test_another_batch_size_is_another_model(collected: Any) -> None:
    folder, _ = collected
    done = run(folder, "--modelname", "mlp", "--batchsize", "4", "--threads", "1", "--summary-json", "summary.json")
    assert done.returncode == 0, done.stderr
    (entry,) = summary(folder)
    assert entry["batch_size"] == 4 and entry["measured"] == 4
    shapes = rows(folder, "SELECT inputs FROM operators WHERE anchor LIKE '%softmax%'")
    assert sorted(json.loads(s)[0]["shape"][0] for (s,) in shapes) == [1, 4]


@pytest.mark.parametrize("cache", ["hot", "cold"])
def test_hot_and_cold_caches(collected: Any, cache: str) -> None:
    folder, _ = collected
    done = run(folder, "--modelname=mlp", f"--cache={cache}", "--threads=1", "--summary-json", "summary.json")
    assert done.returncode == 0, done.stderr
    assert summary(folder)[0]["measured"] == 4
    mechanism = rows(folder, f"SELECT DISTINCT cache_mechanism FROM settings WHERE cache = '{cache}'")
    assert mechanism == [("repeat" if cache == "hot" else "clflush",)]


@pytest.mark.slow
def test_a_hot_operator_that_another_model_brought_in_is_not_measured_again(tmp_path: Path) -> None:
    """The same convolution, asked for once by its shapes and once by the defaults: two models, the same operators."""
    options = ["--cache=hot", "--threads=1", "--summary-json", "summary.json"]
    shape = "--inputshape=1,64,56,56;64,64,3,3"
    first = run(tmp_path, "--modelsource=simple", "--modelname=conv2d", shape, *options)
    assert first.returncode == 0, first.stderr
    before = summary(tmp_path)[0]
    assert before["measured"] == before["operators"]
    batch = run(tmp_path, "--modelsource=simple", "--modelname=conv2d", "--batchsize=1", *options)
    assert batch.returncode == 0, batch.stderr
    after = summary(tmp_path)[0]
    assert after["measured"] == 0 and after["reused"] == before["operators"]
    assert after["sum_of_operators_us"] is not None


@pytest.mark.slow
def test_the_virtual_machine_executor(collected: Any) -> None:
    folder, _ = collected
    done = run(folder, "--modelname=mlp", "--executor=vm", "--threads=1", "--summary-json", "summary.json")
    assert done.returncode == 0, done.stderr
    assert summary(folder)[0]["measured"] == 4
    assert summary(folder)[0]["sum_of_operators_us"] is not None


def test_a_dry_run_counts_and_measures_nothing(tmp_path: Path) -> None:
    done = run(tmp_path, "--modelname", "mlp", "--dry-run", "--summary-json", "summary.json")
    assert done.returncode == 0, done.stderr
    for entry in summary(tmp_path):
        products, element_wise = 2 * (784 * 128 + 128 * 64 + 64 * 10), 2 * (128 + 64) + 10 + 5 * 10
        assert entry["operators"] == 4 and entry["flops"] == products + element_wise
        assert entry["whole_model_us"] is None and entry["measured"] == 0
    assert rows(tmp_path, "SELECT count(*) FROM measurements") == [(0,)]


def test_the_batch_is_that_of_what_was_lowered(tmp_path: Path) -> None:
    """It may come from the shape that the user gives, or from the model itself."""
    helper = pytest.importorskip("onnx").helper
    image = [helper.make_tensor_value_info(name, 1, (4, 3, 8, 8)) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "fixed", image[:1], image[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    (tmp_path / "fixed.onnx").write_bytes(model.SerializeToString())
    asked = {
        8: ("--modelname", "mlp", "--inputshape", "8,1,28,28"),
        4: ("--modelsource", "file", "--modelname", "fixed.onnx"),
    }
    for batch, arguments in asked.items():
        done = run(tmp_path, *arguments, "--dry-run", "--summary-json", "summary.json")
        assert done.returncode == 0, done.stderr
        assert f", batch {batch}, float32" in done.stdout
        assert {entry["batch_size"] for entry in summary(tmp_path)} == {batch}
    assert rows(tmp_path, "SELECT batch_size FROM models ORDER BY 1") == [(4,), (8,)]


@pytest.mark.slow
def test_a_killed_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    """Killed while it measures: the samples that were stored stay, and the next run adds to them."""
    arguments = ["--modelname", "squeezenet_v1.1", "--threads", "1", "--summary-json", "summary.json"]
    process = subprocess.Popen(
        [sys.executable, str(SCRIPT), *arguments],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "python")},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    database = tmp_path / "results" / "op_profiler.db"
    deadline = time.monotonic() + 120
    partial: list[tuple[Any, ...]] = []
    while not partial and time.monotonic() < deadline:
        time.sleep(0.05)
        if database.exists():
            try:
                partial = rows(tmp_path, "SELECT key FROM measurements WHERE NOT complete")
            except sqlite3.OperationalError:
                partial = []
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert partial, "the run ended before it could be killed"
    time.sleep(0.5)  # the worker dies with its supervisor
    measurements = "SELECT key, samples_us, call_overhead_us FROM measurements ORDER BY key"
    kept = rows(tmp_path, measurements)
    operators = rows(tmp_path, "SELECT key FROM operators")
    assert len(kept) == len(operators)
    time.sleep(0.5)
    assert rows(tmp_path, measurements) == kept, "the worker outlived its supervisor"

    done = run(tmp_path, *arguments)
    assert done.returncode == 0, done.stderr
    after = rows(tmp_path, measurements)
    assert [key for key, *_ in after] == [key for key, *_ in kept] and goes_on(kept, after)
    assert not rows(tmp_path, "SELECT key FROM measurements WHERE NOT complete")
    third = run(tmp_path, *arguments)
    assert third.returncode == 0
    assert summary(tmp_path)[0]["reused"] == len(operators)


@pytest.mark.parametrize("cache", ["hot", "cold"])
def test_a_killed_run_with_hot_or_cold_caches_keeps_its_rounds(tmp_path: Path, cache: str) -> None:
    """There light operators are timed at the largest thread count only, so at the others they have fewer samples."""
    arguments = ["--modelname=mlp", "--threads=1,2", f"--cache={cache}", "--coverage=0.5"]
    process = subprocess.Popen(
        [sys.executable, str(SCRIPT), *arguments],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "python")},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    whole = "SELECT settings_key, samples_us, call_overhead_us FROM model_timings WHERE"
    operators = "SELECT key, samples_us, call_overhead_us FROM measurements WHERE"
    deadline = time.monotonic() + 120
    uneven = False
    while not uneven and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
        try:
            lengths = {len(json.loads(samples)) for _, samples, _ in rows(tmp_path, f"{operators} NOT complete")}
            uneven = len(lengths) > 1
        except sqlite3.OperationalError:
            continue  # the tables are not there yet
    process.kill()
    process.wait()
    assert uneven, "the run ended before it could be killed"
    time.sleep(0.5)  # the worker dies with its supervisor
    kept = [rows(tmp_path, f"{query} NOT complete") for query in (whole, operators)]
    done = run(tmp_path, *arguments)
    assert done.returncode == 0, done.stderr
    after = [rows(tmp_path, f"{query} complete") for query in (whole, operators)]
    assert all(before and goes_on(before, now) for before, now in zip(kept, after))


def test_operators_that_do_not_build_are_recorded_and_the_exit_code_says_so(tmp_path: Path) -> None:
    """A model file with a grouped transposed 3-D convolution, which TVM 0.19 cannot compile for llvm."""
    onnx = pytest.importorskip("onnx", reason="the broken model is written as ONNX")
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper

    weights = numpy_helper.from_array(np.ones((8, 4, 3, 3, 3), "float32"), "w")
    graph = helper.make_graph(
        [
            helper.make_node("Relu", ["x"], ["r"]),
            helper.make_node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2, 2]),
            helper.make_node("ConvTranspose", ["p", "w"], ["y"], group=2, kernel_shape=[3, 3, 3]),
        ],
        "broken",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 8, 8, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 8, 9, 9, 9])],
        [weights],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.save(model, tmp_path / "broken.onnx")
    done = run(tmp_path, "--modelsource=file", "--modelname=broken.onnx", "--threads=1", "--summary-json=summary.json")
    assert done.returncode == 1, done.stderr
    (entry,) = summary(tmp_path)
    assert entry["failed"] == 1 and entry["ratio"] is None and len(entry["not_in_sum"]) == 1
    failures = rows(tmp_path, "SELECT error, median_us FROM measurements WHERE error IS NOT NULL")
    assert len(failures) == 1 and failures[0][1] is None
    times = rows(tmp_path, "SELECT median_us FROM measurements WHERE error IS NULL")
    assert times and all(t > 0 for (t,) in times)


def test_a_build_without_one_of_the_compilers_passes_is_told_and_stored(tmp_path: Path) -> None:
    """LLVM refuses a kernel in which `CommonSubexprElim` names a coordinate of a bilinear resize."""
    onnx = pytest.importorskip("onnx", reason="the model is written as ONNX")
    from onnx import TensorProto, helper

    graph = helper.make_graph(
        [helper.make_node("Resize", ["x", "", "scales"], ["y"], mode="linear")],
        "resized",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 8, 16, 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 8, 32, 32])],
        [helper.make_tensor("scales", TensorProto.FLOAT, [4], [1.0, 1.0, 2.0, 2.0])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.save(model, tmp_path / "resized.onnx")
    done = run(tmp_path, "--modelsource=file", "--modelname=resized.onnx", "--threads=1", "--summary-json=summary.json")
    assert done.returncode == 0, done.stderr
    (entry,) = summary(tmp_path)
    assert any("CommonSubexprElim" in note for note in entry["notes"])
    ((details,),) = rows(tmp_path, "SELECT details FROM model_timings")
    assert json.loads(details)["left_out_passes"] == ["tir.CommonSubexprElim"]


def test_a_kernel_that_crashes_costs_itself_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker is killed by a signal while it checks one kernel, as a crash would do."""
    hook = tmp_path / "sitecustomize.py"
    hook.write_text(
        "import os, signal, sys\n"
        "if 'op_profiler.collection.worker' in ' '.join(sys.orig_argv):\n"
        "    import op_profiler.measure.kernels as kernels\n"
        "    def crash(self, index, original=kernels.GraphKernels.kernel_error):\n"
        "        if 'softmax' in self.kernels[index].name and len(self.kernels) > 0:\n"
        "            os.kill(os.getpid(), signal.SIGSEGV)\n"
        "        return original(self, index)\n"
        "    kernels.GraphKernels.kernel_error = crash\n"
    )
    done = run(
        tmp_path,
        *["--modelname", "mlp", "--threads", "1", "--summary-json", "summary.json"],
        PYTHONPATH=f"{tmp_path}{os.pathsep}{ROOT / 'python'}",
    )
    assert done.returncode == 1, done.stderr
    (entry,) = summary(tmp_path)
    assert entry["failed"] == 1
    failed = rows(
        tmp_path,
        "SELECT o.anchor, m.error FROM measurements m JOIN operators o ON o.key = m.operator_key "
        "WHERE m.error IS NOT NULL",
    )
    assert [anchor for anchor, _ in failed] == ["nn.softmax"]
    assert "SIGSEGV" in failed[0][1]
    assert rows(tmp_path, "SELECT count(*) FROM measurements WHERE median_us > 0")[0][0] >= 3

    hook.unlink()  # what failed because of the operator stays so until it is asked for again
    options = ["--modelname=mlp", "--threads=1", "--summary-json=summary.json"]
    assert run(tmp_path, *options).returncode == 1
    assert summary(tmp_path)[0]["measured"] == 0 and summary(tmp_path)[0]["failed"] == 1
    done = run(tmp_path, *options, "--remeasure=failed")
    assert done.returncode == 0, done.stderr
    assert summary(tmp_path)[0]["measured"] == 4 and summary(tmp_path)[0]["sum_of_operators_us"] > 0
    causes = rows(tmp_path, "SELECT DISTINCT error_cause FROM failures")
    assert causes == [("operator",)]


def test_a_model_that_fails_as_a_whole_ends_with_the_same_code_and_words_when_repeated(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "if 'op_profiler.collection.worker' in ' '.join(sys.orig_argv):\n"
        "    import op_profiler.measure.kernels as kernels\n"
        "    from op_profiler.errors import MeasureError\n"
        "    def load(*words, original=kernels.load_graph):\n"
        "        loaded = original(*words)\n"
        "        if len(loaded.labels) > 1:\n"
        "            raise MeasureError('the model does not run: broken on purpose')\n"
        "        return loaded\n"
        "    kernels.load_graph = load\n"
    )
    path = f"{tmp_path}{os.pathsep}{ROOT / 'python'}"
    for measured in (4, 0):
        done = run(tmp_path, "--modelname=mlp", "--threads=1", "--summary-json=summary.json", PYTHONPATH=path)
        (entry,) = summary(tmp_path)
        assert done.returncode == 1, done.stderr
        assert entry["failed"] == 0 and entry["measured"] == measured
        assert "operator by operator, since the model does not run: broken on purpose" in entry["error"]
        assert "broken on purpose" in done.stderr


def test_what_failed_because_of_the_machine_is_tried_again_by_the_same_command(tmp_path: Path) -> None:
    """TVM's pool gives one thread where two are asked for; afterwards it gives both."""
    options = ["--modelname=mlp", "--threads=1,2", "--summary-json=summary.json"]
    # Another model first: the kernels that tell the machine's peaks run once, and would set up TVM's pool before us.
    run(tmp_path, "--modelname=mlp", "--batchsize=2", "--threads=1", "--db=sqlite:///other.db")
    done = run(tmp_path, *options, TVM_NUM_THREADS="1")
    assert done.returncode == 1, done.stderr
    one, two = summary(tmp_path)
    assert one["measured"] == 4 and one["failed"] == 0 and one["whole_model_us"] > 0
    assert two["whole_model_us"] is None and "asked for 2 threads" in two["error"]
    ((cause, state, whole),) = rows(tmp_path, "SELECT error_cause, machine_state, operator_key FROM failures")
    assert cause == "machine" and json.loads(state)["tvm_num_threads"] == "1" and whole is None

    done = run(tmp_path, *options)
    assert done.returncode == 0, done.stderr
    one, two = summary(tmp_path)
    assert one["measured"] == 0 and one["reused"] == 4
    assert two["measured"] == 4 and two["error"] is None and two["sum_of_operators_us"] > 0

    before = rows(tmp_path, "SELECT * FROM measurements ORDER BY key")
    done = run(tmp_path, *options, "--remeasure=all", TVM_NUM_THREADS="1")
    assert done.returncode == 1, done.stderr
    one, two = summary(tmp_path)
    assert one["measured"] == 4 and two["reused"] == 4 and two["whole_model_us"] > 0
    assert [f["cause"] for f in two["kept_failures"]] == ["machine"]
    assert "asked for 2 threads" in done.stdout and "stands" in done.stdout
    after = rows(tmp_path, "SELECT * FROM measurements ORDER BY key")
    assert len(after) == len(before) == 8 and len(set(after) - set(before)) == 4


def test_a_larger_coverage_is_measured_and_answers_for_smaller_ones(collected: Any) -> None:
    folder, _ = collected
    options = ["--modelname=mlp", "--batchsize=3", "--threads=1", "--summary-json=summary.json", "--quiet"]
    for coverage, measured in (("0.5", 4), ("0.4", 0), ("0.9", 4), ("0.9", 0), ("0.5", 0)):
        done = run(folder, *options, f"--coverage={coverage}")
        assert done.returncode == 0, done.stderr
        assert summary(folder)[0]["measured"] == measured, coverage
    assert rows(folder, "SELECT coverage FROM model_timings WHERE coverage = 0.9") == [(0.9,)]


def test_measuring_again_what_was_under_foreign_load(collected: Any) -> None:
    folder, _ = collected
    options = ["--modelname=mlp", "--threads=1", "--summary-json=summary.json"]
    with sqlite3.connect(folder / "results" / "op_profiler.db") as connection:
        connection.execute("UPDATE measurements SET foreign_load = 0, settled = 1")
        connection.execute("UPDATE model_timings SET foreign_load = 0, settled = 1")
    assert run(folder, *options, "--remeasure=noisy").returncode == 0
    assert summary(folder)[0]["measured"] == 0
    with sqlite3.connect(folder / "results" / "op_profiler.db") as connection:
        connection.execute("UPDATE model_timings SET foreign_load = 1")
        connection.execute("UPDATE measurements SET foreign_load = 1")
    assert run(folder, *options).returncode == 0
    assert summary(folder)[0]["reused"] == 4
    assert run(folder, *options, "--remeasure=noisy").returncode == 0
    assert summary(folder)[0]["measured"] == 4
    done = run(folder, *options, "--remeasure=everything")
    assert done.returncode == 2 and "failed" in done.stderr
