"""Another machine behind TVM's RPC: a board, or a server with a GPU. Its own clock times kernels."""

from __future__ import annotations

import contextlib
import functools
import gc
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from op_profiler.compilers.compiled_model import CompiledModel
from op_profiler.compilers.compiler import compiler_in_use
from op_profiler.compilers.remote_model import RemoteMachine
from op_profiler.compilers.tvm_errors import last_line
from op_profiler.compilers.tvm_types import Target
from op_profiler.errors import BoardLostError, MeasureError
from op_profiler.measure.limits import Limits
from op_profiler.measure.measurement import Cache
from op_profiler.option_values import threads_text
from op_profiler.targets.machine import FixedModel, Place
from op_profiler.targets.remote.probe import Probe, describe_board, upload
from op_profiler.targets.remote.rpc import ANSWER_SECONDS, connect, deadline
from op_profiler.targets.target import kind_of

_WAIT_SECONDS = 30.0
_RUN_SECONDS = 300.0
FLUSH = "cache_flush_cpu_non_first_arg"
"""Function that the board's runtime calls before a timed call; it does nothing on 32-bit boards."""
COLD_MECHANISM = "clflush of all tensors but the first"
_32_BITS = ("arm-", "armv")  # prefixes of 32-bit triples; all 64-bit triples begin with aarch64
_ANY_CORES = 1  # runtime.config_threadpool: the fastest cores first


class Board:
    """A `Machine` behind RPC.

    Args:
        name: the target as the user wrote it.
        address: address of the requested machine, if several have the same key.
    """

    def __init__(self, name: str, target: Target, place: Place, address: str | None = None) -> None:
        self.place = place
        self.target = target
        self.connection = connect(place, wait_seconds=_WAIT_SECONDS, address=address)
        self._lost = False
        session = self.connection.session
        kind = kind_of(name)
        self.runtime = session.device(kind.rpc_device, 0)
        self.probe: Probe | None = None
        self._sensor: str | None = None
        with self.guard("describing it", ANSWER_SECONDS * 3):
            device = kind.describe_remote(self.runtime, target, self.address)
            if device is None:
                self.probe = Probe(session, target)
                device = describe_board(kind.name, target, self.address, place.key, self.probe)
                self._sensor = self.probe.energy_sensor()
            self.device = device
        self._running_seconds = 0.0
        self._loaded: weakref.WeakSet[BoardKernels] = weakref.WeakSet()
        self.threads = RemoteThreads(self)
        self.limits = Limits(minimum_rounds=3, usual_rounds=11, usual_seconds=4.0, maximum_seconds=180.0, readings=1)

    @property
    def address(self) -> str:
        """Return ``host:port`` of the board's RPC server."""
        return self.connection.address

    @contextlib.contextmanager
    def guard(self, doing: str, seconds: float = _RUN_SECONDS) -> Iterator[None]:
        """Run calls to the board with a time limit; raise BoardLostError if the session ended."""
        try:
            with deadline(seconds, f"{doing} on {self.address}"):
                yield
        except BoardLostError:
            self._lost = True
            raise
        except (RuntimeError, OSError) as error:
            if self.connection.alive():
                raise
            self._lost = True
            raise BoardLostError(f"the session on {self.address} ended while {doing}: {last_line(error)}") from error

    def load(self, compiled: CompiledModel, inputs: dict[str, np.ndarray], copies: int = 1) -> BoardKernels:
        """Send the compiled model to the board and load it there; `copies` is ignored.

        Raises:
            MeasureError: the board's runtime lacks something that the model needs.
            BoardLostError: the session ended.
        """
        with self.guard("loading the model"):
            loaded = BoardKernels(self, compiled, inputs)
        self._loaded.add(loaded)
        return loaded

    def conditions(self) -> None:
        """Return None: a board's clocks and temperature are not read."""
        return

    def energy_mj(self) -> float | None:
        """Return the board's energy counter in millijoules; None if the board has no counter."""
        if self._sensor is None or self.probe is None:
            return None
        with self.guard("reading its energy counter", ANSWER_SECONDS):
            text = self.probe.read(self._sensor)
        return int(text) / 1e3 if text.isdecimal() else None

    def running_seconds(self) -> float:
        """Return the seconds spent in `running` so far, including calls over the network."""
        return self._running_seconds

    @contextlib.contextmanager
    def running(self, doing: str) -> Iterator[None]:
        """As `guard`, for code that does little but run kernels on the board: `running_seconds` includes its time."""
        started = time.monotonic()
        try:
            with self.guard(doing):
                yield
        finally:
            self._running_seconds += time.monotonic() - started

    def steadiness_probe(self) -> None:
        """Return None: a board has no reference kernels."""
        return

    def meter(self, threads: int | None = None) -> None:
        """Return None: background load cannot be read over RPC."""
        return

    def close(self) -> None:
        """Release the board. The tracker regards it as free once no object of the session exists, so the references to
        such objects are deleted.

        Loaded models are released first, because an array cannot be freed on the board after its session has ended.
        """
        for loaded in self._loaded:
            loaded.release(session_lost=self._lost)
        del self.connection.session, self.runtime, self.threads
        self.probe = None
        gc.collect()  # objects of TVM hold each other too, and the session with them


