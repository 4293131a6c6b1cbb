"""Streams, on a device that puts everything off as long as it may, and in an order of its own."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, Mock

import numpy as np
import pytest

from op_profiler.compilers.bound_kernel import BoundKernel
from op_profiler.compilers.compiled_model import CompiledModel
from op_profiler.compilers.imported_model import ImportedModel, InputSpec
from op_profiler.compilers.relay.graph_executor import load_graph
from op_profiler.compilers.relay.lower import compile_model
from op_profiler.compilers.relay.merge_parallel import merged
from op_profiler.errors import MeasureError
from op_profiler.measure.limits import Limits
from op_profiler.measure.measurement import Device
from op_profiler.parallel.corun.costs import measure_costs
from op_profiler.parallel.corun.models import Models, in_order, kernel_graph
from op_profiler.parallel.corun.models import plan_of as plan_for
from op_profiler.parallel.corun.timing import compare_outputs
from op_profiler.parallel.planning.graph import KernelGraph
from op_profiler.parallel.planning.plan import Group, Plan, Stage, Step
from op_profiler.parallel.planning.policies import POLICIES
from op_profiler.parallel.runtime.stream_executor import StreamExecutor, one_of_each_in_turn
from op_profiler.targets.cuda import gpu as machines
from op_profiler.targets.cuda import stream_lanes

FIRST_STREAM = 7
ONCE = [{"grid": [1, 1, 1], "block": [1, 1, 1]}]
INPUTS = {"data": np.random.default_rng(0).standard_normal((1, 8, 16, 16)).astype("float32")}


class Gpu:
    """In place of a GPU and its events: what is launched waits in the queue of its stream until somebody syncs, and is
    then run, in a random order that keeps to the streams and to the events.

    Attributes:
        launched: streams and names of kernels, in the order of the calls; `ran`: in the order in which they ran.
        stream: that is set; None for the default one, whose kernels run at once.
        alive: streams that were created and not freed.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.launched: list[tuple[int, str]] = []
        self.ran: list[tuple[int, str]] = []
        self.alive: set[int] = set()
        self._rng = np.random.default_rng(seed)
        self._queues: dict[int, list[Callable[[], bool]]] = {}
        self._recorded: dict[int, int] = {}  # how often each event was, by those who called
        self._passed: dict[int, int] = {}  # and by the streams
        self._times: dict[int, int] = {}
        self._recording: list[tuple[int, Callable[[], bool]]] | None = None
        self.graphs = 0  # that were recorded and not freed
        self.records = True  # whether what is launched can be recorded
        self.stream: int | None = None

    def _put(self, stream: int, call: Callable[[], bool]) -> None:
        if self._recording is not None:
            self._recording.append((stream, call))
        else:
            self._queues[stream].append(call)

    def on(self, stream: int) -> Graph:
        return Graph(self)

    def create_raw_stream(self) -> int:
        stream = FIRST_STREAM + len(self._queues)
        self._queues[stream] = []
        self.alive.add(stream)
        return stream

    def free_raw_stream(self, stream: int) -> None:
        self.alive.remove(stream)

    def set_raw_stream(self, stream: int | None) -> None:
        self.stream = stream

    def launch(self, kernel: BoundKernel, run: Callable[[BoundKernel], bool]) -> bool:
        if self.stream is None:
            return run(kernel)
        call = self.stream, kernel.name
        if self._recording is None:
            self.launched.append(call)

        def late() -> bool:
            self.ran.append(call)
            assert run(kernel)
            return True

        self._put(self.stream, late)
        return True

    def record(self, number: int, stream: int) -> None:
        count = self._recorded[number] = self._recorded.get(number, 0) + 1

        def passed() -> bool:
            self._passed[number] = count
            self._times[number] = len(self.ran)
            return True

        self._put(stream, passed)

    def wait(self, number: int, stream: int) -> None:
        count = self._recorded[number]
        self._put(stream, lambda: self._passed.get(number, 0) >= count)

    def between_us(self, first: int, last: int) -> float:
        return float(self._times[last] - self._times[first])

    def sync(self, stream: int | None = None) -> None:
        while waiting := [queue for queue in self._queues.values() if queue]:
            queue = waiting[self._rng.integers(len(waiting))]
            if queue[0]():
                queue.pop(0)


