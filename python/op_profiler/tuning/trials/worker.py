"""The worker process that builds and times candidates.

It is forked from a server that has already imported TVM, so a new worker costs a hundredth of a second. Commands arrive
through a pipe, one after the other. Whatever a candidate does to the process, the runner at the other end sees an
answer, the end of the process, or a timeout.
"""

from __future__ import annotations

import ctypes
import dataclasses
import importlib
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any, ClassVar

import numpy as np
import psutil

from op_profiler.compilers.bound_kernel import BoundKernel
from op_profiler.compilers.compiler import compiler_in_use
from op_profiler.compilers.tvm_build import load_tvm, runtime_device
from op_profiler.compilers.tvm_errors import kind_and_last_line
from op_profiler.compilers.tvm_types import DeviceArray, RuntimeDevice, RuntimeModule
from op_profiler.cores import unbind
from op_profiler.errors import BoardLostError, MeasureError
from op_profiler.measure.in_place import timed_us
from op_profiler.measure.load import CoreMeter, LoadMeter
from op_profiler.measure.measurement import Cache, Settings
from op_profiler.measure.threads import ThreadPool
from op_profiler.targets.machine import Place, Threads
from op_profiler.tuning.candidate import VENDOR, Candidate, Failure, TaskSpec, TrialResult
from op_profiler.tuning.reference import Reference, reference_of, unwritten_array
from op_profiler.tuning.task import BuiltPoint, InvalidPointError, Task
from op_profiler.tuning.trials.vendor import vendor_kernels

_PR_SET_PDEATHSIG = 1
_WARM_UP_SECONDS = 0.1
_PAUSE_SECONDS = 0.005
_SHORT_US = 300.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class WorkerSetup:
    """Configuration of a worker, sent to it once at its start.

    Attributes:
        target: TVM target string.
        threads: thread count of the kernels.
        modules: modules to import for the templates that they register.
        memory_bytes: memory that the process may allocate in addition to what it has at the start; None for no limit.
        check: whether outputs are compared with the reference.
        cache: ``hot``, or ``cold``: the weights are flushed before each call.
        log: file for the output of TVM.
        name: the target as the user wrote it.
        place, address: machine to time on, if it is behind RPC; otherwise None.
    """

    target: str
    threads: int
    modules: tuple[str, ...]
    memory_bytes: int | None
    check: bool
    cache: Cache
    log: str
    name: str = "llvm"
    place: Place | None = None
    address: str | None = None

    def settings(self, read_back: tuple[int | None, tuple[int, ...], tuple[int, ...]], mechanism: str) -> Settings:
        """Return the settings of kernels, requested and effective.

        Args:
            read_back: result of `Worker.read_back`.
            mechanism: mechanism of the cache state, as in `Settings.cache_mechanism`.
        """
        effective, cores, effective_cores = read_back
        return Settings(
            threads=self.threads,
            threads_effective=effective,
            core_set=cores,
            core_set_effective=effective_cores,
            cache=self.cache,
            cache_mechanism=mechanism,
            executor="kernel",
        )


@dataclasses.dataclass
class Built:
    """A candidate that is ready to run.

    Attributes:
        function: library whose entry function runs the candidate.
        arrays: arguments of the entry function.
        reference: inputs and expected output; None if the output is not checked.
        flush: function that flushes the weights, or all inputs if there are no weights; None if caches are not flushed.
        output_place: position of the output in `arrays`.
        kernel: object that times single calls; None if the device's own clock times the calls.
    """

    function: RuntimeModule
    arrays: list[DeviceArray]
    reference: Reference | None
    flush: Callable[[], None] | None
    output_place: int
    kernel: BoundKernel | None

    def call(self) -> None:
        """Run the candidate once."""
        self.function(*self.arrays)

    def output(self) -> np.ndarray:
        """Return the output of the last call."""
        return np.asarray(self.arrays[self.output_place].numpy())

    def timed(self, device: RuntimeDevice, calls: int, samples: int) -> tuple[float, ...]:
        """Return samples in microseconds per call, each the mean over `calls` calls, or a single call if `flush` is not
        None."""
        if self.flush is not None or calls == 1:
            return tuple(self._timed_once() for _ in range(samples))
        return self.evaluated(device, calls, samples)

    def evaluated(self, device: RuntimeDevice, calls: int, samples: int, **options: Any) -> tuple[float, ...]:
        """Return samples of the device's time evaluator in microseconds per call, each the mean over `calls` calls."""
        name = self.function.entry_name
        evaluator = self.function.time_evaluator(name, device, number=calls, repeat=samples, **options)
        return tuple(float(s) * 1e6 for s in evaluator(*self.arrays).results)

    def _timed_once(self) -> float:
        if self.flush is not None:
            self.flush()
        assert self.kernel is not None
        return timed_us(self.kernel)