class RemoteThreads:
    """The thread pool of a board, whose cores cannot be read over RPC.

    TVM's profiler creates the pool again, with all threads. Setting a thread count therefore also sets the variable
    that limits the threads of a kernel; under the profiler, this works for one thread and for all threads, not for
    counts between.
    """

    def __init__(self, board: Board) -> None:
        self._board = board
        session = board.connection.session
        with board.guard("asking for its threads", ANSWER_SECONDS):
            self._configure = session.get_function("runtime.config_threadpool")
            self._count = session.get_function("runtime.NumThreads")
            self._most = int(self._count())  # the pool is made by this call, before anything bounds it
        self._used = self._most

    @property
    def hold_under_profiler(self) -> bool:
        """Return whether a profiled run uses the thread count that was set last."""
        return self._used in (1, self._most)

    def use(self, threads: int) -> None:
        """Run the next kernels with this number of threads.

        Raises:
            MeasureError: the board uses another number.
        """
        probe = self._board.probe
        if probe is None:
            return
        with self._board.guard("setting its threads", ANSWER_SECONDS):
            probe.limit_threads(threads)
            self._configure(_ANY_CORES, threads)
        self._used = threads
        effective = self.effective_threads()
        if effective != threads:
            raise MeasureError(
                f"asked for {threads_text(threads)}, the pool of {self._board.address} answers {effective}; "
                "start its RPC server with TVM_NUM_THREADS set to its cores"
            )

    def effective_threads(self) -> int | None:
        """Return the number of threads of the board's pool; None for a remote GPU."""
        if self._board.probe is None:
            return None
        with self._board.guard("asking for its threads", ANSWER_SECONDS):
            return int(self._count())

    def core_set(self, threads: int) -> tuple[int, ...]:
        """Return an empty tuple: TVM's pool on the board chooses the cores."""
        return ()

    def effective_core_set(self) -> tuple[int, ...]:
        """Return an empty tuple: affinity cannot be read over RPC."""
        return ()


