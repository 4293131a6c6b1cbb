"""The whole way of a user: command line, worker process, dataset, summary."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from op_profiler.cores import available_cores, siblings
from op_profiler.measure.counters import EVENT_NAMES

from .collector import rows, run, summary


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    folder = tmp_path_factory.mktemp("collected")
    done = run(folder, "--modelsource=local", "--modelname", "mlp", "--counters", "--summary-json", "summary.json")
    return folder, done


def test_a_collection_prints_its_tables_and_nothing_of_tvm(collected: Any) -> None:
    folder, done = collected
    assert done.returncode == 0, done.stderr
    assert "whole model" in done.stdout and "GFLOP/s" in done.stdout and "ratio" in done.stdout
    assert "tuned" not in done.stdout + done.stderr and "Traceback" not in done.stderr


def test_every_counter_has_a_value_or_a_reason(collected: Any) -> None:
    folder, _ = collected
    for table in ("measurements", "model_timings"):
        found = rows(folder, f"SELECT {', '.join(EVENT_NAMES)}, counters_missing FROM {table}")
        assert found
        for *values, missing in found:
            assert [name for name, value in zip(EVENT_NAMES, values) if value is None] == [
                name for name in EVENT_NAMES if name in json.loads(missing)
            ]


def test_what_was_timed_without_counters_is_counted_and_not_timed_again(collected: Any, tmp_path: Path) -> None:
    shutil.copytree(collected[0], tmp_path, dirs_exist_ok=True)
    times = {
        table: rows(tmp_path, f"SELECT key, samples_us, measured_at FROM {table} ORDER BY key")
        for table in ("measurements", "model_timings")
    }
    empty = ", ".join(f"{name} = NULL" for name in (*EVENT_NAMES, "counters_missing"))
    for table in times:
        rows(tmp_path, f"UPDATE {table} SET {empty}")
    for _ in range(2):  # the second time there is nothing to do
        done = run(tmp_path, "--modelsource=local", "--modelname", "mlp", "--counters")
        assert done.returncode == 0, done.stderr
        for table, before in times.items():
            assert rows(tmp_path, f"SELECT key, samples_us, measured_at FROM {table} ORDER BY key") == before
            told = rows(tmp_path, f"SELECT counters_missing, {', '.join(EVENT_NAMES)} FROM {table}")
            assert all(len(json.loads(missing)) + sum(v is not None for v in values) == 8 for missing, *values in told)


def test_the_summary_has_what_it_promises(collected: Any) -> None:
    folder, _ = collected
    entries = summary(folder)
    assert [e["threads"] for e in entries] == sorted({e["threads"] for e in entries})
    for entry in entries:
        assert entry["threads_effective"] == entry["threads"]
        assert entry["physical_cores"] == min(
            entry["threads"], len({min(siblings(core)) for core in available_cores()})
        )
        assert entry["operators"] == entry["measured"] == 4
        assert entry["reused"] == entry["failed"] == 0
        assert (entry["ratio"] is None) == (entry["not_a_pair"] is not None)  # where the machine was busy
        assert all(entry["stage_seconds"][stage] > 0 for stage in ("loading TVM", "compiling", "measuring"))


def test_the_ratio_is_the_median_of_what_the_rounds_tell(collected: Any) -> None:
    folder, _ = collected
    whole = dict(rows(folder, "SELECT settings_key, samples_us FROM model_timings"))
    sums = {key: np.zeros(len(json.loads(samples))) for key, samples in whole.items()}
    for key, samples in rows(folder, "SELECT settings_key, samples_us FROM measurements"):
        sums[key] += np.array(json.loads(samples)).sum(axis=1)
    told = "SELECT settings_key, json_extract(details, '$.ratio_per_round'), quiet_share FROM model_timings"
    for key, ratio, quiet in rows(folder, told):
        ratios = sums[key] / np.array(json.loads(whole[key]))[:, 0]
        if quiet == 1:
            assert ratio == pytest.approx(np.median(ratios), abs=0.001)
        else:  # of the quiet rounds alone
            assert ratios.min() <= ratio <= ratios.max()


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
    assert all(e["measured"] == 0 and e["reused"] == 4 and not e["stage_seconds"] for e in summary(folder))
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


def test_powers_with_other_exponents_are_other_operators(tmp_path: Path) -> None:
    """x^3 calls a function for each value, which takes many times as long as x^2: its time must not be that of x^2."""
    onnx = pytest.importorskip("onnx")
    tensors = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 64, 56, 56]) for name in "xy"]
    medians = []
    for exponent in (2.0, 3.0):
        constant = onnx.numpy_helper.from_array(np.float32(exponent), "e")
        power = onnx.helper.make_node("Pow", ["x", "e"], ["y"])
        graph = onnx.helper.make_graph([power], "power", tensors[:1], tensors[1:], [constant])
        opset = [onnx.helper.make_opsetid("", 13)]
        onnx.save(onnx.helper.make_model(graph, opset_imports=opset, ir_version=8), tmp_path / f"x{exponent:g}.onnx")
        options = ("--cache=hot", "--threads=1", "--summary-json=summary.json")
        done = run(tmp_path, "--modelsource=file", f"--modelname=x{exponent:g}.onnx", *options)
        assert done.returncode == 0, done.stderr
        found = summary(tmp_path)[0]
        assert (found["measured"], found["reused"]) == (1, 0)
        medians.append(found["sum_of_operators_us"])
    assert medians[1] > 3 * medians[0]


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


def test_reused_operators_that_do_not_add_up_are_no_ratio_and_are_measured_again(tmp_path: Path) -> None:
    """A hot operator of another run beside a whole model that takes fifty times as long."""
    options = ["--modelsource=simple", "--modelname=add", "--cache=hot", "--threads=1", "--summary-json=summary.json"]
    assert run(tmp_path, *options, "--inputshape=1,64,56,56;1,64,56,56").returncode == 0
    assert summary(tmp_path)[0]["measured"] == 1
    again = [*options, "--batchsize=1"]  # another model, with the same operator
    assert run(tmp_path, *again).returncode == 0
    assert (summary(tmp_path)[0]["measured"], summary(tmp_path)[0]["reused"]) == (0, 1)
    quiet = "foreign_load = 0, settled = 1, disturbed_by = NULL"
    slower = ", ".join(f"{name} = 50 * {name}" for name in ("median_us", "ci_low_us", "ci_high_us"))
    rows(tmp_path, f"UPDATE measurements SET {quiet}")
    rows(tmp_path, f"UPDATE model_timings SET {quiet}, {slower}")
    rows(tmp_path, "UPDATE model_timings SET before_us = median_us, after_us = median_us")
    done = run(tmp_path, *again)
    assert done.returncode == 0 and "none" in done.stdout and "0.020" not in done.stdout
    assert summary(tmp_path)[0]["ratio"] is None and "in another run: 1" in summary(tmp_path)[0]["not_a_pair"]
    assert run(tmp_path, *again, "--remeasure=noisy").returncode == 0
    assert (summary(tmp_path)[0]["measured"], summary(tmp_path)[0]["reused"]) == (1, 0)
    assert summary(tmp_path)[0]["ratio"] is not None or "another run" not in summary(tmp_path)[0]["not_a_pair"]


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
    quiet = "foreign_load = 0, settled = 1"
    rows(folder, f"UPDATE measurements SET {quiet}")
    rows(folder, f"UPDATE model_timings SET {quiet}, before_us = median_us, after_us = median_us")
    assert run(folder, *options, "--remeasure=noisy").returncode == 0
    assert summary(folder)[0]["measured"] == 0
    for table in ("model_timings", "measurements"):
        rows(folder, f"UPDATE {table} SET foreign_load = 1")
    assert run(folder, *options).returncode == 0
    assert summary(folder)[0]["reused"] == 4
    assert run(folder, *options, "--remeasure=noisy").returncode == 0
    assert summary(folder)[0]["measured"] == 4
    done = run(folder, *options, "--remeasure=everything")
    assert done.returncode == 2 and "failed" in done.stderr


def test_measuring_again_what_was_measured_on_slow_cores(collected: Any) -> None:
    folder, _ = collected
    options = ["--modelname=mlp", "--threads=1", "--summary-json=summary.json"]
    usual_us = "json_extract(details, '$.gauge_us.compute') / 1.2"
    rows(folder, f"UPDATE model_timings SET details = json_set(details, '$.compute_usual_us', {usual_us})")
    done = run(folder, *options)
    assert done.returncode == 0 and "slower" in done.stdout
    assert (summary(folder)[0]["measured"], summary(folder)[0]["disturbed_by"]) == (0, "cores slower than usual")
    assert run(folder, *options, "--remeasure=noisy").returncode == 0
    assert (summary(folder)[0]["measured"], summary(folder)[0]["disturbed_by"]) == (4, None)


def test_times_that_a_clock_ahead_of_ours_wrote_are_measured_again(collected: Any, tmp_path: Path) -> None:
    shutil.copytree(collected[0], tmp_path, dirs_exist_ok=True)
    for table in ("model_timings", "measurements"):
        rows(tmp_path, f"UPDATE {table} SET measured_at = '2099-01-01T00:00:00.000000+00:00'")
    options = ["--modelname=mlp", "--threads=1", "--counters", "--summary-json=summary.json"]
    done = run(tmp_path, *options)
    assert done.returncode == 0 and summary(tmp_path)[0]["measured"] == 0, done.stderr
    samples = "SELECT samples_us FROM measurements m JOIN settings s ON s.key = m.settings_key WHERE threads = 1"
    before = set(rows(tmp_path, samples))
    done = run(tmp_path, *options, "--remeasure=all")
    assert done.returncode == 0 and summary(tmp_path)[0]["measured"] == 4, done.stderr
    assert len(before - set(rows(tmp_path, samples))) == 4
    of_run = "SELECT count(DISTINCT run_id), min(length(run_id)) FROM (SELECT * FROM {} WHERE measured_at < '2099')"
    assert [rows(tmp_path, of_run.format(table)) for table in ("measurements", "model_timings")] == [[(1, 16)]] * 2
