"""Plan lanes that are streams of this machine's GPU, and the CUDA graphs that record their launches."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from op_profiler.errors import UsageError
from op_profiler.parallel.runtime.executor import Inputs
from op_profiler.parallel.runtime.plan_lanes import PlanLanes
from op_profiler.parallel.runtime.stream_executor import StreamExecutor
from op_profiler.targets.cuda.events import Events, Runtime, pointer

if TYPE_CHECKING:
    from op_profiler.compilers.compiled_model import CompiledModel
    from op_profiler.compilers.tvm_types import RuntimeDevice
    from op_profiler.parallel.planning.graph import KernelGraph
    from op_profiler.parallel.planning.plan import Plan

_MOST_STREAMS = 32
"""More than the number of kernels of a model that are worth running in parallel."""


_RELAXED = 2  # cudaStreamCaptureModeRelaxed: other calls of this process stay as they are


class StreamLanes(PlanLanes):
    """Plan lanes that are streams of a GPU; one host thread launches on all of them. Thread counts are not used."""

    lane = "stream"
    option = "--streams"
    only_measured = True
    usual_count = 4

    def first(self, count: int) -> tuple[int, ...]:
        """Return the numbers of `count` streams; raise UsageError unless `count` is 1 to 32."""
        if not 1 <= count <= _MOST_STREAMS:
            raise UsageError(f"--streams {count} is not possible here: give 1 to {_MOST_STREAMS}")
        return tuple(range(count))

    def thread_counts(self, count: int) -> tuple[int, ...]:
        """Return 1: an operator runs on one stream."""
        return (1,)

    def executor(
        self, graph: KernelGraph, compiled: Sequence[CompiledModel], plan: Plan, device: RuntimeDevice, inputs: Inputs
    ) -> StreamExecutor:
        """Return an executor that launches on all streams, as one CUDA graph."""
        return StreamExecutor(graph, compiled, plan, device, inputs, Events(), Graphs())


class CudaGraph:
    """The recorded launches on a stream, and on the streams that are synchronised with it (`recording`)."""

    def __init__(self, runtime: Runtime, stream: int) -> None:
        self._runtime = runtime
        self._stream = pointer(stream)
        self._executable = ctypes.c_void_p()

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """Record the launches in the block without running them.

        Raises:
            MeasureError: a call in the block cannot be recorded, for example an allocation.
        """
        graph = ctypes.c_void_p()
        self._runtime.call("StreamBeginCapture", "begin to record a graph", self._stream, _RELAXED)
        try:
            yield
        except BaseException:
            self._runtime.library.cudaStreamEndCapture(self._stream, ctypes.byref(graph))
            raise
        self._runtime.call("StreamEndCapture", "record a graph", self._stream, ctypes.byref(graph))
        made = ctypes.byref(self._executable), graph, ctypes.c_ulonglong(0)
        self._runtime.call("GraphInstantiate", "make a graph of what was recorded", *made)
        self._runtime.call("GraphDestroy", "free what a graph was made of", graph)

    def launch(self) -> None:
        """Launch the whole graph on its first stream."""
        self._runtime.call("GraphLaunch", "launch a graph", self._executable, self._stream)

    def free(self) -> None:
        """Free the graph, which cannot be launched afterwards."""
        self._runtime.call("GraphExecDestroy", "free a graph", self._executable)


class Graphs:
    """Creates graphs on this machine's GPU."""

    def __init__(self) -> None:
        self._runtime = Runtime()

    def on(self, stream: int) -> CudaGraph:
        """Return a new graph whose first stream is `stream`."""
        return CudaGraph(self._runtime, stream)