class BoardKernels(FixedModel):
    """A model on a board (a `LoadedModel`), whose runtime places the tensors and reads its clock around each kernel.

    The time evaluator of TVM's runtime times the whole model and single kernels; it makes one untimed call first. In
    the cache state ``model``, the kernels' times come from one run of the profiler on the board, in graph order and in
    place. If the board cannot do this, the state is ``hot``, and `cache_mechanism` reports it.
    """

    def __init__(self, board: Board, compiled: CompiledModel, inputs: dict[str, np.ndarray]) -> None:
        self._board = board
        session = board.connection.session
        send = functools.partial(upload, session, target=board.target)
        try:
            self._model = compiler_in_use().load_remote(compiled, RemoteMachine(session, board.runtime, send), inputs)
        except MeasureError as error:
            raise MeasureError(f"{board.address}: {error}") from error
        self._library, self._kernels = self._model.library, self._model.kernels
        self._evaluators: dict[tuple[str, Cache], Callable[..., Any]] = {}
        self._timed_run = self._model.timed_run

    def release(self, *, session_lost: bool) -> None:
        """Free the model's memory on the board; nothing can be run afterwards.

        Args:
            session_lost: the session has ended, so nothing is sent to the board.
        """
        self._model.release(session_lost=session_lost)
        del self._evaluators, self._timed_run, self._kernels, self._library, self._model

    @property
    def labels(self) -> list[str]:
        """Return the compiler's hash of each kernel, in execution order."""
        return [label for _, label, _ in self._kernels]

    def set_inputs(self, inputs: dict[str, np.ndarray]) -> None:
        """Copy inputs of the model, by name, to the board."""
        with self._board.guard("sending the inputs"):
            for name, value in inputs.items():
                self._model.set_input(name, value)

    def run_model(self) -> None:
        """Run the model on the board once.

        Raises:
            BoardLostError: the session ended, or the time limit passed.
        """
        with self._board.running("running the model"):
            self._model.run()

    def time_model(self) -> float:
        """Return the microseconds of one run of the whole model; NaN if the board's runtime cannot run it as a
        whole."""
        if self._timed_run is None:
            return float("nan")
        with self._board.running("timing the model"):
            return self._timed_run()

    def walk(self, cache: Cache, timed: list[bool]) -> list[float]:
        """Return the microseconds of each kernel: by the board's profiler if `cache` is ``model``, otherwise by its
        time evaluator, one kernel at a time.

        Raises:
            MeasureError: the profiler reports other kernels than the model has.
            BoardLostError: the session ended.
        """
        if cache == "model" and self._in_place():
            times = self._profiled()
            return [time if wanted else float("nan") for time, wanted in zip(times, timed, strict=True)]
        state: Cache = "hot" if cache == "model" else cache
        return [self._alone(i, state) if wanted else float("nan") for i, wanted in enumerate(timed)]

    def _in_place(self) -> bool:
        return self._model.has_profiler and self._board.threads.hold_under_profiler

    def _profiled(self) -> list[float]:
        with self._board.running("profiling the model"):
            profile = self._model.profile()
        names = [name for name, _, _ in self._kernels]
        calls = [call for call in profile if call[0] in set(names)]
        if [name for name, _ in calls] != names:
            raise MeasureError(f"the profiler of {self._board.address} reports other kernels than the model has")
        return [time for _, time in calls]

    def _alone(self, index: int, cache: Cache) -> float:
        name, _, arrays = self._kernels[index]
        with self._board.running(f"running {name}"):
            key = (name, cache)
            if key not in self._evaluators:
                before = FLUSH if cache == "cold" else ""
                self._evaluators[key] = self._library.time_evaluator(
                    name, self._board.runtime, number=1, repeat=1, f_preproc=before
                )
            return float(self._evaluators[key](*arrays).results[0]) * 1e6

    def repeat_kernel(self, index: int, calls: int) -> bool:
        """Call one kernel repeatedly in the board's own loop, so that the board is not idle between two calls. One
        untimed call comes first."""
        name, _, arrays = self._kernels[index]
        with self._board.running(f"running {name}"):
            self._library.time_evaluator(name, self._board.runtime, number=calls - 1, repeat=1)(*arrays)
        return True

    def kernel_error(self, index: int) -> str | None:
        """Call one kernel and return the last line of its error; None if the kernel runs without an error.

        Raises:
            BoardLostError: the session ended.
        """
        name, _, arrays = self._kernels[index]
        try:
            with self._board.running(f"running {name}"):
                self._library.get_function(name)(*arrays)
        except BoardLostError:
            raise
        except RuntimeError as error:
            return last_line(error)
        return None

    def cache_mechanism(self, cache: Cache) -> str:
        """Return how the cache state is produced; ``repeat: ...`` if the board cannot profile in place.

        Raises:
            MeasureError: TVM cannot flush the caches of a 32-bit board.
        """
        triple = str(self._board.target.attrs.get("mtriple", ""))
        if cache == "cold" and triple.startswith(_32_BITS):
            raise MeasureError(
                f"--cache cold: TVM flushes no cache of {triple}, so nothing is cold on {self._board.address}; "
                "take --cache model or hot"
            )
        if cache == "model":
            if self._in_place():
                return "in-graph"
            why = "with these threads" if self._model.has_profiler else "what its compiler makes"
            return f"repeat: the board cannot profile {why}"
        return "repeat" if cache == "hot" else COLD_MECHANISM

    def kernel_outputs(self) -> Iterator[np.ndarray]:
        """Call the kernels in order and fetch the output of each."""
        for name, _, arrays in self._kernels:
            with self._board.running(f"running {name}"):
                self._library.get_function(name)(*arrays)
                output = np.asarray(arrays[-1].numpy())
            yield output

    def output_arrays(self) -> list[np.ndarray]:
        """Fetch the outputs of the last run."""
        with self._board.guard("fetching the outputs"):
            return [np.asarray(output.numpy()) for output in self._model.outputs]
