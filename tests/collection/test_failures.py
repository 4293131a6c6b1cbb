"""What does not build, crashes or fails: it costs itself only, is recorded, and is told the same way each time."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from op_profiler.cores import usable_cores
from op_profiler.dataset import Dataset, flat_rows

from .collector import rows, run, summary


def with_mlp(folder: Path, code: str) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    """A collection of one model on one thread whose workers run some code first, and its summary."""
    done = run(folder, "--modelname=mlp", "--threads=1", "--summary-json=summary.json", in_workers=code)
    (entry,) = summary(folder)
    return done, entry


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


def test_a_kernel_that_crashes_costs_itself_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker is killed by a signal while it checks one kernel, as a crash would do."""
    done = run(
        tmp_path,
        *["--modelname", "mlp", "--threads", "1", "--summary-json", "summary.json"],
        in_workers=(
            "import os, signal\n"
            "import op_profiler.measure.kernels as kernels\n"
            "def crash(self, index, original=kernels.GraphKernels.kernel_error):\n"
            "    if 'softmax' in self.kernels[index].name and len(self.kernels) > 0:\n"
            "        os.kill(os.getpid(), signal.SIGSEGV)\n"
            "    return original(self, index)\n"
            "kernels.GraphKernels.kernel_error = crash\n"
        ),
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

    # What failed because of the operator stays so until it is asked for again.
    options = ["--modelname=mlp", "--threads=1", "--summary-json=summary.json"]
    assert run(tmp_path, *options).returncode == 1
    assert summary(tmp_path)[0]["measured"] == 0 and summary(tmp_path)[0]["failed"] == 1
    done = run(tmp_path, *options, "--remeasure=failed")
    assert done.returncode == 0, done.stderr
    assert summary(tmp_path)[0]["measured"] == 4 and summary(tmp_path)[0]["sum_of_operators_us"] > 0
    causes = rows(tmp_path, "SELECT DISTINCT error_cause FROM failures")
    assert causes == [("operator",)]


def test_a_kernel_that_fails_now_and_then_is_a_failure_with_its_count(tmp_path: Path) -> None:
    code = (
        "from op_profiler.measure.in_place import InPlaceKernels\n"
        "walks = []\n"
        "def walk(self, *words, original=InPlaceKernels.walk):\n"
        "    walks.append(True)\n"
        "    times = original(self, *words)\n"
        "    return times[:-1] + [float('nan')] if len(walks) % 5 == 1 else times\n"
        "InPlaceKernels.walk = walk\n"
    )
    done, entry = with_mlp(tmp_path, code)
    assert done.returncode == 1, done.stderr
    assert (entry["failed"], entry["sum_of_operators_us"], len(entry["not_in_sum"])) == (1, None, 1)
    assert entry["whole_model_us"] > 0
    ((error, cause, times),) = rows(
        tmp_path, "SELECT error, error_cause, median_us FROM measurements WHERE error IS NOT NULL"
    )
    told = re.fullmatch(r"failed in (\d+) of (\d+) rounds", error)
    assert told and int(told[1]) == -(-int(told[2]) // 5) and (cause, times) == ("operator", None)
    assert error in done.stdout


def test_rounds_that_are_discarded_are_counted_stored_and_shown(tmp_path: Path) -> None:
    code = (
        "from op_profiler.measure.rounds import Rounds\n"
        "windows = []\n"
        "Rounds._disturbed = lambda self, window: windows.append(window[1].rounds) or len(windows) == 1\n"
    )
    done, entry = with_mlp(tmp_path, code)
    assert done.returncode == 0, done.stderr
    discarded, rounds = entry["discarded_rounds"], entry["rounds"]
    assert discarded > 0 and entry["discarded_share"] == discarded / (discarded + rounds)
    assert f"{discarded / (discarded + rounds):.0%}" in done.stdout and "discarded" in done.stdout
    for table in ("measurements", "model_timings"):
        assert rows(tmp_path, f"SELECT DISTINCT discarded_rounds, rounds FROM {table}") == [(discarded, rounds)]
    with Dataset.open(f"sqlite:///{tmp_path}/results/op_profiler.db", read_only=True) as dataset:
        (share,) = {row["discarded_share"] for row in flat_rows(dataset, columns=["discarded_share"])}
    assert share == pytest.approx(entry["discarded_share"])


def test_a_crash_while_values_are_looked_at_is_no_operators(tmp_path: Path) -> None:
    """Every kernel was checked by then, and the last one among them is not to blame."""
    code = (
        "import os, signal\n"
        "from op_profiler.measure.in_place import InPlaceKernels\n"
        "InPlaceKernels.kernel_outputs = lambda self: os.kill(os.getpid(), signal.SIGSEGV)\n"
    )
    done, entry = with_mlp(tmp_path, code)
    assert done.returncode == 1, done.stderr
    assert (entry["failed"], entry["measured"]) == (0, 4)
    assert "the process died (SIGSEGV) while looking at values" in entry["error"]


def test_a_model_that_fails_as_a_whole_ends_with_the_same_code_and_words_when_repeated(tmp_path: Path) -> None:
    code = (
        "from op_profiler.compilers.relay import graph_executor\n"
        "from op_profiler.errors import MeasureError\n"
        "def load(*words, original=graph_executor.load_graph):\n"
        "    loaded = original(*words)\n"
        "    if len(loaded.labels) > 1:\n"
        "        raise MeasureError('the model does not run: broken on purpose')\n"
        "    return loaded\n"
        "graph_executor.load_graph = load\n"
    )
    for measured in (4, 0):
        done, entry = with_mlp(tmp_path, code)
        assert done.returncode == 1, done.stderr
        assert entry["failed"] == 0 and entry["measured"] == measured
        assert "operator by operator, since the model does not run: broken on purpose" in entry["error"]
        assert "broken on purpose" in done.stderr


def test_a_machine_that_is_lost_while_it_measures_is_asked_for_again(tmp_path: Path) -> None:
    """As a board is whose plug was pulled."""
    code = (
        "from op_profiler.errors import BoardLostError\n"
        "from op_profiler.measure.in_place import InPlaceKernels\n"
        "lost = []\n"
        "def walk(*words, original=InPlaceKernels.walk):\n"
        "    if not lost:\n"
        "        lost.append(True)\n"
        "        raise BoardLostError('its plug was pulled')\n"
        "    return original(*words)\n"
        "InPlaceKernels.walk = walk\n"
    )
    done, entry = with_mlp(tmp_path, code)
    assert done.returncode == 0, done.stderr
    assert "its plug was pulled; asking for it again" in done.stderr
    assert entry["failed"] == 0 and entry["measured"] == 4 and entry["whole_model_us"] > 0


def test_what_failed_because_of_the_machine_is_tried_again_by_the_same_command(tmp_path: Path) -> None:
    """TVM's pool gives one thread where two are asked for; afterwards it gives both."""
    options = ["--modelname=mlp", "--threads=1,2", "--summary-json=summary.json"]
    # Another model first: the kernels that tell the machine's peaks run once, on all cores.
    run(tmp_path, "--modelname=mlp", "--batchsize=2", "--threads=1", "--db=sqlite:///other.db")
    # A pool that was made for one core, before ours, stays so.
    pool_of_one = (
        "from op_profiler.compilers.tvm_build import load_tvm\n"
        "from op_profiler.cores import available_cores\n"
        "from op_profiler.measure.threads import ThreadPool\n"
        "def start(self, cores=None, original=ThreadPool.__init__):\n"
        "    available_cores()\n"
        "    load_tvm().get_global_func('runtime.config_threadpool')(-2, 1, ['0'])\n"
        "    original(self, cores)\n"
        "ThreadPool.__init__ = start\n"
    )
    done = run(tmp_path, *options, in_workers=pool_of_one)
    assert done.returncode == 1, done.stderr
    one, two = summary(tmp_path)
    assert one["measured"] == 4 and one["failed"] == 0 and one["whole_model_us"] > 0
    assert two["whole_model_us"] is None and "asked for 2 threads" in two["error"]
    ((cause, state, whole),) = rows(tmp_path, "SELECT error_cause, machine_state, operator_key FROM failures")
    assert cause == "machine" and whole is None
    assert json.loads(state)["tvm_num_threads"] == str(usable_cores())
    assert json.loads(state)["usable_cores"] == usable_cores()

    done = run(tmp_path, *options)
    assert done.returncode == 0, done.stderr
    one, two = summary(tmp_path)
    assert one["measured"] == 0 and one["reused"] == 4
    assert two["measured"] == 4 and two["error"] is None and two["sum_of_operators_us"] > 0

    # All that is there was stored by a clock ahead of this one.
    for table, column in (("measurements", "measured_at"), ("model_timings", "measured_at"), ("failures", "failed_at")):
        rows(tmp_path, f"UPDATE {table} SET {column} = '2099-01-01T00:00:00.000000+00:00'")
    before = rows(tmp_path, "SELECT * FROM measurements ORDER BY key")
    done = run(tmp_path, *options, "--remeasure=all", in_workers=pool_of_one)
    assert done.returncode == 1, done.stderr
    one, two = summary(tmp_path)
    assert one["measured"] == 4 and two["reused"] == 4 and two["whole_model_us"] > 0
    assert [f["cause"] for f in two["kept_failures"]] == ["machine"]
    assert "asked for 2 threads" in done.stdout and "stands" in done.stdout
    after = rows(tmp_path, "SELECT * FROM measurements ORDER BY key")
    assert len(after) == len(before) == 8 and len(set(after) - set(before)) == 4
