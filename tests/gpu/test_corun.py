"""Plans on streams, and models that choose between processor and GPU. Without a GPU, what the compiler tells of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from op_profiler.targets.cuda import tvm_build

ROOT = Path(__file__).parents[2]
MAIN = [sys.executable, "-c", "from op_profiler.cli import main; main()", "corun"]
lacking = tvm_build.missing()
needs_build = pytest.mark.skipif(bool(lacking), reason=f"needs {'; '.join(lacking)}")
on_gpu = [
    pytest.mark.gpu,
    pytest.mark.skipif(not tvm_build.device_count(), reason="no GPU here (no driver, or it lists no device)"),
]


def run(command: list[str], *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    return subprocess.run([*command, *arguments], env=environment, capture_output=True, text=True, timeout=900)


def corun(folder: Path, *arguments: str) -> dict[str, Any]:
    done = run(MAIN, *arguments, "--json", str(folder / "result.json"), "--quiet")
    assert done.returncode == 0, done.stderr + done.stdout
    found: dict[str, Any] = json.loads((folder / "result.json").read_text())
    return found


def streams_of(result: dict[str, Any]) -> set[int]:
    return {core for stage in result["stages"] for group in stage for core in group["cores"][:1]}


ANY_STREAM = """
import numpy as np
from op_profiler.building.request import BuildRequest
from op_profiler.frontends.frontend import ModelRequest
from op_profiler.parallel.corun.models import load_models, plan_of
from op_profiler.parallel.planning.plan import Group, Stage, Step
request = BuildRequest(model=ModelRequest(source="local", name="squeezenet_v1.1"), target="cuda", threads=(0,))
models = load_models([request], cores=4, merge=False, announce=print)
models.sequential().run()
expected = [array.copy() for array in models.sequential_outputs()]
for seed in range(20):
    streams = np.random.default_rng(seed).integers(4, size=len(models.graph))
    stages = tuple(Stage((Group((Step(n, 1),), (int(s),)),)) for n, s in enumerate(streams))
    with models.executor(plan_of(models, "any stream", stages)) as executor:
        for _ in range(10):
            executor.run()
            assert all(map(np.array_equal, executor.outputs(), expected)), seed
        spans = executor.timeline_us()
        for node in models.graph.nodes:
            assert spans[node.index, 0] <= spans[node.index, 1]
            assert all(spans[source, 1] <= spans[node.index, 0] + 1 for source in node.inputs), (seed, node.index)
"""


class TestOnAGpu:
    pytestmark = on_gpu

    @pytest.mark.parametrize("policy", ["sequential", "greedy", "ios", "nash", "auto"])
    def test_a_plan_gives_the_outputs_of_the_graph_executor(self, policy: str, tmp_path: Path) -> None:
        result = corun(tmp_path, "squeezenet_v1.1", "--target", "cuda", "--policy", policy, "--streams", "3")
        assert result["outputs_equal"] and result["plan_us"] > 0 and streams_of(result) <= {0, 1, 2}
        if policy == "sequential":
            assert streams_of(result) == {0}

    def test_any_stream_for_any_operator(self) -> None:
        done = run([sys.executable, "-c", ANY_STREAM])
        assert done.returncode == 0, done.stderr

    def test_two_models_at_once(self, tmp_path: Path) -> None:
        result = corun(tmp_path, "resnet-18", "mobilenet", "--target", "cuda", "--policy", "nash")
        assert result["outputs_equal"] and len(streams_of(result)) == 2

    def test_models_choose_between_processor_and_gpu(self, tmp_path: Path) -> None:
        result = corun(tmp_path, "resnet-18", "mobilenet", "--target", "llvm,cuda", "--policy", "nash")
        assert result["largest_difference"] < 1e-3 and len(result["costs_us"][0]) == 2
        (stage,) = result["stages"]
        assert sorted(model for placement in stage for model in placement["models"]) == ["mobilenet", "resnet-18"]


@pytest.mark.skipif(tvm_build.device_count() > 0, reason="there is a GPU here")
@pytest.mark.parametrize("target", ["cuda", "llvm,cuda"])
def test_without_a_gpu_the_error_says_what_is_missing(target: str) -> None:
    done = run(MAIN, "mlp", "mlp", "--target", target)
    assert done.returncode == 5 and "target cuda: this machine lacks" in done.stderr


TEMPORARIES = """
import json
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.targets.target import resolve_target, use_build_for
use_build_for("cuda -arch=sm_90")
target, tvm = resolve_target("cuda -arch=sm_90"), load_tvm()
from op_profiler.compilers.imported_model import InputSpec, ImportedModel
from op_profiler.compilers.relay import lower
relay = tvm.relay
data, weight = relay.var("data", shape=(1, 8, 14, 14)), relay.var("weight", shape=(8, 8, 3, 3))
pooled = relay.nn.global_avg_pool2d(relay.nn.relu(relay.nn.conv2d(data, weight, channels=8, kernel_size=(3, 3))))
module = tvm.IRModule.from_expr(relay.Function([data, weight], relay.nn.softmax(relay.nn.batch_flatten(pooled))))
model = ImportedModel("m", "test", relay.transform.InferType()(module), {}, (InputSpec("data", (1, 8, 14, 14)),))
allocates, noting = {}, lower.noting

def with_temporaries(found, read):
    if read is not lower.launches_of:
        return noting(found, read)

    @tvm.tir.transform.prim_func_pass(opt_level=0)
    def note(function, module, context):
        def visit(statement):
            if isinstance(statement, tvm.tir.AttrStmt) and str(statement.attr_key) == "thread_extent":
                return False  # what a kernel allocates is its own
            if isinstance(statement, tvm.tir.Allocate):
                return True
            children = list(getattr(statement, "seq", ())) + [getattr(statement, "body", None)]
            return any(visit(child) for child in children if child is not None)
        allocates[str(function.attrs["global_symbol"])] = visit(function.body)
        return function
    return tvm.transform.Sequential([noting(found, read), note])

lower.noting = with_temporaries
compiled = lower.compile_model(model, target)
nodes = [n["attrs"] for n in json.loads(compiled.library.get_graph_json())["nodes"] if "attrs" in n]
named = {n["func_name"]: n["hash"] for n in nodes if n.get("func_name", "__nop") in allocates}
print(json.dumps([[len(compiled.launches.get(label, ())), allocates[name]] for name, label in named.items()]))
"""


@needs_build
def test_operators_of_one_kernel_use_no_temporary_memory() -> None:
    """What `temporaries_in_turn` rests on."""
    done = run([sys.executable, "-c", TEMPORARIES])
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.strip().splitlines()[-1])
    assert {temporary for launches, temporary in found if launches == 1} == {False}
    assert any(launches > 1 and temporary for launches, temporary in found)
