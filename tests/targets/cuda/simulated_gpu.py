"""A GPU, its host and its events on a clock that only they move: every time of a run is known."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial

from op_profiler.targets.cuda.gpu import GpuKernels


@dataclasses.dataclass(eq=False)
class SimulatedGpu:
    """The default stream, in place of `Events` and of TVM's device.

    Attributes:
        event_us: what an event takes on the stream.
        turn_us: from the end of a kernel to the begin of the next one, which was launched before.
        host_us, stream_us: where the host and the stream are.
    """

    event_us: float = 0.7
    turn_us: float = 1.0
    host_us: float = 0.0
    stream_us: float = 0.0
    at_us: dict[int, float] = dataclasses.field(default_factory=dict)

    def put(self, takes_us: float, launch_us: float = 0.0) -> None:
        """Launch what takes so long on the stream."""
        self.host_us += launch_us
        self.stream_us = max(self.host_us, self.stream_us) + takes_us

    def record(self, number: int) -> None:
        self.put(self.event_us)
        self.at_us[number] = self.stream_us

    def hold(self, microseconds: int) -> None:
        self.put(microseconds)

    def passed(self, number: int) -> bool:
        return self.host_us >= self.at_us[number]

    def between_us(self, first: int, last: int) -> float:
        self.host_us = max(self.host_us, self.at_us[last])
        return self.at_us[last] - self.at_us[first]

    def sync(self) -> None:
        self.host_us = max(self.host_us, self.stream_us)


@dataclasses.dataclass
class Call:
    """What can be launched: a kernel, or a model of several."""

    launches: Sequence[Callable[[], None]]

    def run(self) -> bool:
        for launch in self.launches:
            launch()
        return True


class SimulatedSpin:
    """In place of `Spin`.

    Args:
        instructions_us: time from the first to the last instruction.
        edges_us: of the kernel, before and behind these.
        timer_step_us: in which the kernel reads the time.
    """

    def __init__(
        self, gpu: SimulatedGpu, *, instructions_us: float = 4.03, edges_us: float = 1.0, timer_step_us: float = 0.032
    ) -> None:
        self._gpu, self._instructions_us, self._edges_us = gpu, instructions_us, edges_us
        self._step_us, self._read_us = timer_step_us, list[float]()

    def launch(self) -> bool:
        begins_us = max(self._gpu.host_us + 2.0, self._gpu.stream_us) + self._gpu.turn_us
        self._gpu.put(self._gpu.turn_us + self._instructions_us + self._edges_us, 2.0)
        first, last = (us // self._step_us for us in (begins_us, begins_us + self._instructions_us))
        self._read_us.append((last - first) * self._step_us)
        return True

    def mean_us(self) -> float:
        read_us, self._read_us = self._read_us, []
        return sum(read_us) / len(read_us) if read_us else float("nan")

    def timer_step_us(self) -> float:
        return self._step_us


class SimulatedModel:
    """A `Graph`.

    Args:
        launch_factor: launches that are read one by one are read so many times too long.
    """

    def __init__(
        self, gpu: SimulatedGpu, kernels_us: Sequence[float], launches_us: Sequence[float], launch_factor: float = 1.0
    ) -> None:
        self._gpu, self._launches_us, self._launch_factor = gpu, launches_us, launch_factor
        times = zip(kernels_us, launches_us)
        self.kernels = tuple(Call([partial(gpu.put, gpu.turn_us + us, launch_us)]) for us, launch_us in times)
        self.whole = Call([launch for kernel in self.kernels for launch in kernel.launches])
        self.labels = [f"kernel {number}" for number in range(len(self.kernels))]

    def walk(self, cache: str, timed: Sequence[bool]) -> list[float]:
        self.whole.run()
        return [us * self._launch_factor for us in self._launches_us]


def loaded(gpu: SimulatedGpu, model: SimulatedModel) -> GpuKernels:
    """The model as the collector gets it; a flush takes 100 us."""
    flush = Call([partial(gpu.put, 100.0, 2.0)])
    counts = (1,) * len(model.kernels)
    return GpuKernels(model, gpu, gpu, flush, counts, SimulatedSpin(gpu))  # type: ignore[arg-type]
