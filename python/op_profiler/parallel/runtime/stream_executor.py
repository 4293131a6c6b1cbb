"""`StreamExecutor`: runs plans on a GPU, whose lanes are streams.

One thread launches the kernels. Kernels of one stream run one after the other; the GPU runs kernels of different
streams side by side if it has room. An operator that waits for another stream waits for an event. The launches of a run
are recorded once as a CUDA graph and launched as a whole, so that small kernels do not wait for their launches.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from op_profiler.compilers.bound_kernel import BoundKernel
from op_profiler.compilers.compiler import compiler_in_use
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.compilers.tvm_errors import last_line
from op_profiler.errors import MeasureError
from op_profiler.parallel.planning.plan import Group, Stage
from op_profiler.parallel.runtime.executor import Inputs
from op_profiler.parallel.runtime.lane_executor import Programme, happens_before, load_side_by_side

if TYPE_CHECKING:
    from op_profiler.compilers.compiled_model import CompiledModel
    from op_profiler.compilers.tvm_types import PackedFunction, RuntimeDevice
    from op_profiler.parallel.planning.graph import KernelGraph
    from op_profiler.parallel.planning.plan import Plan


class StreamEvents(Protocol):
    """Numbered events on streams; `op_profiler.targets.cuda.gpu.Events` implements them for a GPU."""

    def record(self, number: int, stream: int) -> None:
        """Record an event on a stream; it occurs when all work launched on the stream so far has ended."""

    def wait(self, number: int, stream: int) -> None:
        """Make later launches on a stream wait for an event."""

    def between_us(self, first: int, last: int) -> float:
        """Return the time between two events in microseconds, by the device's clock."""


class StreamGraph(Protocol):
    """A graph of recorded launches; `op_profiler.targets.cuda.stream_lanes.CudaGraph` implements it for a GPU."""

    def recording(self) -> contextlib.AbstractContextManager[None]:
        """Record the launches in the block without running them."""

    def launch(self) -> None:
        """Launch the whole graph."""

    def free(self) -> None:
        """Free the graph, which cannot be used afterwards."""


class StreamGraphs(Protocol):
    """A factory of `StreamGraph`s; `op_profiler.targets.cuda.stream_lanes.Graphs` implements it for a GPU."""

    def on(self, stream: int) -> StreamGraph:
        """Return a new graph that is recorded and launched on this stream."""


@dataclasses.dataclass(frozen=True)
class _StreamLaunch:
    """The launch of a kernel on the stream of a lane.

    Attributes:
        waits: numbers of the events for which the stream waits before the kernel.
        posts: numbers of the events that are recorded after the kernel.
    """

    kernel: BoundKernel
    node: int
    lane: int
    waits: tuple[int, ...]
    posts: tuple[int, ...]


