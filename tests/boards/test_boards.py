"""Collecting, tuning and listing on emulated boards behind a real tracker: finite times, never a ranking."""

from __future__ import annotations

import gc
import json
import math
import os
import signal
import sqlite3
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from op_profiler.compilers.compiler import compiler_in_use
from op_profiler.errors import BoardLostError, MeasureError
from op_profiler.targets.machine import Place
from op_profiler.targets.remote.rpc import connect, deadline, is_tracker, list_machines

from ..command_line import op_profiler

HOST = "127.0.0.1"


def rows(folder: Path, query: str) -> list[tuple[Any, ...]]:
    with sqlite3.connect(folder / "boards.db") as connection:
        return connection.execute(query).fetchall()


def stored(folder: Path) -> int:
    """Rows of measurements so far."""
    if not (folder / "boards.db").exists():
        return 0
    try:
        return int(rows(folder, "SELECT count(*) FROM measurements")[0][0])
    except sqlite3.OperationalError:
        return 0  # the tables are being made


def place(lab: Any) -> Place:
    return Place(host=HOST, port=lab.port, key="pynq")


NETWORK = ("--modelsource", "file", "--modelname", "small:net")
MLP = ("--modelsource", "local", "--modelname", "mlp")


def on_board(lab: Any, *more: str) -> list[str]:
    return ["--target", "pynq", "--host", HOST, "--port", str(lab.port), "--threads", "1", *more]


@pytest.mark.parametrize("model", [MLP, pytest.param(NETWORK, marks=pytest.mark.slow)], ids=["mlp", "convolutions"])
def test_a_network_is_collected(model: tuple[str, ...], lab: Any, collect: Any, tmp_path: Path) -> None:
    board = lab.board()
    summary = tmp_path / "summary.json"
    done = collect(*on_board(lab, *model, "--summary-json", str(summary)))
    assert done.returncode == 0, done.stderr + done.stdout
    (entry,) = json.loads(summary.read_text())
    assert entry["target"] == "pynq" and entry["failed"] == 0 and entry["not_in_sum"] == []
    assert entry["operators"] >= 3 and entry["threads_effective"] == 1
    assert 0 < entry["whole_model_us"] < 1e8 and 0 < entry["sum_of_operators_us"] < 1e8
    found = rows(
        tmp_path,
        "SELECT d.kind, d.core_type, d.properties, d.target, m.median_us, s.cache_mechanism FROM measurements m "
        "JOIN devices d ON d.key = m.device_key JOIN settings s ON s.key = m.settings_key",
    )
    assert len(found) == entry["operators"]
    for kind, core, properties, target, median, mechanism in found:
        assert (kind, core, mechanism) == ("pynq", "common", "in-graph")
        assert json.loads(properties)["address"] == board.address
        assert "cortex-a9" in target and "hard" in target and math.isfinite(median)
    again = collect(*on_board(lab, *model, "--summary-json", str(summary)))
    assert again.returncode == 0 and json.loads(summary.read_text())[0]["measured"] == 0


def test_outputs_of_the_board_are_right(lab: Any, compiled_for_board: Any, small_network: Any) -> None:
    from op_profiler.compilers.relay.graph_executor import load_graph
    from op_profiler.compilers.relay.lower import compile_model
    from op_profiler.targets.remote.board import Board
    from op_profiler.targets.target import resolve_target

    lab.board()
    inputs = {"data": np.random.default_rng(0).standard_normal((1, 16, 32, 32)).astype("float32")}
    board = Board("pynq", resolve_target("pynq"), place(lab))
    model = board.load(compiled_for_board, inputs)
    model.run_model()
    host = resolve_target("llvm")
    from op_profiler.compilers.tvm_build import runtime_device

    expected = load_graph(compile_model(small_network, host), runtime_device(host), inputs).output_arrays()
    np.testing.assert_allclose(model.output_arrays()[0], expected[0], rtol=1e-3, atol=1e-5)
    for state in ("model", "hot", "cold"):
        times = model.walk(state, [True] * len(model.labels))
        assert len(times) == len(model.labels) and all(0 < t < 1e8 for t in times)
    assert model.kernel_error(0) is None
    board.close()


