"""Plans run kernels of Relax on lanes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from networks import constant, module

from op_profiler.compilers.compiled_model import CompiledModel
from op_profiler.compilers.compiler import compiler_in_use
from op_profiler.compilers.imported_model import ImportedModel, InputSpec
from op_profiler.compilers.tvm_build import load_tvm, runtime_device
from op_profiler.cores import available_cores
from op_profiler.errors import MeasureError
from op_profiler.parallel.corun.models import kernel_graph
from op_profiler.parallel.planning.plan import Group, Plan, Stage, Step
from op_profiler.parallel.runtime.lane_executor import PlanExecutor, on_lanes
from op_profiler.targets.target import resolve_target
from op_profiler.testing.compiler import NO_RECORDS

SHAPE = (1, 16, 28, 28)
INPUTS = {"data": np.random.default_rng(3).standard_normal(SHAPE).astype("float32")}


def _branches(builder: Any, relax: Any, data: Any) -> Any:
    """A convolution, three branches that are concatenated, and a product."""
    op, emit = relax.op, builder.emit
    first = emit(op.nn.relu(op.nn.conv2d(data, constant(16, 16, 3, 3), padding=1)))
    wide = emit(op.nn.relu(op.nn.conv2d(first, constant(32, 16, 3, 3), padding=1)))
    narrow = emit(op.nn.conv2d(first, constant(16, 16, 1, 1)))
    pooled = emit(op.nn.max_pool2d(first, pool_size=3, strides=1, padding=1))
    joined = emit(op.concat([wide, narrow, pooled], axis=1))
    return op.nn.softmax(op.matmul(op.reshape(op.mean(joined, axis=[2, 3]), [1, 64]), constant(64, 10)))


def _plan(graph: Any, cores: tuple[int, ...], teams: bool) -> Plan:
    """Operators of the same depth side by side, or one after the other on all cores."""
    depth: dict[int, int] = {}
    for node in graph.nodes:
        depth[node.index] = 1 + max((depth[source] for source in node.inputs), default=-1)
    stages = []
    for level in range(max(depth.values()) + 1):
        members = [node for node in depth if depth[node] == level]
        if teams:
            stages += [Stage((Group((Step(node, len(cores)),), cores),)) for node in members]
            continue
        dealt = [members[lane :: len(cores)] for lane in range(len(cores))]
        groups = [Group(tuple(Step(n, 1) for n in part), (core,)) for part, core in zip(dealt, cores) if part]
        stages.append(Stage(tuple(groups)))
    return Plan("test", graph.models, graph.digest, "here", "this", tuple(stages))


@pytest.fixture(scope="module")
def branches() -> CompiledModel:
    load_tvm()
    model = ImportedModel("branches", "test", module(SHAPE, _branches), {}, (InputSpec("data", SHAPE),))
    return compiler_in_use().build(model, resolve_target("llvm"), NO_RECORDS).compiled


@pytest.mark.parametrize("teams", [False, True])
def test_outputs_are_those_of_the_virtual_machine(branches: CompiledModel, tmp_path: Path, teams: bool) -> None:
    compiled, target, compiler = branches, resolve_target("llvm"), compiler_in_use()
    loaded = compiler.load(compiled, runtime_device(target), INPUTS)
    loaded.run_model()
    lanes = on_lanes(compiled, tmp_path)
    twice = (lanes, compiler.with_own_weights(lanes))
    graph, cores = kernel_graph(["one", "other"], twice), available_cores()[:2]
    assert any(node.rows for node in graph.nodes)
    with PlanExecutor(graph, twice, _plan(graph, cores, teams), runtime_device(target), [INPUTS, INPUTS]) as executor:
        for _ in range(5):
            executor.run()
        found = executor.outputs()
        used = executor.threads_used()
    assert len(found) == 2 and all(np.array_equal(output, loaded.output_arrays()[0]) for output in found)
    assert used.max() == (len(cores) if teams else 1)


def test_what_a_kernel_that_fails_says_is_told(tmp_path: Path) -> None:
    load_tvm()
    target, compiler = resolve_target("llvm"), compiler_in_use()
    body = module(SHAPE, lambda b, relax, x: relax.op.nn.relu(x))
    model = ImportedModel("relu", "test", body, {}, (InputSpec("data", SHAPE),))
    lanes = on_lanes(compiler.build(model, target, NO_RECORDS).compiled, tmp_path)
    graph, cores = kernel_graph(["one"], (lanes,)), available_cores()[:1]
    wrong = load_tvm().runtime.empty((3,), "float32")
    with PlanExecutor(graph, (lanes,), _plan(graph, cores, False), runtime_device(target), [INPUTS]) as executor:
        (kernel,) = executor._kernels
        bad = compiler.bound_kernel(kernel.name, kernel.label, compiler.kernel(lanes, kernel.name), [wrong, wrong])
        executor._lanes.replace(0, 0, bad, same_loops=True)
        with pytest.raises(MeasureError, match=f"{kernel.name} failed: .*"):
            executor.run()