class Graph:
    """What was launched on a `Gpu` while it was recorded."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._calls: list[tuple[int, Callable[[], bool]]] = []

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        if not self._gpu.records:
            raise MeasureError("nothing can be recorded here")
        self._gpu._recording = self._calls
        try:
            yield
        finally:
            self._gpu._recording = None
        self._gpu.graphs += 1

    def launch(self) -> None:
        self._gpu._passed.clear()  # every wait is for an event of this graph
        for stream, call in self._calls:
            self._gpu._queues[stream].append(call)

    def free(self) -> None:
        self._gpu.graphs -= 1


def _as_method(call: Callable[..., Any]) -> Callable[..., Any]:
    return lambda _, *given: call(*given)


@pytest.fixture
def gpu(tvm: Any, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Gpu]:
    found = Gpu(getattr(request, "param", 0))
    run = BoundKernel.run
    monkeypatch.setattr(BoundKernel, "run", lambda kernel: found.launch(kernel, run))
    for name in ("create_raw_stream", "free_raw_stream", "set_raw_stream", "sync"):
        monkeypatch.setattr(tvm.runtime.Device, name, _as_method(getattr(found, name)))
    yield found
    assert not found.alive and not found.graphs


@pytest.fixture(scope="module")
def network(tvm: Any) -> ImportedModel:
    """Four branches of convolutions of one size, added up twice: many tensors that could share memory."""
    relay = tvm.relay
    data = relay.var("data", shape=(1, 8, 16, 16))
    rng = np.random.default_rng(0)
    params = {f"w{i}": tvm.nd.array(rng.standard_normal((8, 8, 3, 3)).astype("float32") / 8) for i in range(16)}
    weights = iter([relay.var(name, shape=(8, 8, 3, 3)) for name in params])
    variables, x = [data], data
    for _ in range(2):
        ends = []
        for _ in range(4):
            y = x
            for _ in range(2):
                weight = next(weights)
                variables.append(weight)
                y = relay.nn.relu(relay.nn.conv2d(y, weight, padding=(1, 1), channels=8, kernel_size=(3, 3)))
            ends.append(y)
        x = relay.nn.max_pool2d(relay.concatenate(ends, 1), pool_size=(3, 3), padding=(1, 1))
        x = relay.strided_slice(x, begin=[0, 4, 0, 0], end=[1, 12, 16, 16])
    module = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function(variables, x)))
    return ImportedModel("branches", "test", module, params, (InputSpec("data", INPUTS["data"].shape),))


def built(network: ImportedModel, target: Any) -> CompiledModel:
    """With a launch for each kernel, as a GPU's has."""
    compiled = compile_model(network, target)
    return dataclasses.replace(compiled, launches=dict.fromkeys(compiled.by_label, ONCE))


def in_turn(compiled: CompiledModel, tvm: Any) -> list[np.ndarray]:
    """Outputs of the compiler's own executor."""
    return [array.copy() for array in load_graph(compiled, tvm.cpu(), INPUTS).output_arrays()]


@pytest.fixture(scope="module")
def branches(network: ImportedModel, target: Any) -> CompiledModel:
    return built(network, target)


@pytest.fixture(scope="module")
def expected(tvm: Any, branches: CompiledModel) -> list[np.ndarray]:
    return in_turn(branches, tvm)


def plan_of(graph: KernelGraph, stages: tuple[Stage, ...]) -> Plan:
    return Plan("test", graph.models, graph.digest, "device", "GPU", stages)


def spread(graph: KernelGraph, streams: int, seed: int) -> Plan:
    """Every operator as a stage of its own on a random stream: only events keep the order."""
    rng = np.random.default_rng(seed)
    return plan_of(
        graph, tuple(Stage((Group((Step(n, 1),), (int(rng.integers(streams)),)),)) for n in range(len(graph)))
    )