@pytest.fixture(scope="module")
def compiled_for_board(small_network: Any) -> Any:
    from op_profiler.compilers.relay.lower import compile_model
    from op_profiler.targets.target import resolve_target

    return compile_model(small_network, resolve_target("pynq"))


@pytest.mark.slow
def test_tuning_uses_every_board_and_says_which(lab: Any, collect: Any, tmp_path: Path) -> None:
    addresses = {lab.board().address, lab.board().address}
    summary = tmp_path / "summary.json"
    pytest.importorskip("torch")
    arguments = (*NETWORK, "--iftune", "true", "--trials", "10", "--coverage", "0.3", "--ifcompare", "true")
    places = ("--summary-json", str(summary), "--schedules", str(tmp_path / "schedules"))
    done = collect(*on_board(lab, *arguments, *places))
    assert done.returncode == 0, done.stderr + done.stdout
    (entry,) = json.loads(summary.read_text())
    assert entry["comparison"][0]["agree"] and entry["problems"] == []
    assert entry["tuning"] and all(t["best_us"] is None or 0 < t["best_us"] < 1e8 for t in entry["tuning"])
    found = rows(
        tmp_path,
        "SELECT d.properties, m.median_us, m.error FROM measurements m JOIN devices d ON d.key = m.device_key "
        "JOIN schedules s ON s.key = m.schedule_key WHERE s.origin = 'trial'",
    )
    assert len(found) == sum(t["trials"] for t in entry["tuning"])
    assert {json.loads(properties)["address"] for properties, _, _ in found} == addresses
    assert all((median is None) != (error is None) for _, median, error in found)
    (records,) = (tmp_path / "schedules" / "pynq").glob("*.jsonl")
    assert records.read_text().count("\n") >= 1


@pytest.mark.slow  # loss and return in test_failures.py; a process that dies, and a board lost for good, below
def test_a_board_that_dies_costs_one_measurement(lab: Any, collect: Any, tmp_path: Path) -> None:
    """Its plug is pulled in the middle, twice; the collection ends as if nothing had been."""
    board = lab.board()
    killed_at: list[int] = []
    over = threading.Event()

    def outages() -> None:
        before = 0
        for _ in range(2):
            while (count := stored(tmp_path)) <= before:  # the second time: it has measured again
                if over.wait(0.2):
                    return
            board.kill()
            killed_at.append(count)
            board.start()
            before = stored(tmp_path)

    summary = tmp_path / "summary.json"
    watcher = threading.Thread(target=outages)
    watcher.start()
    try:
        done = collect(*on_board(lab, *MLP, "--iftune", "true", "--trials", "10", "--summary-json", str(summary)))
    finally:
        over.set()
        watcher.join()
    assert done.returncode == 0, done.stderr + done.stdout
    assert len(killed_at) == 2
    (entry,) = json.loads(summary.read_text())
    assert entry["failed"] == 0 and entry["problems"] == [] and 0 < entry["whole_model_us"] < 1e8
    assert all(t["trials"] >= 10 for t in entry["tuning"])


def test_a_silent_board_is_given_up(lab: Any) -> None:
    """It holds the connection and says nothing, as one that lost its power does."""
    import os
    import signal

    board = lab.board()
    connection = connect(place(lab), wait_seconds=60)
    assert connection.alive() and connection.address == board.address
    os.killpg(board._process.pid, signal.SIGSTOP)
    try:
        with pytest.raises(BoardLostError, match="no answer after 1 s while asking"), deadline(1.0, "asking"):
            connection.session.get_function("runtime.NumThreads")()  # it would never answer
    finally:
        os.killpg(board._process.pid, signal.SIGCONT)