@dataclasses.dataclass
class BuiltByVendor:
    """A vendor's kernel, with the interface of `Built`; each sample includes about 2 us of Python's overhead."""

    name: str
    function: Callable[[], Any]
    reference: Reference
    result: Any = None

    def call(self) -> None:
        """Run the kernel once, and store its output for `output`."""
        self.result = self.function()

    def output(self) -> np.ndarray:
        """Return the output of the last `call` as a dense array."""
        dense = self.result.to_dense() if self.result.is_mkldnn else self.result
        return np.asarray(dense.numpy())

    def timed(self, device: RuntimeDevice, calls: int, samples: int) -> tuple[float, ...]:
        """Return samples in microseconds per call, each the mean over `calls` calls; caches stay hot."""
        times = []
        for _ in range(samples):
            started = time.perf_counter_ns()
            for _ in range(calls):
                self.function()
            times.append((time.perf_counter_ns() - started) / calls / 1e3)
        return tuple(times)


class Worker:
    """State of a worker process: tasks, their inputs and built functions.

    This class times on this machine's processor; subclasses time on other devices.

    Attributes:
        memory_is_limited: whether a process may allocate only a share of the free memory.
        cold_mechanism: how weights are removed from all caches, as in `Settings.cache_mechanism`.
    """

    memory_is_limited: ClassVar[bool] = True
    cold_mechanism: ClassVar[str] = "clflush of the weights, of all inputs where none is a weight"

    def __init__(self, setup: WorkerSetup) -> None:
        self.setup = setup
        load_tvm()
        compiler = compiler_in_use()
        compiler.prepare_search()
        for module in setup.modules:
            importlib.import_module(module)
        self.target = compiler.target(setup.target)
        self.device, self.pool = self._open()
        self.tasks: dict[TaskSpec, Task] = {}
        self.references: dict[TaskSpec, Reference | None] = {}
        self.inputs: dict[tuple[TaskSpec, tuple[Any, ...]], list[Any]] = {}
        self.built: dict[int, Built | BuiltByVendor] = {}
        self._warm_up_seconds = _WARM_UP_SECONDS

    def _open(self) -> tuple[RuntimeDevice, Threads]:
        """Return the device that kernels run on, and its threads."""
        return runtime_device(self.target), ThreadPool()

    def _meter(self) -> LoadMeter | None:
        """Return a meter of background load during timing; None if the load cannot be read."""
        return CoreMeter(self.pool.core_set(self.setup.threads))

    def prepare(self, task: TaskSpec) -> TrialResult:
        """Create a task and its reference for the next builds; return an empty result, or the failure."""
        try:
            self._prepare(task)
        except Exception as error:  # noqa: BLE001 - as in `build`
            return _failed(error, "invalid", "preparing")
        return TrialResult()

    def _prepare(self, task: TaskSpec) -> None:
        unbind()  # timing binds this thread to a core, but builds must run on all cores
        if task not in self.tasks:
            self.tasks, self.inputs = {task: compiler_in_use().task(task, self.target)}, {}
        if task not in self.references:
            self.references = {task: self.tasks[task].reference() if self.setup.check else None}

    def build(self, number: int, candidate: Candidate) -> TrialResult:
        """Lower and compile a candidate to machine code; return its build time, or a failure.

        Args:
            number: number by which `measure` and `compare` refer to the built candidate.
        """
        started = time.perf_counter()
        failure: Failure = "invalid"
        try:
            if candidate.index == VENDOR:
                self.built[number] = self._vendor(candidate.task)
                return TrialResult()
            self._prepare(candidate.task)
            failure = "build"
            self.built[number] = self._bind(candidate.task, self.tasks[candidate.task].build(candidate.index))
        except Exception as error:  # noqa: BLE001 - an error of a template fails only this candidate
            return _failed(error, failure, "building")
        return TrialResult(build_seconds=time.perf_counter() - started)

    def _vendor(self, task: TaskSpec) -> BuiltByVendor:
        """Return the fastest of the vendor's kernels whose output is correct."""
        reference = reference_of(task)
        if reference is None:
            raise MeasureError(f"the vendor has no kernel that is known here for {task.template}")
        built = self._vendor_kernels(task, reference)
        wrong: dict[str, str] = {}
        for one in built:
            one.call()
            off = reference.plain_difference(one.output())
            if off is not None:
                wrong[one.name] = off
        right = [one for one in built if one.name not in wrong]
        if not right:
            raise MeasureError("; ".join(f"{name}: {off}" for name, off in wrong.items()))
        return min(right, key=lambda one: min(one.timed(self.device, 3, 5)))

    def _vendor_kernels(self, task: TaskSpec, reference: Reference) -> list[BuiltByVendor]:
        kernels = vendor_kernels(task, reference, self.setup.threads)
        return [BuiltByVendor(name, function, reference) for name, function in kernels.items()]

    def _bind(self, task: TaskSpec, built: BuiltPoint) -> Built:
        """Return a built function with inputs: those of the reference if there is one, otherwise random inputs."""
        shapes = [tensor for place, tensor in enumerate(built.tensors) if place != built.output]
        output_shape, output_dtype = built.tensors[built.output]
        array = compiler_in_use().array_on
        reference = self.references[task]
        if (task, built.tensors) not in self.inputs:
            bound = reference.bind([shape for shape, _ in shapes]) if reference is not None else None
            if bound is None:
                rng = np.random.default_rng(0)
                bound = [(rng.random(shape) * 10).astype(dtype) for shape, dtype in shapes]
                reference = None
            arrays = [array(a, self.device) for a in bound]
            weights = [a for a, s in zip(arrays, shapes) if reference is not None and reference.is_weight(s[0])]
            self.inputs[task, built.tensors] = [reference, weights, *arrays]
        reference, weights, *arrays = self.inputs[task, built.tensors]
        arrays.insert(built.output, array(unwritten_array(output_shape, output_dtype), self.device))
        return self._built(built, arrays, reference, weights)

    def _built(
        self, built: BuiltPoint, arrays: list[DeviceArray], reference: Reference | None, weights: list[DeviceArray]
    ) -> Built:
        inputs = [array for place, array in enumerate(arrays) if place != built.output]
        flush = self._flusher(weights or inputs) if self.setup.cache == "cold" else None
        name = built.function.entry_name
        kernel = compiler_in_use().bound_kernel(name, "", built.function.get_function(name), arrays)
        return Built(built.function, arrays, reference, flush, built.output, kernel)

    def _flusher(self, arrays: list[DeviceArray]) -> Callable[[], None]:
        flush = load_tvm().get_global_func("cache_flush_cpu_non_first_arg", allow_missing=True)
        if flush is None:
            raise MeasureError("cold trials need cache_flush_cpu_non_first_arg, which this build of TVM lacks")
        first = compiler_in_use().array_on(np.zeros(1, "float32"), self.device)
        return lambda: flush(first, *arrays)

    def measure(self, number: int, best_us: float, samples: int, minimum_us: float, stop_factor: float) -> TrialResult:
        """Check the output of a built candidate, then time the candidate; return its samples, or a failure.

        Args:
            number: number of the candidate in `build`.
            best_us: microseconds of the best candidate so far.
            samples: number of samples.
            minimum_us: duration of a sample, which determines its number of calls.
            stop_factor: if the first call takes more than this many times `best_us`, no more calls are made.
        """
        built = self.built.pop(number)
        try:
            built.call()
            wrong = built.reference.difference(built.output()) if built.reference is not None else None
            if wrong is not None:
                return TrialResult(failure="wrong", error=wrong, checked=True)
            checked = built.reference is not None
            self._warm_up(built)
            first = self._first(built, stop_factor * best_us)
            if first > stop_factor * best_us:
                return TrialResult(samples_us=(first,), stopped_early=True, checked=checked)
            calls = max(int(np.ceil(minimum_us / max(first, 0.1))), 1)
            if self.setup.cache == "cold":  # each sample is a single call
                return TrialResult(samples_us=built.timed(self.device, 1, samples * min(calls, 5)), checked=checked)
            return TrialResult(samples_us=built.timed(self.device, calls, samples), checked=checked)
        except Exception as error:  # noqa: BLE001 - as above
            return _failed(error, "run", "running")

    def _first(self, built: Built | BuiltByVendor, limit_us: float) -> float:
        """Return the microseconds of the first call.

        A call that is short and slower than the limit is repeated up to twice, because an interrupt can double its
        time; the shortest time is returned.
        """
        first = built.timed(self.device, 1, 1)[0]
        for _ in range(2):
            if first <= limit_us or first > _SHORT_US:
                break
            first = min(first, *built.timed(self.device, 1, 1))
        return first

    def _warm_up(self, built: Built | BuiltByVendor) -> None:
        """Wait until a new thread pool has spread over its cores."""
        self.pool.use(self.setup.threads)
        end = time.perf_counter() + self._warm_up_seconds
        while time.perf_counter() < end:
            built.call()
        self._warm_up_seconds = 0.0

    def read_back(self) -> tuple[int | None, tuple[int, ...], tuple[int, ...]]:
        """Return the effective number of threads (None if unknown), the requested cores, and the effective cores."""
        threads = self.setup.threads
        self.pool.use(threads)  # this worker may have replaced the one that ran the kernels
        return self.pool.effective_threads(), self.pool.core_set(threads), self.pool.effective_core_set()

    def compare(self, numbers: Sequence[int], rounds: int, minimum_us: float) -> list[TrialResult]:
        """Time several built candidates alternately, each sample after a call that wakes the threads.

        Args:
            numbers: numbers of the candidates in `build`.
            rounds: number of rounds; each candidate has one sample per round.
            minimum_us: duration of a sample, which determines its number of calls.
        """
        built = [self.built.pop(n) for n in numbers]
        for one in built:
            one.call()
        self._warm_up(built[0])
        firsts = [min(one.timed(self.device, 1, 3)) for one in built]
        calls = [max(int(np.ceil(minimum_us / max(first, 0.1))), 1) for first in firsts]
        samples: list[list[float]] = [[] for _ in built]
        meter = self._meter()
        for turn in range(rounds):
            order = range(len(built)) if turn % 2 == 0 else reversed(range(len(built)))
            for position in order:
                time.sleep(_PAUSE_SECONDS)  # until the threads of the previous candidate have stopped spinning
                built[position].call()
                samples[position] += built[position].timed(self.device, calls[position], 1)
        load = meter.read() if meter is not None else None
        return [
            TrialResult(
                samples_us=tuple(s),
                checked=b.reference is not None,
                kernel=getattr(b, "name", None),
                foreign_load=load is not None and load.disturbs,
            )
            for s, b in zip(samples, built)
        ]


