"""Runs whole models on several targets at once, with one thread per target.

Targets share no cores of this machine: each processor target gets separate cores, a GPU gets one core for the thread
that launches kernels, and a board behind RPC gets none, because it uses its own cores.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import numpy as np

from op_profiler.compilers.compiler import compiler_in_use
from op_profiler.compilers.tvm_build import runtime_device
from op_profiler.compilers.tvm_errors import last_line
from op_profiler.errors import MeasureError, UsageError
from op_profiler.targets.open_machine import open_machine
from op_profiler.targets.remote.board import Board
from op_profiler.targets.target import kind_of

if TYPE_CHECKING:
    from op_profiler.compilers.compiled_model import CompiledModel
    from op_profiler.compilers.tvm_types import Target
    from op_profiler.measure.kernels import GraphKernels
    from op_profiler.targets.machine import Machine, Place
    from op_profiler.targets.remote.board import BoardKernels


def split_cores(targets: Sequence[str], cores: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return the cores of each target: one for a GPU, none for a board, and equal shares of the rest for processors.

    Raises:
        UsageError: there are fewer cores than targets that need a core.
    """
    wanted = [kind_of(target).driving_cores for target in targets]
    sharing = wanted.count(None)
    driving = sum(count for count in wanted if count is not None)
    if len(cores) < driving + sharing:
        raise UsageError(
            f"{driving + sharing} targets need a core each, here are {len(cores)}: leave a target out, or give "
            "--threads"
        )
    size, left_over = divmod(len(cores) - driving, max(sharing, 1))
    shares, first = [], 0
    for count in wanted:
        if count is None:
            count = size + (left_over > 0)
            left_over -= 1
        shares.append(cores[first : first + count])
        first += count
    return shares


@dataclasses.dataclass(frozen=True)
class Placement:
    """The models that run on one target, one after the other.

    Attributes:
        target: the target; for a board, with the board's address.
        cores: cores that run the models; for a GPU, the core that launches kernels; empty for a board.
        models: names of the models.
    """

    target: str
    cores: tuple[int, ...]
    models: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class OnTarget:
    """All models, loaded on one target.

    Attributes:
        name: the target as the user wrote it.
        target: the complete target.
        models: names of the models.
        graphs: the loaded models.
        inputs: inputs of each model, on the host.
        board: the board, if the target is a board; otherwise None.
    """

    name: str
    target: Target
    models: tuple[str, ...]
    graphs: tuple[GraphKernels | BoardKernels, ...]
    inputs: tuple[dict[str, np.ndarray], ...]
    board: Board | None = None


def load_on_target(
    name: str,
    target: Target,
    models: tuple[str, ...],
    builds: Sequence[CompiledModel],
    inputs: Sequence[dict[str, np.ndarray]],
    place: Place | None,
) -> OnTarget:
    """Load models on this machine's processor or GPU, or on a board.

    Args:
        name: the target as the user wrote it.
        models: names of the models.
        builds: builds of the models for the target.
        inputs: inputs of each model, one array per input.
        place: where the board is reached; None without a board.
    """
    pairs = list(zip(builds, inputs, strict=True))
    if not kind_of(name).is_board or place is None:
        device = runtime_device(target)
        loaded = (compiler_in_use().load(build, device, arrays) for build, arrays in pairs)
        graphs = tuple(cast("GraphKernels", one) for one in loaded)  # only Relay has plans
        return OnTarget(name, target, models, graphs, tuple(inputs))

    board = Board(name, target, place)
    on_board = tuple(board.load(build, arrays) for build, arrays in pairs)
    return OnTarget(name, target, models, on_board, tuple(inputs), board)


Outputs = dict[int, list[np.ndarray]]
"""Output arrays of each model, by the number of the model."""


class TargetWorker(contextlib.AbstractContextManager["TargetWorker"]):
    """A thread that runs models on one target; the threads of their kernels run on the given cores.

    TVM keeps the threads of its kernels, sleeping, until the process ends. Calls to a board are made by the main
    thread, because only there calls have a time limit.

    Attributes:
        loaded: the models, loaded on the target.
        cores: cores of the kernels' threads.
        machine: the machine of the target, which sets the kernels' threads and meters the background load.
    """

    loaded: OnTarget
    cores: tuple[int, ...]
    machine: Machine

    def __init__(self, loaded: OnTarget, cores: tuple[int, ...]) -> None:
        self.loaded = loaded
        self.cores = cores
        self.machine = loaded.board or open_machine(loaded.name, loaded.target, None, cores)
        self._thread = concurrent.futures.ThreadPoolExecutor(1)

    @property
    def takes_all_cores(self) -> bool:
        """Return whether the target can use all cores of this machine: it is a processor, not a GPU or a board."""
        return kind_of(self.loaded.name).driving_cores is None

    def __enter__(self) -> TargetWorker:
        if self.loaded.board is None:
            self._thread.submit(self._bind).result()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown()
        self.machine.close()

    def _bind(self) -> None:
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, self.cores)
        self.machine.threads.use(len(self.cores))  # TVM has one pool per thread that calls kernels

    def start(self, numbers: Sequence[int]) -> concurrent.futures.Future[Outputs]:
        """Start running models one after the other on the worker's thread; return a future of their outputs."""
        return self._thread.submit(self.run, numbers)

    def run(self, numbers: Sequence[int]) -> Outputs:
        """Run models one after the other on the calling thread, and return their outputs."""
        return {number: self._run(number) for number in numbers}

    def _run(self, number: int) -> list[np.ndarray]:
        graph = self.loaded.graphs[number]
        try:
            graph.set_inputs(self.loaded.inputs[number])
            graph.run_model()
            return graph.output_arrays()  # waits for the device
        except RuntimeError as error:
            model = self.loaded.models[number]
            raise MeasureError(f"{model} failed on {self.loaded.name}: {last_line(error)}") from error

    def placement(self, numbers: Sequence[int]) -> Placement:
        """Return the `Placement` of the models with these numbers on this worker's target."""
        board = self.loaded.board
        target = self.loaded.name if board is None else f"{self.loaded.name} at {board.address}"
        return Placement(target, self.cores, tuple(self.loaded.models[number] for number in numbers))


Work = Sequence[tuple[TargetWorker, Sequence[int]]]
"""Workers, and the numbers of the models that each of them runs."""


def run_all(work: Work) -> Outputs:
    """Run all workers at once, wait until all have ended, and return the outputs of their models."""
    futures = [worker.start(numbers) for worker, numbers in work if worker.loaded.board is None]
    found: Outputs = {}
    try:
        for worker, numbers in work:
            if worker.loaded.board is not None:
                found |= worker.run(numbers)
    finally:
        concurrent.futures.wait(futures)
    return found | {number: arrays for future in futures for number, arrays in future.result().items()}
