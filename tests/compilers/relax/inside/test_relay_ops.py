"""What is taken over from Relay computes what it computes there: every op of the table."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from networks import quickly_built
from relay_cases import CASES, KEYS, NETWORK, VALUES

from op_profiler.child_processes import python_path
from op_profiler.compilers.imported_model import ImportedModel, InputSpec
from op_profiler.compilers.relax import tvm_package
from op_profiler.compilers.relax.from_relay import read_graph
from op_profiler.compilers.relax.relax_compiler import RELAX
from op_profiler.compilers.relax.relay_ops import CONVERTERS
from op_profiler.compilers.tvm_build import load_tvm, runtime_device
from op_profiler.errors import ModelError
from op_profiler.targets.target import resolve_target
from op_profiler.testing.compiler import NO_RECORDS


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all cases as one graph, and what they are under Relay."""
    folder = tmp_path_factory.mktemp("graph")
    load_tvm()  # of this process, so that the folder of its TVM is known to be left out below
    ran = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("relay_cases.py")), str(folder)],
        env={**os.environ, "PYTHONPATH": tvm_package.without(python_path()), "OP_PROFILER_COMPILER": "relay"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    return folder


@pytest.fixture(scope="module")
def values(graph: Path) -> dict[str, np.ndarray]:
    with np.load(graph / VALUES) as loaded:
        return dict(loaded)


@pytest.fixture(scope="module")
def outputs(graph: Path, values: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """By the name of the case, under Relax: all of them are one model."""
    inputs = {name: value for name, value in values.items() if name not in CASES}
    specs = tuple(InputSpec(name, value.shape, str(value.dtype)) for name, value in inputs.items())
    model = ImportedModel("cases", "test", read_graph(graph), {}, specs)
    target = quickly_built(resolve_target("llvm"))
    compiled = RELAX.build(model, target, NO_RECORDS).compiled
    loaded: Any = RELAX.load(compiled, runtime_device(target), inputs)
    return dict(zip(CASES, loaded.output_arrays(), strict=True))


@pytest.mark.parametrize("case", CASES)
def test_an_op_computes_what_it_computes_under_relay(
    case: str, values: dict[str, np.ndarray], outputs: dict[str, np.ndarray]
) -> None:
    made, expected = outputs[case], values[case]
    assert made.dtype == expected.dtype and made.shape == expected.shape
    np.testing.assert_allclose(made, expected, rtol=1e-4, atol=1e-5)


def test_every_op_of_the_table_is_among_the_cases(graph: Path) -> None:
    nodes = json.loads((graph / "graph.json").read_text())["nodes"]
    assert {node["op"] for node in nodes} >= CONVERTERS.keys()


def test_operators_that_both_compilers_fuse_alike_have_the_same_key(graph: Path) -> None:
    under_relay = json.loads((graph / NETWORK / KEYS).read_text())
    model = ImportedModel("network", "test", read_graph(graph / NETWORK), {}, ())
    keys = {one.operator.key for one in RELAX.operators(model, resolve_target("llvm"))}
    assert [name for name, key in under_relay.items() if key not in keys] == []
    assert len(under_relay) >= 21


@pytest.mark.parametrize(
    ("node", "told"),
    [
        ({"op": "nn.lrn", "attrs": {"axis": 1}}, "nn.lrn .*: KeyError: 'size'"),
        ({"op": "transpose", "attrs": {"axes": [0, 1, 2]}}, "transpose .*: ValueError: .* 3"),
        ({"op": "nn.pad", "attrs": {"pad_width": [[0, 1], [0, 0]]}}, "nn.pad .*only at run time"),
        ({"op": "of.mine", "attrs": {}}, "of.mine is not taken over"),
    ],
)
def test_an_op_that_is_not_taken_over_is_named_whatever_this_tvm_says_of_it(
    node: dict[str, Any], told: str, tmp_path: Path
) -> None:
    load_tvm()
    data = {"name": "x", "shape": [2, 3], "dtype": "float32"}
    called = {"arguments": [["input", "x"]] * 2, "shapes": [[2, 3]], "locations": []} | node
    (tmp_path / "graph.json").write_text(json.dumps({"inputs": [data], "nodes": [called], "output": ["node", 0]}))
    np.savez(tmp_path / "weights.npz")
    with pytest.raises(ModelError, match=f"Relay's op {told}"):
        read_graph(tmp_path)