def test_a_tracker_without_the_board_is_told(lab: Any, collect: Any) -> None:
    assert is_tracker(HOST, lab.port)
    with pytest.raises(BoardLostError, match=r"no machine with key 'pynq' became free .* within 1 s"):
        connect(place(lab), wait_seconds=1)
    with pytest.raises(MeasureError, match="nothing answers"):
        is_tracker(HOST, 1)


def test_a_server_without_a_tracker(lab: Any) -> None:
    lab_port, lab.port = lab.port, 0
    board = lab.board()
    lab.port = lab_port
    assert not is_tracker(HOST, board.port)
    assert connect(Place(host=HOST, port=board.port, key="pynq"), wait_seconds=60).address == board.address


def test_devices_lists_the_boards(lab: Any) -> None:
    board = lab.board()
    (listed,) = list_machines(HOST, lab.port)
    assert (listed.key, listed.free, listed.address) == ("pynq", True, board.address)
    done = op_profiler("devices", "--host", HOST, "--port", str(lab.port), "--json")
    assert done.returncode == 0, done.stderr
    (about,) = json.loads(done.stdout)
    assert about["address"] == board.address and about["processor"] and about["core_type"] == "common"
    assert "no energy counter" in about["properties"]["energy"]


def test_a_module_of_the_users_enters_the_dataset(lab: Any, collect: Any, tmp_path: Path, tvm: Any) -> None:
    from op_profiler.targets.target import resolve_target

    te = tvm.te
    a = te.placeholder((64,), "float32", "a")
    b = te.compute((64,), lambda i: a[i] + 1.0, "b")
    library = tvm.build(te.create_schedule(b.op), [a, b], target=resolve_target("pynq"), name="plus_one")
    file = tmp_path / "plus.so"
    library.export_library(str(file), fcompile=tvm.contrib.cc.cross_compiler("arm-linux-gnueabihf-gcc"))
    lab.board()
    module = ("--module", str(file), "--entry", "plus_one", "--inputshape", "64;64")
    done = collect("--target", "pynq", "--host", HOST, "--port", str(lab.port), *module)
    assert done.returncode == 0 and "plus_one" in done.stdout, done.stderr + done.stdout
    query = "SELECT d.core_type, o.name, m.median_us FROM measurements m JOIN devices d ON d.key = m.device_key "
    ((core, name, median),) = rows(tmp_path, query + "JOIN operators o ON o.key = m.operator_key")
    assert (core, name) == ("IP", "plus_one") and 0 < median < 1e6
    wrong = collect("--target", "pynq", "--host", HOST, "--port", str(lab.port), *module[:3], "minus", *module[4:])
    assert wrong.returncode == 1 and "failed" in wrong.stdout