@pytest.mark.parametrize("gpu", range(8), indirect=True)
def test_outputs_are_those_of_one_kernel_after_the_other(
    gpu: Gpu, tvm: Any, branches: CompiledModel, expected: list[np.ndarray]
) -> None:
    graph = kernel_graph(["branches"], [branches])
    plan = spread(graph, 3, gpu.seed)
    with StreamExecutor(graph, [branches], plan, tvm.cpu(), [INPUTS], gpu, gpu) as executor:
        for _ in range(3):
            executor.run()
            assert all(map(np.array_equal, executor.outputs(), expected))
        streams = executor.ran_on()
    assert sorted(set(streams)) == [0, 1, 2]
    assert [stream - FIRST_STREAM for stream, _ in gpu.launched[: len(graph)]] == list(streams)
    assert len(gpu.launched) == len(graph) and len(gpu.ran) == 3 * len(graph)  # once one by one, and then as a graph
    assert gpu.ran[: len(graph)] != gpu.launched  # the device did take an order of its own


@pytest.fixture(scope="module")
def merged_branches(network: ImportedModel, target: Any) -> CompiledModel:
    model, kinds = merged(network)
    assert kinds == ("conv2d",)
    return built(model, target)


@pytest.mark.parametrize("gpu", range(4), indirect=True)
def test_merged_operators_on_streams_compute_what_they_compute_in_turn(
    gpu: Gpu, tvm: Any, merged_branches: CompiledModel, expected: list[np.ndarray]
) -> None:
    """Where outputs differ from those of operators that are not merged, merging is the reason."""
    graph = kernel_graph(["branches"], [merged_branches])
    plan = spread(graph, 8, gpu.seed)
    with StreamExecutor(graph, [merged_branches], plan, tvm.cpu(), [INPUTS], gpu, gpu) as executor:
        executor.run()
        found = executor.outputs()
    assert compare_outputs(in_turn(merged_branches, tvm), found) == (True, 0.0)
    assert compare_outputs(expected, found)[1] < 1e-5


def test_what_cannot_be_recorded_is_launched_one_by_one(
    gpu: Gpu, tvm: Any, branches: CompiledModel, expected: list[np.ndarray]
) -> None:
    gpu.records = False
    graph = kernel_graph(["branches"], [branches])
    with StreamExecutor(graph, [branches], spread(graph, 3, 0), tvm.cpu(), [INPUTS], gpu, gpu) as executor:
        for _ in range(2):
            executor.run()
            assert all(map(np.array_equal, executor.outputs(), expected))
        assert executor.not_recorded() == "nothing can be recorded here"
    assert len(gpu.launched) == 2 * len(graph)


@pytest.mark.parametrize("gpu", range(4), indirect=True)
def test_two_models_at_once(gpu: Gpu, tvm: Any, branches: CompiledModel, expected: list[np.ndarray]) -> None:
    graph = kernel_graph(["one", "two"], [branches] * 2)
    half = len(graph) // 2
    groups = [Group(tuple(Step(m * half + n, 1) for n in range(half)), (m,)) for m in range(2)]
    plan = plan_of(graph, (Stage(tuple(groups)),))
    with StreamExecutor(graph, [branches] * 2, plan, tvm.cpu(), [INPUTS] * 2, gpu, gpu) as executor:
        executor.run()
        assert all(map(np.array_equal, executor.outputs(), expected * 2))
    assert [stream - FIRST_STREAM for stream, _ in gpu.launched] == [0, 1] * half


@pytest.mark.parametrize("gpu", range(4), indirect=True)
def test_operators_with_temporary_memory_do_not_run_side_by_side(gpu: Gpu, tvm: Any, branches: CompiledModel) -> None:
    """TVM gives them all the same memory."""
    several = dataclasses.replace(branches, launches={label: ONCE * 2 for label in branches.launches})
    graph = kernel_graph(["branches"], [several])
    plan = spread(graph, 3, gpu.seed)
    with StreamExecutor(graph, [several], plan, tvm.cpu(), [INPUTS], gpu, gpu) as executor:
        executor.run()
    assert gpu.ran == gpu.launched


def test_the_timeline_is_that_of_the_device(gpu: Gpu, tvm: Any, branches: CompiledModel) -> None:
    graph = kernel_graph(["branches"], [branches])
    plan = spread(graph, 3, seed=1)
    with StreamExecutor(graph, [branches], plan, tvm.cpu(), [INPUTS], gpu, gpu) as executor:
        executor.run()
        spans = executor.timeline_us()
        streams = executor.ran_on()
    assert spans.shape == (len(graph), 2) and spans.min() == 0
    assert (spans[:, 1] > spans[:, 0]).all()
    for node in graph.nodes:
        assert all(spans[source, 1] <= spans[node.index, 0] for source in node.inputs)
    for stream in range(3):
        mine = spans[streams == stream].ravel()
        assert (np.diff(mine) >= 0).all()


