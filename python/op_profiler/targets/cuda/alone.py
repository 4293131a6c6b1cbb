"""Times single calls of a kernel in isolation, with hot or cold caches, by the GPU's clock."""

from __future__ import annotations

from collections.abc import Callable

from op_profiler.compilers.tvm_types import RuntimeDevice
from op_profiler.measure.measurement import Cache
from op_profiler.targets.cuda.events import Events, HeldStream
from op_profiler.targets.cuda.launch_cost import launch_cost
from op_profiler.targets.cuda.own_kernels import Flush, Spin, own_kernels


def alone_us(held: HeldStream, flush: Flush, launch: Callable[[], bool], cache: Cache) -> float:
    """Return the microseconds of one call of a kernel, between an event before and an event after it; NaN if the launch
    fails.

    Args:
        launch: launches the kernel on the default stream; returns False if the launch fails.
        cache: ``hot``: after another call of the kernel; ``cold``: after a flush.

    Raises:
        MeasureError: the host cannot launch the kernel while the GPU is held.
    """

    def attempt() -> list[float] | None:
        if cache == "hot":
            launch()
        else:
            flush.run()
        return held.once([launch])

    return held.repeated(attempt)[0]


class SingleCalls:
    """Times single calls of kernels on the default stream, without the time that the events add."""

    def __init__(self, runtime: RuntimeDevice) -> None:
        events, kernels = Events(), own_kernels(runtime)
        self._held, self._flush = HeldStream(events), Flush(runtime, kernels)
        self._event_us = launch_cost(Spin(kernels), events).event_us if kernels is not None else 0.0

    def us(self, launch: Callable[[], bool], cache: Cache) -> float:
        """Return the time of one call on the GPU in microseconds; NaN if the launch fails, or if nothing is left after
        the time of the events is subtracted."""
        us = alone_us(self._held, self._flush, launch, cache) - self._event_us
        return us if us > 0 else float("nan")