def test_templates_of_this_project_compute_what_numpy_computes_on_arm(lab: Any, tvm: Any) -> None:
    from op_profiler.targets.remote.trial_runner import BoardRunner
    from op_profiler.targets.target import resolve_target
    from op_profiler.tuning.candidate import Candidate, TaskSpec

    def tensor(*shape: int) -> tuple[str, tuple[int, ...], str]:
        return ("TENSOR", shape, "float32")

    rest = ((2, 2), (1, 1, 1, 1), (1, 1), "NCHW4c", "NCHW4c", "float32")
    tasks = [
        TaskSpec("conv2d_NCHWc.op_profiler", (tensor(1, 2, 7, 7, 4), tensor(3, 2, 3, 3, 4, 4), *rest)),
        TaskSpec("depthwise_conv2d_NCHWc.op_profiler", (tensor(1, 2, 7, 7, 4), tensor(2, 1, 3, 3, 1, 4), *rest)),
        TaskSpec("dense_pack.op_profiler", (tensor(5, 48), tensor(4, 48, 4), None, "float32")),
        TaskSpec("batch_matmul.op_profiler", (tensor(2, 5, 16), tensor(2, 12, 16), (2, 5, 12), "float32", 0, 1)),
    ]
    target = resolve_target("pynq")
    lab.board()
    with BoardRunner("pynq", str(target), place(lab), 1) as runner:
        for task in tasks:
            space = compiler_in_use().task(task, target)
            points = range(0, space.size, max(space.size // 300, 1))
            valid = [i for i in points if space.is_valid(i)][:3]
            results = runner.run([Candidate(task, i) for i in valid], float("inf"))
            assert len(results) == 3 and all(r.checked and r.error is None for r in results), results


def test_a_process_of_a_board_that_is_killed_while_it_is_idle_is_replaced(lab: Any, tvm: Any) -> None:
    from op_profiler.targets.remote.trial_runner import BoardRunner
    from op_profiler.targets.target import resolve_target
    from op_profiler.tuning.candidate import Candidate, TaskSpec

    product = TaskSpec(
        "dense_pack.op_profiler", (("TENSOR", (5, 48), "float32"), ("TENSOR", (4, 48, 4), "float32"), None, "float32")
    )
    target = resolve_target("pynq")
    space = compiler_in_use().task(product, target)
    candidate = Candidate(product, next(i for i in range(space.size) if space.is_valid(i)))
    lab.board()

    def kill(runner: Any) -> None:
        for process in [slot.process._process for slot in runner._slots if slot.process is not None]:
            os.kill(process.pid, signal.SIGKILL)
            process.join()

    with BoardRunner("pynq", str(target), place(lab), 1) as runner:
        assert runner.run([candidate], float("inf"))[0].error is None
        kill(runner)
        assert runner.run([candidate], float("inf"))[0].error is None
        kill(runner)
        assert all(result.error is None for result in runner.compare([candidate] * 2, 2))
        kill(runner)
        assert runner.settings().threads_effective == 1


@pytest.fixture
def side_by_side(lab: Any) -> Any:
    """Two models that choose between this processor and a board."""
    from op_profiler.frontends.frontend import ModelRequest
    from op_profiler.parallel.corun.request import CorunRequest

    models = tuple(ModelRequest(source="local", name=name) for name in ("mlp", "mlp"))
    return CorunRequest(models=models, targets=("llvm", "pynq"), policy="nash", threads=1, rounds=2, place=place(lab))


def test_models_run_beside_each_other_on_processor_and_board(
    lab: Any, side_by_side: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from op_profiler.parallel.corun import several_targets
    from op_profiler.parallel.planning.games import GameOutcome

    board = lab.board()
    monkeypatch.setattr(several_targets, "play", lambda load_us: GameOutcome((1, 0), 5.0, 5.0, True, 1, load_us))
    result = several_targets.corun_on_targets(side_by_side, lambda text: None)
    assert [(p.target, p.models) for p in result.placements] == [
        ("llvm", ("mlp",)),
        (f"pynq at {board.address}", ("mlp",)),
    ]
    assert result.placements[1].cores == () and result.compiled_for[1].startswith("llvm")
    costs = result.outcome.load_us
    assert (costs > 0).all() and (costs[:, 1] > costs[:, 0]).all()  # it is emulated, and reached over a socket
    assert result.outputs_agree and not result.outputs_equal
    unheard: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda error: unheard.append(str(error.exc_value)))
    board.stop()
    gc.collect()
    assert unheard == [], "what lay on the board was freed while it was there"


def test_a_board_that_is_lost_beside_others_ends_the_run(
    lab: Any, side_by_side: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import threading

    from op_profiler.errors import BoardLostError
    from op_profiler.parallel.corun import several_targets
    from op_profiler.parallel.planning.games import GameOutcome

    board = lab.board()

    def off(load_us: np.ndarray) -> GameOutcome:
        board.stop()
        return GameOutcome((1, 0), 5.0, 5.0, True, 1, load_us)

    monkeypatch.setattr(several_targets, "play", off)
    before = threading.active_count()
    unheard: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda error: unheard.append(str(error.exc_value)))
    with pytest.raises(BoardLostError, match=board.address):
        several_targets.corun_on_targets(side_by_side, lambda text: None)
    gc.collect()
    assert unheard == [], "nobody is there who could be told what is freed"
    assert threading.active_count() == before
