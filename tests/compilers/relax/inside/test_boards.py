"""Machines behind RPC: TVM's own tracker and server in processes of their own, with this processor as the board."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from networks import small_network

from op_profiler.collection.user_module import measure_module
from op_profiler.compilers.compiled_model import CompiledModel
from op_profiler.compilers.imported_model import ImportedModel, InputSpec
from op_profiler.compilers.relax import tvm_package
from op_profiler.compilers.relax.relax_compiler import RELAX
from op_profiler.compilers.relax.remote import RemoteVm
from op_profiler.compilers.remote_model import RemoteMachine
from op_profiler.compilers.tvm_build import load_tvm, runtime_device
from op_profiler.errors import MeasureError
from op_profiler.targets.machine import Place
from op_profiler.targets.remote.board import Board
from op_profiler.targets.remote.probe import upload
from op_profiler.targets.remote.rpc import connect, list_machines
from op_profiler.targets.target import resolve_target
from op_profiler.testing.compiler import NO_RECORDS

from ....hurry import hurried_path
from ....nursery import COMPILERS, STAND_INS

sys.path.insert(0, str(Path(__file__).parents[3] / "boards"))
from lab import Lab, free_port  # noqa: E402

INPUTS = {"data": np.random.default_rng(1).standard_normal((1, 16, 12, 12)).astype("float32")}


class Server:
    """TVM's RPC server, offered by a tracker."""

    def __init__(self, tracker: Lab, key: str, path: str) -> None:
        port = free_port()
        command = [sys.executable, "-m", "tvm.exec.rpc_server", "--host=127.0.0.1", f"--port={port}"]
        self._process = subprocess.Popen(
            [*command, f"--port-end={port + 1}", f"--tracker=127.0.0.1:{tracker.port}", f"--key={key}"],
            env={**os.environ, "PYTHONPATH": path, "TVM_NUM_THREADS": "2"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        end = time.monotonic() + 600
        while f"127.0.0.1:{port}" not in {one.address for one in list_machines("127.0.0.1", tracker.port)}:
            assert time.monotonic() < end and self._process.poll() is None, "the tracker does not offer it"
            time.sleep(0.1)

    def stop(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


@pytest.fixture(autouse=True, scope="module")
def stand_ins() -> Iterator[None]:
    """The tracker, servers and what those start import TVM, each for itself."""
    load_tvm()  # its path is what they inherit
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", hurried_path())
        patch.setenv(STAND_INS, COMPILERS[1])
        yield


@pytest.fixture(scope="module")
def tracker(stand_ins: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    made = Lab(Path(), tmp_path_factory.mktemp("lab"))
    yield made
    made.stop()


@pytest.fixture(scope="module")
def board(tracker: Lab) -> Iterator[Place]:
    server = Server(tracker, "llvm", os.environ["PYTHONPATH"])
    yield Place(host="127.0.0.1", port=tracker.port, key="llvm")
    server.stop()


@pytest.fixture(scope="module")
def compiled() -> CompiledModel:
    load_tvm()
    model = ImportedModel("small", "test", small_network(), {}, (InputSpec("data", (1, 16, 12, 12)),))
    return RELAX.build(model, resolve_target("llvm"), NO_RECORDS).compiled


@pytest.fixture(scope="module")
def expected(compiled: CompiledModel) -> np.ndarray:
    return RELAX.load(compiled, runtime_device(resolve_target("llvm")), INPUTS).output_arrays()[0]


def test_kernels_are_timed_one_by_one_beside_the_whole_model(
    board: Place, compiled: CompiledModel, expected: np.ndarray
) -> None:
    machine = Board("llvm", resolve_target("llvm"), board)
    assert machine.device.cores and machine.device.compiler == "relax"
    machine.threads.use(1)
    assert machine.threads.effective_threads() == 1
    model = machine.load(compiled, INPUTS)
    assert model.labels == [call.label for call in compiled.calls]
    model.run_model()
    np.testing.assert_array_equal(model.output_arrays()[0], expected)
    *_, last = model.kernel_outputs()
    np.testing.assert_array_equal(last, expected)
    assert 0 < model.time_model() < 1e8
    for state in ("model", "hot", "cold"):
        times = model.walk(state, [True] * len(model.labels))
        assert len(times) == len(model.labels) and all(0 < time < 1e8 for time in times)
    assert model.cache_mechanism("model").startswith("repeat") and model.kernel_error(0) is None
    changed = {"data": 2 * INPUTS["data"]}
    model.set_inputs(changed)
    model.run_model()
    here = RELAX.load(compiled, runtime_device(resolve_target("llvm")), changed).output_arrays()[0]
    np.testing.assert_array_equal(model.output_arrays()[0], here)
    machine.close()


def test_a_runtime_without_the_virtual_machine_has_kernels_and_no_whole(
    board: Place, compiled: CompiledModel, expected: np.ndarray
) -> None:
    target = resolve_target("llvm")
    connection = connect(board, wait_seconds=60)

    class WithoutMachine:
        """The session of a board whose runtime was built without it."""

        def get_function(self, name: str) -> Any:
            if "VMExecutable" in name:
                raise AttributeError(name)
            return connection.session.get_function(name)

    session, device = connection.session, connection.session.device("cpu", 0)
    machine = RemoteMachine(WithoutMachine(), device, lambda code: upload(session, code, target))  # type: ignore[arg-type]
    sent = RemoteVm(compiled, machine, INPUTS)
    assert sent.timed_run is None
    sent.run()
    np.testing.assert_array_equal(sent.outputs[0].numpy(), expected)
    sent.release(session_lost=False)


@pytest.mark.slow  # a server that takes what is sent stands above
def test_a_server_of_another_tvm_is_refused_with_a_sentence(tracker: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(STAND_INS)
    server = Server(tracker, "old", tvm_package.without(os.environ["PYTHONPATH"]))
    try:
        with pytest.raises(MeasureError, match="is of another TVM: --compiler relax needs one of TVM 0"):
            connect(Place(host="127.0.0.1", port=tracker.port, key="old"), wait_seconds=60)
    finally:
        server.stop()


@pytest.mark.parametrize(("target", "machine"), [("pynq", b"\x28"), ("arm_cpu", b"\xb7")])
def test_kernels_for_boards_are_their_machine_code(target: str, machine: bytes, tmp_path: Path) -> None:
    model = ImportedModel("small", "test", small_network(), {}, (InputSpec("data", (1, 16, 12, 12)),))
    built = RELAX.build(model, resolve_target(target), NO_RECORDS).compiled
    (code,) = built.library.executable.mod.imports
    code.write_to_file(str(tmp_path / "kernels.o"), "o")
    header = (tmp_path / "kernels.o").read_bytes()[:20]
    assert header.startswith(b"\x7fELF") and header[18:19] == machine  # e_machine: EM_ARM, EM_AARCH64


def test_a_function_of_the_users_is_timed(board: Place, tmp_path: Path) -> None:
    tvm = load_tvm()
    data = tvm.te.placeholder((64,), name="data")
    more = tvm.te.compute((64,), lambda i: data[i] + 1.0, name="more")
    function = tvm.te.create_prim_func([data, more]).with_attr("global_symbol", "plus_one")
    file = tmp_path / "plus.so"
    tvm.tirx.build(tvm.IRModule({"plus_one": function}), target=resolve_target("llvm")).export_library(str(file))
    tensors = [((64,), "float32")] * 2
    found = measure_module(file, "plus_one", "llvm", "relax", board, tensors, f"sqlite:///{tmp_path / 'times.db'}")
    assert found["error"] is None and 0 < found["median_us"] < 1e6 and found["core_type"] == "IP"
