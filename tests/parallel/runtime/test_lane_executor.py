"""Plans that are run: outputs, order, storage, failures, and no thread left behind."""

from __future__ import annotations

import ctypes
import dataclasses
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import psutil
import pytest

from op_profiler.compilers.bound_kernel import BoundKernel
from op_profiler.compilers.compiled_model import CompiledModel, PlannedTensor
from op_profiler.compilers.relay.calls import PackedCall, array_address
from op_profiler.cores import available_cores
from op_profiler.errors import MeasureError
from op_profiler.measure.kernels import GraphKernels
from op_profiler.parallel.corun.costs import measure_costs
from op_profiler.parallel.corun.models import Models, in_order, plan_of
from op_profiler.parallel.planning.graph import KernelGraph
from op_profiler.parallel.planning.plan import ROWS, Group, Plan, Stage, Step
from op_profiler.parallel.planning.policies import POLICIES
from op_profiler.parallel.runtime.executor import Executor
from op_profiler.parallel.runtime.interrupt import ended_by_interrupt
from op_profiler.parallel.runtime.lane_executor import PlanExecutor, happens_before
from op_profiler.parallel.runtime.lanes import Lanes, LaneStep
from op_profiler.parallel.runtime.memory import _arrays, bind_in_one_piece
from op_profiler.parallel.runtime.storage import plan_storage
from op_profiler.testing import ExecutorSuite


def _threads() -> set[str]:
    return set(os.listdir("/proc/self/task"))


def _left(before: set[str]) -> set[str]:
    """Threads that were not there before; one that was joined may still be listed for a moment."""
    end = time.monotonic() + 60.0
    while (left := _threads() - before) and time.monotonic() < end:
        time.sleep(0.01)
    return left


def _busy_seconds(process: psutil.Process) -> float:
    taken = process.cpu_times()
    return float(taken.user + taken.system)


def _expected(models: Models) -> list[np.ndarray]:
    way = models.sequential()
    way.prepare()
    way.run()
    return [array.copy() for array in models.sequential_outputs()]


def _levels(models: Models) -> Plan:
    """Operators of the same depth side by side, dealt to the cores in turn."""
    graph = models.graph
    depth: dict[int, int] = {}
    for node in graph.nodes:
        depth[node.index] = 1 + max((depth[source] for source in node.inputs), default=-1)
    stages = []
    for level in range(max(depth.values()) + 1):
        members = [node for node in depth if depth[node] == level]
        dealt = [members[lane :: len(models.cores)] for lane in range(len(models.cores))]
        groups = [Group(tuple(Step(n, 1) for n in part), (core,)) for part, core in zip(dealt, models.cores) if part]
        stages.append(Stage(tuple(groups)))
    return plan_of(models, "levels", tuple(stages))


def _zigzag(models: Models) -> Plan:
    cores = models.cores
    stages = [Stage((Group((Step(n, 1),), (cores[n % len(cores)],)),)) for n in range(len(models.graph))]
    return plan_of(models, "zigzag", tuple(stages))


class TestLanes(ExecutorSuite):
    @pytest.fixture(params=["one thread", "levels"])
    def plan(self, branching: Models, request: pytest.FixtureRequest) -> Plan:
        return _levels(branching) if request.param == "levels" else in_order(branching, 1)

    @pytest.fixture
    def graph(self, branching: Models) -> KernelGraph:
        return branching.graph

    @pytest.fixture
    def expected(self, branching: Models) -> list[np.ndarray]:
        return _expected(branching)

    @pytest.fixture
    def executor(self, branching: Models, plan: Plan, expected: list[np.ndarray]) -> Iterator[Executor]:
        with branching.executor(plan) as executor:
            yield executor


@pytest.mark.parametrize("shape", ["one thread", "all threads", "rows", "levels", "zigzag", "greedy", "ios", "nash"])
def test_outputs_are_those_of_the_graph_executor_bit_for_bit(branching: Models, shape: str) -> None:
    expected = _expected(branching)
    if shape in ("greedy", "ios", "nash"):
        costs = measure_costs(branching).costs
        plan = plan_of(branching, shape, POLICIES.get(shape)(branching.graph, costs, branching.cores))
    else:
        plans = {
            "one thread": in_order(branching, 1),
            "all threads": in_order(branching, len(branching.cores)),
            "rows": in_order(dataclasses.replace(branching, split=ROWS), len(branching.cores)),
            "levels": _levels(branching),
            "zigzag": _zigzag(branching),
        }
        plan = plans[shape]
    before = _threads()
    with branching.executor(plan) as executor:
        for _ in range(50):  # a race would not show every time
            executor.run()
            for ours, theirs in zip(executor.outputs(), expected, strict=True):
                np.testing.assert_array_equal(ours, theirs)
    assert not _left(before)