def _failed(error: Exception, failure: Failure, doing: str) -> TrialResult:
    """Return the result of a candidate that raised an error; `failure` is its kind unless the error tells another."""
    if isinstance(error, MemoryError):
        return TrialResult(failure="memory", error=f"out of memory while {doing}")
    if isinstance(error, (BoardLostError, InvalidPointError)):
        return TrialResult(failure="lost" if isinstance(error, BoardLostError) else "invalid", error=str(error))
    return TrialResult(failure=failure, error=kind_and_last_line(error))


def main(connection: Connection, worker_class: type[Worker], setup: WorkerSetup) -> None:
    """Answer commands until the pipe is closed."""
    if sys.platform == "linux":  # ends with the fork server, which ends with its parent
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # only the runner handles interrupts
    log = os.open(setup.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    worker = worker_class(setup)
    if setup.memory_bytes is not None:
        _limit_memory(setup.memory_bytes)
    connection.send("ready")
    while True:
        try:
            command, *arguments = connection.recv()
        except EOFError:
            return
        connection.send(getattr(worker, command)(*arguments))


def _limit_memory(more_bytes: int) -> None:
    """Limit the memory that this process may allocate in addition to what it has."""
    held = psutil.Process().memory_info().vms
    _, most = resource.getrlimit(resource.RLIMIT_AS)  # the limit of a user or a container cannot be raised
    wanted = held + more_bytes if most == resource.RLIM_INFINITY else min(held + more_bytes, most)
    resource.setrlimit(resource.RLIMIT_AS, (wanted, most))