def test_a_kernel_that_fails_ends_the_run_with_its_name(
    gpu: Gpu, tvm: Any, branches: CompiledModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = kernel_graph(["branches"], [branches])
    launch = gpu.launch
    monkeypatch.setattr(gpu, "launch", lambda kernel, run: len(gpu.launched) < 5 and launch(kernel, run))
    with StreamExecutor(graph, [branches], spread(graph, 2, 0), tvm.cpu(), [INPUTS], gpu, gpu) as executor:
        with pytest.raises(MeasureError, match=f"{graph.nodes[5].name} failed: "):
            executor.run()
        assert len(gpu.ran) == 5 and gpu.stream is None
        monkeypatch.setattr(gpu, "launch", launch)
        executor.run()


def test_groups_of_a_stage_are_launched_in_turn() -> None:
    groups = tuple(Group(tuple(Step(n, 1) for n in nodes), (core,)) for core, nodes in ((0, (0, 1, 2)), (3, (3,))))
    plan = Plan("", ("m",), "", "", "", (Stage(groups), Stage((Group((Step(4, 1),), (3,)),))))
    found = [(step.node, group.cores) for step, group in one_of_each_in_turn(plan).steps]
    assert found == [(0, (0,)), (3, (3,)), (1, (0,)), (2, (0,)), (4, (3,))]


def test_streams_of_tvm_are_taken_and_given_back(tvm: Any, branches: CompiledModel, expected: list[np.ndarray]) -> None:
    """A processor has none and takes the calls all the same."""
    graph = kernel_graph(["branches"], [branches])
    with StreamExecutor(graph, [branches], spread(graph, 3, 0), tvm.cpu(), [INPUTS], Mock(), MagicMock()) as executor:
        executor.run()
        assert all(map(np.array_equal, executor.outputs(), expected))


@pytest.fixture
def models(gpu: Gpu, tvm: Any, branches: CompiledModel, monkeypatch: pytest.MonkeyPatch) -> Models:
    """As `load_models` makes them for a GPU."""
    device = Device(kind="cuda", target="cuda", processor="GPU", cores=132)
    machine: Any = SimpleNamespace(
        device=device, runtime=tvm.cpu(), threads=machines.NoThreads(), meter=lambda threads=None: None, limits=Limits()
    )
    monkeypatch.setattr(stream_lanes, "Events", lambda: gpu)
    monkeypatch.setattr(stream_lanes, "Graphs", lambda: gpu)
    return Models(
        graph=kernel_graph(["branches"], [branches]),
        compiled=(branches,),
        loaded=(load_graph(branches, tvm.cpu(), INPUTS),),
        inputs=(INPUTS,),
        batch_sizes=(1,),
        contents=("branches",),
        asked=(frozenset(),),
        merged=(),
        machine=machine,
        cores=(0, 1, 2, 3),
    )


@pytest.mark.parametrize("policy", ["sequential", "threads", "greedy", "ios", "nash"])
def test_policies_plan_for_streams_from_what_was_measured_there(
    policy: str, models: Models, expected: list[np.ndarray]
) -> None:
    models.sequential().run()
    assert all(map(np.array_equal, models.sequential_outputs(), expected))
    costs = measure_costs(models).costs
    assert costs.threads == (1,) and (costs.latency_us[1] > 0).all()
    plan = plan_for(models, policy, POLICIES.get(policy)(models.graph, costs, models.cores))
    with models.executor(plan) as executor:
        executor.run()
        assert all(map(np.array_equal, executor.outputs(), expected))


def test_a_kernel_can_be_exchanged_for_another(models: Models, tvm: Any) -> None:
    called: list[int] = []
    other = tvm.runtime.convert(lambda *arrays: called.append(len(arrays)))
    with models.executor(in_order(models, 1)) as executor:
        executor.use({0: other, 3: other})
        executor.run()
        assert len(called) == 2
        executor.use({})
        executor.run()
        assert len(called) == 2