def test_operators_run_where_and_when_the_plan_says(branching: Models) -> None:
    if len(branching.cores) < 2:
        pytest.skip("one core only: nothing can run beside another")
    plan = _levels(branching)
    core_of = {step.node: group.cores[0] for step, group in plan.steps}
    before = happens_before(branching.graph, plan)
    with branching.executor(plan) as executor:
        executor.run()
        spans, ran_on = executor.timeline_us(), executor.ran_on()
    assert [core_of[node] for node in range(len(ran_on))] == ran_on.tolist()
    for node, earlier in enumerate(before):
        assert spans[node, 0] <= spans[node, 1]
        for source in range(node):
            if earlier >> source & 1:
                assert spans[source, 1] <= spans[node, 0]


def test_threads_are_what_the_plan_asks_for_where_a_loop_can_be_split(branching: Models) -> None:
    if len(branching.cores) < 2:
        pytest.skip("one core only")
    heavy = max(branching.graph.nodes, key=lambda node: node.operator.flops).index
    for threads in (1, 2):
        with branching.executor(in_order(branching, threads)) as executor:
            executor.run()
            used = executor.threads_used()
        assert used[heavy] == threads
        assert used.min() >= 1 and used.max() == threads


def test_all_executors_of_a_model_read_one_copy_of_its_weights(branching: Models) -> None:
    weights = {_data(array) for array in branching.compiled[0].library.get_params().values()}
    assert len(weights) > 3
    for kernels in (_loaded(branching).kernels, _kernels(branching, branching.compiled[0])):
        assert weights <= {_data(array) for kernel in kernels for array in kernel.arrays}


def test_copies_of_a_model_share_neither_tensors_nor_weights(branching: Models) -> None:
    copies = branching.copies(2)
    with copies.executor(in_order(copies, 1)) as executor:
        executor.run()
        first, second = executor.outputs()
    np.testing.assert_array_equal(first, second)
    assert copies.graph.models == ("branching #0", "branching #1")
    both = [_kernels(copies, one) for one in copies.compiled]
    one, other = ({_data(array) for kernel in kernels for array in kernel.arrays} for kernels in both)
    assert not one & other


def test_memory_is_used_again_only_when_it_is_certain_to_be_free(branching: Models) -> None:
    compiled = branching.compiled[0]
    graph = branching.graph

    def addresses(before: list[int]) -> list[int]:
        loaded = bind_in_one_piece(compiled, plan_storage(compiled, before), branching.inputs[0])
        return [_data(kernel.arrays[-1]) for kernel in loaded.kernels]

    nothing_known = addresses([0] * len(graph))
    assert len(set(nothing_known)) == len(graph)
    in_a_row = addresses([(1 << node) - 1 for node in range(len(graph))])
    assert len(set(in_a_row)) < len(graph)


def test_tensors_of_every_type_lie_where_the_storage_plan_says(tvm: Any) -> None:
    kinds = {"bool": (2, 3), "float16": (5,), "int64": (3,), "float32": ()}
    found = _arrays([PlannedTensor(shape, dtype) for dtype, shape in kinds.items()], [3, 1, 3, 0], without={1})
    assert [(one.shape, one.dtype) for one in found.values()] == [((2, 3), "bool"), ((3,), "int64"), ((), "float32")]
    mask, numbers, scalar = found.values()
    assert _data(mask) == _data(numbers) and _data(numbers) % 64 == 0
    assert _data(scalar) == _data(numbers) + 64
    numbers.copyfrom(np.array([1, 0, 0]))
    assert mask.numpy().tolist() == [[True, False, False], [False, False, False]]


def _kernels(models: Models, compiled: CompiledModel) -> tuple[BoundKernel, ...]:
    in_a_row = [(1 << node) - 1 for node in range(len(compiled.calls))]
    return bind_in_one_piece(compiled, plan_storage(compiled, in_a_row), models.inputs[0]).kernels


def _loaded(models: Models) -> GraphKernels:
    return cast("GraphKernels", models.loaded[0])


def _data(array: Any) -> int:
    import ctypes

    return int(ctypes.c_void_p.from_address(array_address(array)).value or 0)


