"""Keys that datasets hold: what was measured under one of these has to be found under the same one for ever."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from op_profiler.building.request import BuildRequest
from op_profiler.collection.request import CollectRequest, Measuring
from op_profiler.frontends.frontend import ModelRequest
from op_profiler.schedules.records import Conditions, Record
from op_profiler.targets.machine import Place

MLP = ModelRequest(source="local", name="mlp")
CONTENT, MACHINE = "0123456789abcdef", "fedcba98 76543210"
RECORDS = (
    Record(
        "llvm",
        "dense_nopack.x86",
        (("TENSOR", (1, 64), "float32"),),
        {"index": 1, "entity": []},
        (1e-5,),
        conditions=Conditions(1, "hot"),
    ),
    Record(
        "llvm",
        "dense_nopack.x86",
        (("TENSOR", (1, 64), "float32"),),
        {"index": 2, "entity": [["tile_k", "sp", [-1, 4]]]},
        (2e-5,),
        conditions=Conditions(4, "model"),
    ),
)


@pytest.fixture(autouse=True)
def a_compiler_of_this_test_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TVM_HOME", "/nowhere/tvm")  # the identity is then this path, whatever is installed


def with_inputs(folder: Path) -> str:
    path = folder / "inputs.npz"
    path.write_bytes(b"arrays")
    return str(path)


def test_the_key_of_what_is_measured(tmp_path: Path) -> None:
    asked = {
        "processor": BuildRequest(model=MLP),
        "threads": BuildRequest(model=MLP, threads=(1, 4), cache="cold"),
        "target": BuildRequest(model=MLP, target="llvm -mcpu=skylake-avx512"),
        "virtual machine": BuildRequest(model=MLP, executor="vm"),
        "gpu": BuildRequest(model=MLP, target="cuda -arch=sm_90", precision="float16"),
        "board": BuildRequest(model=MLP, target="pynq", place=Place(host="here", port=9190, key="pynq")),
        "values": BuildRequest(model=MLP, precision="int8", input_data=with_inputs(tmp_path)),
    }
    assert {name: request.base_key(CONTENT, MACHINE) for name, request in asked.items()} == {
        "processor": "5407ad8e1f792b42",
        "threads": "5407ad8e1f792b42",
        "target": "5d613e660636125e",
        "virtual machine": "bd801a76c84def4b",
        "gpu": "704ccbf9a5e1f718",
        "board": "427232766572758e",
        "values": "12f719882b238ec6",
    }


def test_the_key_of_what_is_built(tmp_path: Path) -> None:
    for_one = BuildRequest(model=MLP, schedules=str(tmp_path))
    for_four = BuildRequest(model=MLP, schedules=str(tmp_path), threads=(1, 4))
    assert for_one.model_key("base", [RECORDS[0].computation]) == "base"
    file = for_one.record_file()
    assert file is not None
    file.parent.mkdir(parents=True)
    file.write_text("".join(record.to_json("0.19.0") + "\n" for record in RECORDS))
    both = [request.model_key("base", [RECORDS[0].computation, "another"]) for request in (for_one, for_four)]
    assert both == ["4e95f122fe07279b", "549c34bb19ecc4fb"]
    without = BuildRequest(model=MLP, schedules="none")
    assert without.model_key("base", [RECORDS[0].computation]) == for_one.model_key("base", ["another"]) == "base"


def test_the_key_of_settings() -> None:
    asked: dict[str, tuple[BuildRequest, dict[str, Any]]] = {
        "host": (BuildRequest(model=MLP), {"core_set": (0, 1), "governor": "performance"}),
        "gpu": (BuildRequest(model=MLP, target="cuda", precision="float16", threads=(0,), cache="hot"), {}),
        "vm": (BuildRequest(model=MLP, executor="vm"), {"core_set": (3,), "numa_node": 1}),
    }
    requests = {
        name: CollectRequest(build=build, measuring=Measuring(resources=resources))
        for name, (build, resources) in asked.items()
    }
    assert {name: request.settings(request.build.threads[0]).key for name, request in requests.items()} == {
        "host": "4b046a243d6f431a",
        "gpu": "8caa6fd5fd64c75f",
        "vm": "b4750130585c00bd",
    }