class StreamExecutor(contextlib.AbstractContextManager["StreamExecutor"]):
    """Models that are loaded to be run by a plan on streams; an `Executor`.

    Use it as a context manager from one thread.

    Args:
        graph: graph of `compiled`.
        compiled: models built for the device.
        plan: a plan that passed `Plan.check` for the graph; every step has one thread.
        device: `tvm.runtime.Device`.
        inputs: inputs of each model, one array per input.
        events, graphs: events and graphs of the device.
    """

    def __init__(
        self,
        graph: KernelGraph,
        compiled: Sequence[CompiledModel],
        plan: Plan,
        device: RuntimeDevice,
        inputs: Inputs,
        events: StreamEvents,
        graphs: StreamGraphs,
    ) -> None:
        plan = one_of_each_in_turn(plan)
        ordered = temporaries_in_turn(graph, plan, compiled)
        order = happens_before(ordered, plan)
        self._models = load_side_by_side(graph, compiled, order, device, inputs)
        self._kernels = kernels = [kernel for model in self._models for kernel in model.kernels]
        programme = Programme(ordered, plan, order)
        launches = {
            entry.node: _StreamLaunch(kernels[entry.node], entry.node, lane, entry.waits, entry.posts)
            for lane, entries in enumerate(programme.lanes)
            for entry in entries
        }
        self._launches = [launches[step.node] for step, _ in plan.steps]
        self._cores = programme.cores
        self._first_mark = programme.signals
        self._device = device
        self._events = events
        self._graphs = graphs
        self._graph: StreamGraph | None = None
        self._not_recorded: str | None = None
        self._streams: list[int] = []

    def __enter__(self) -> StreamExecutor:
        self._streams = [self._device.create_raw_stream() for _ in self._cores]
        self._device.sync()  # TVM's streams do not wait for the default stream, which copied weights and inputs
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(load_tvm().TVMError, MeasureError):  # after a failure, the device rejects all calls
            self._forget()
            for stream in self._streams:
                self._device.free_raw_stream(stream)
        self._streams = []

    def run(self) -> None:
        """Run all models once; return when the device has finished.

        Raises:
            MeasureError: a kernel could not be launched (the message names it), or a kernel failed on the device (the
                message cannot name it).
        """
        if self._graph is not None:
            self._graph.launch()
            self._sync()
            return
        self._run(marks=False)  # allocates temporary memory, which is impossible while a graph is recorded
        if self._not_recorded is None:
            self._record()

    def use(self, functions: Mapping[int, PackedFunction]) -> None:
        """From the next run on, call these functions for the given nodes, and the model's functions for all others.

        If a function needs temporary memory and runs beside others, its step in the plan must have a schedule.
        """
        self._forget()
        compiler = compiler_in_use()
        for place, launch in enumerate(self._launches):
            own = self._kernels[launch.node]
            function = functions.get(launch.node)
            kernel = own if function is None else compiler.bound_kernel(own.name, own.label, function, own.arrays)
            self._launches[place] = dataclasses.replace(launch, kernel=kernel)

    def outputs(self) -> list[np.ndarray]:
        """Return the outputs of the last run, model after model."""
        return [array for model in self._models for array in model.output_arrays()]

    def timeline_us(self) -> np.ndarray:
        """Run the models once more; return start and end of every operator, microseconds from the first start.

        The shape is (nodes, 2). The times are those of events before and after each kernel on its stream: if the GPU is
        faster than the launching thread, a kernel's time includes the wait for its launch. The events themselves add a
        little time.
        """
        self._run(marks=True)
        origin = self._mark(self._launches[0].node)
        found = np.empty((len(self._launches), 2))
        for node in range(len(found)):
            for end in (0, 1):
                found[node, end] = self._events.between_us(origin, self._mark(node) + end)
        return found - found.min()

    def ran_on(self) -> np.ndarray:
        """Return the number of every operator's stream, shape (nodes,)."""
        found = np.zeros(len(self._launches), dtype=np.int64)
        for launch in self._launches:
            found[launch.node] = self._cores[launch.lane]
        return found

    def threads_used(self) -> np.ndarray:
        """Return 1 for every operator, shape (nodes,), because one host thread launches it."""
        return np.ones(len(self._launches), dtype=np.int64)

    def bound_to(self) -> dict[int, int | None]:
        """Return the streams of the plan, each mapped to itself, because a kernel always runs on its planned stream."""
        return {stream: stream for stream in self._cores}

    def not_recorded(self) -> str | None:
        """Return why the launches could not be recorded as a graph; None if they were recorded, or before any run."""
        return self._not_recorded

    def _mark(self, node: int) -> int:
        """Return the number of the event before a node's kernel; the event after the kernel has the next number."""
        return self._first_mark + 2 * node

    def _run(self, *, marks: bool) -> None:
        try:
            for launch in self._launches:
                self._launch(launch, marks)
        finally:
            self._device.set_raw_stream(None)  # other code expects the default stream
            self._sync()

    def _record(self) -> None:
        """Record a graph of all launches.

        The other streams wait for the first stream at the start, and the first stream waits for them at the end.
        """
        first, *others = self._streams
        fork = self._mark(len(self._launches))  # follows the marks of all nodes
        graph = self._graphs.on(first)
        try:
            with graph.recording():
                self._events.record(fork, first)
                for stream in others:
                    self._events.wait(fork, stream)
                for launch in self._launches:
                    self._launch(launch, marks=False)
                for number, stream in enumerate(others, start=fork + 1):
                    self._events.record(number, stream)
                    self._events.wait(number, first)
        except MeasureError as error:
            self._not_recorded = str(error)
        else:
            self._graph = graph
        finally:
            self._device.set_raw_stream(None)

    def _forget(self) -> None:
        """Free the recorded graph, and delete the reason why no graph was recorded."""
        if self._graph is not None:
            self._graph.free()
        self._graph, self._not_recorded = None, None

    def _launch(self, launch: _StreamLaunch, marks: bool) -> None:
        events, stream = self._events, self._streams[launch.lane]
        self._device.set_raw_stream(stream)
        for number in launch.waits:
            events.wait(number, stream)
        if marks:
            events.record(self._mark(launch.node), stream)
        if not launch.kernel.run():
            raise MeasureError(f"{launch.kernel.name} failed: {launch.kernel.error() or 'but not when called again'}")
        if marks:
            events.record(self._mark(launch.node) + 1, stream)
        for number in launch.posts:
            events.record(number, stream)

    def _sync(self) -> None:
        try:
            for stream in self._streams:
                self._device.sync(stream)
        except load_tvm().TVMError as error:
            raise MeasureError(f"the device failed while it ran a plan: {last_line(error)}") from error


def one_of_each_in_turn(plan: Plan) -> Plan:
    """Return a plan that launches one operator of each group of a stage in turn; each stream keeps its order.

    Otherwise a stream would wait until all operators of another group are launched.
    """
    stages = tuple(
        Stage(tuple(Group((step,), group.cores) for group, step in zip(stage.groups, row) if step is not None))
        for stage in plan.stages
        for row in itertools.zip_longest(*(group.steps for group in stage.groups))
    )
    return dataclasses.replace(plan, stages=stages)


def temporaries_in_turn(graph: KernelGraph, plan: Plan, compiled: Sequence[CompiledModel]) -> KernelGraph:
    """Return the graph with further dependences: operators with temporary memory wait for each other, in plan order.

    TVM allocates temporary memory for the duration of a call, and the next call gets the same memory. On one stream
    this is safe; on two streams both calls would use it at once, because a call returns before its kernels have run.
    Temporary memory passes data from one kernel of an operator to its next kernel, so an operator with a single kernel
    needs none. Operators whose number of kernels is unknown (library calls, operators under another schedule) are
    assumed to need temporary memory.
    """
    kernels = [len(one.launches.get(call.label, ())) for one in compiled for call in one.calls]
    nodes = list(graph.nodes)
    users = [step.node for step, _ in plan.steps if kernels[step.node] != 1 or step.schedule is not None]
    for before, user in itertools.pairwise(users):
        nodes[user] = dataclasses.replace(nodes[user], inputs=(*nodes[user].inputs, before))
    return dataclasses.replace(graph, nodes=tuple(nodes))