def test_a_kernel_that_fails_ends_the_run_with_its_name(branching: Models, tvm: Any) -> None:
    kernels = _loaded(branching).kernels
    wrong = tvm.nd.empty((3,), "float32")
    broken = PackedCall("the_broken_one", "", kernels[1].function, [wrong] * len(kernels[1].arrays))
    before = _threads()
    cores = branching.cores
    tables = [
        [LaneStep(kernels[0], posts=(0,)), LaneStep(kernels[2], waits=(1,))],
        [LaneStep(broken, waits=(0,), posts=(1,))],
    ]
    with Lanes((cores[0], cores[-1]), tables, 2) as lanes:
        for _ in range(3):  # a failure does not spoil the next run
            with pytest.raises(MeasureError, match="the_broken_one failed: .*"):
                lanes.run()
    assert not _left(before)


def test_the_calling_thread_gets_its_cores_back(branching: Models) -> None:
    before = os.sched_getaffinity(0)
    with PlanExecutor(
        branching.graph, branching.compiled, in_order(branching, 1), branching.machine.runtime, branching.inputs
    ) as executor:
        executor.run()
        assert os.sched_getaffinity(0) == {branching.cores[0]}
    assert os.sched_getaffinity(0) == before


def test_signals_lie_on_cache_lines_of_their_own(tvm: Any) -> None:
    """As they lie in memory: that every lane began and ended the first run, and the one signal between two."""
    cores = available_cores()
    if len(cores) < 2:
        pytest.skip("one core only")
    call = PackedCall("nothing", "", tvm.runtime.convert(lambda: None), [])
    first, second = LaneStep(call, posts=(0,)), LaneStep(call, waits=(0,))
    with Lanes(cores[:2], [[first], [second]], 1) as lanes:
        lanes.run()
        _, _, signals = (ctypes.c_int64 * 3).from_address(lanes._handle or 0)  # lanes, count, signals
        words = np.ctypeslib.as_array((ctypes.c_int64 * (5 * 8)).from_address(signals)).reshape(5, 8)
        assert signals % 64 == 0
        assert words[:, 0].tolist() == [0, 1, 0, 1, 1] and not words[:, 1:].any()


_FOR_EVER = """
import sys
import op_profiler.parallel.corun.run
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.compilers.relay.calls import PackedCall
from op_profiler.cores import available_cores
from op_profiler.parallel.runtime.interrupt import ended_by_interrupt
from op_profiler.parallel.runtime.lanes import Lanes, LaneStep

def on_lanes(request, announce):
    tvm = load_tvm()
    data = tvm.te.placeholder((4,), "float32")
    axis = tvm.te.reduce_axis((0, tvm.tir.IntImm("int64", 1 << 50)))
    total = tvm.te.compute((1,), lambda _: tvm.te.sum(data[axis % 4], axis))
    kernel = tvm.build(tvm.te.create_schedule(total.op), [data, total], "llvm")
    arrays = [tvm.nd.empty((4,)), tvm.nd.empty((1,))]
    tables = [[], []]
    tables[HANGS] = [LaneStep(PackedCall("endless", "", kernel[kernel.entry_name], arrays))]
    with Lanes([available_cores()[0]] * 2, tables, 0) as lanes:
        print("running", flush=True)
        lanes.run()

op_profiler.parallel.corun.run.corun = on_lanes
sys.argv = ["op-profiler", "corun", "mlp", "--quiet"]
from op_profiler.cli import main
main()
"""


@pytest.mark.parametrize("lane", [0, 1])
def test_ctrl_c_ends_a_run_whose_kernel_does_not_return(lane: int) -> None:
    """A kernel of years, on the calling thread or on another one, and a real Ctrl-C."""
    source = _FOR_EVER.replace("HANGS", str(lane))
    with subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == b"running\n"
            before = _busy_seconds(running := psutil.Process(process.pid))
            while _busy_seconds(running) < before + 0.2:  # nothing but the kernel takes so long
                assert process.poll() is None
                time.sleep(0.01)
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=600)
        finally:
            process.kill()
    assert process.returncode == 130
    assert b"a kernel had not returned" in said and b"Traceback" not in said


def test_ctrl_c_is_what_it_always_is_where_python_runs() -> None:
    before = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(before)
    with pytest.raises(KeyboardInterrupt), ended_by_interrupt():
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(60)
    after = signal.set_wakeup_fd(before)
    assert after == before
