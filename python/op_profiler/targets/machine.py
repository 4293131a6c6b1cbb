"""Contracts of a machine, of its threads and of the models loaded on it; and `Place`, the address of a machine
behind RPC."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated, Any, Protocol, TypeVar

from op_profiler.errors import UsageError
from op_profiler.options import DEVICE, Option

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np

    from op_profiler.compilers.compiled_model import CompiledModel
    from op_profiler.compilers.tvm_types import RuntimeDevice
    from op_profiler.measure.limits import Limits
    from op_profiler.measure.load import LoadMeter
    from op_profiler.measure.measurement import Cache, Device
    from op_profiler.measure.steadiness import SteadinessProbe

_Model = TypeVar("_Model")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Place:
    """Address of a machine behind RPC.

    Attributes:
        key: key of the machine at a tracker; without a tracker, the key of the server.
    """

    host: Annotated[str, Option("Address of an RPC tracker or an RPC server.", DEVICE)]
    port: Annotated[int, Option("Port of the tracker or server given by --host.", DEVICE)]
    key: Annotated[
        str,
        Option(
            "Key of the machine to request from the tracker. Default: the target's name.", DEVICE, name="device_key"
        ),
    ] = ""

    @classmethod
    def of_options(cls, host: str | None = None, port: int | None = None, key: str | None = None) -> Place | None:
        """Return the place of the given options; None if neither host nor port is given. An empty key is the default
        key.

        Raises:
            UsageError: only one of host and port is given, the port is not valid, or only a key is given.
        """
        if host is None and port is None:
            if key is not None:
                raise UsageError("--device-key names a machine of an RPC tracker: give its --host and --port too")
            return None
        if not (host or "").strip() or port is None:
            raise UsageError("--host and --port go together: those of an RPC tracker, or of an RPC server itself")
        if not 0 < port < 65536:
            raise UsageError(f"--port {port} is out of range; give 1 to 65535")
        return cls(host=str(host).strip(), port=port, key=key or "")

    def with_key(self, default: str) -> Place:
        """Return the same place with the key `default` if it has none."""
        return dataclasses.replace(self, key=self.key or default)


class Threads(Protocol):
    """The threads that kernels run on: sets their number, and reads the effective values back."""

    def use(self, threads: int) -> None:
        """Run the next kernels with this number of threads; raises MeasureError if the machine uses another number."""

    def effective_threads(self) -> int | None:
        """Return the thread count that the runtime reports; None if threads cannot be counted."""

    def core_set(self, threads: int) -> tuple[int, ...]:
        """Return the cores that `use(threads)` requests."""

    def effective_core_set(self) -> tuple[int, ...]:
        """Return the cores as read back from the operating system; empty if it cannot be queried."""


class TimedModel(Protocol):
    """A model on a machine, ready to be timed as a whole and kernel by kernel."""

    @property
    def labels(self) -> list[str]:
        """The compiler's hash of each kernel, in execution order."""

    def moved(self) -> TimedModel:
        """Return a copy of the model at other addresses, for the next window of rounds; each call returns another copy.

        The model itself is returned if op_profiler cannot choose its addresses.
        """

    def run_model(self) -> None:
        """Call `move_stack`, and run the whole model once."""

    def move_stack(self) -> None:
        """Change the stack position from which kernels are called until the next call of this method
        (`measure/stack.py`).

        Nothing happens if op_profiler cannot choose the stack position.
        """

    def time_model(self) -> float:
        """Return the microseconds of one run of the whole model; NaN if it can run only kernel by kernel."""

    def walk(self, cache: Cache, timed: list[bool]) -> list[float]:
        """Run every kernel once in order, and return their times in microseconds.

        The times include the call overhead (`call_overhead_us`). NaN for kernels that are not timed, and for failures.
        """

    def call_overhead_us(self) -> float | None:
        """Return the current call overhead in microseconds: the part of each time of `walk` that is not in a run of the
        model.

        None if the times of `walk` contain no such overhead.
        """

    def launch_gap_us(self) -> float | None:
        """Return the current time in microseconds that a device waits for launches in a run of the whole model.

        It is computed from single kernels and their launches, not from the time of the whole model. None on devices
        without launches.
        """

    def repeat_kernel(self, index: int, calls: int) -> bool:
        """Call one kernel `calls` times in a row, in the same way as `walk` calls it, and wait for the last call.

        Returns:
            False if the kernel failed or cannot be called in isolation.
        """

    def kernel_error(self, index: int) -> str | None:
        """Run one kernel with checks, and return its error; None if the kernel runs without an error."""

    def cache_mechanism(self, cache: Cache) -> str:
        """Return how `walk` produces this cache state; raises MeasureError if it cannot produce the state."""

    def output_arrays(self) -> list[np.ndarray]:
        """Return the model's outputs of the last run."""


class FixedModel:
    """Base class of `TimedModel`s for which op_profiler can choose neither addresses nor the stack position, and whose
    times contain no call overhead and no launches."""

    def moved(self: _Model) -> _Model:
        """Return this object itself, because op_profiler cannot choose other addresses."""
        return self

    def move_stack(self) -> None:
        """Do nothing."""

    def call_overhead_us(self) -> float | None:
        """Return None."""
        return None

    def launch_gap_us(self) -> float | None:
        """Return None."""
        return None


class LoadedModel(TimedModel, Protocol):
    """A model on a machine whose tensors can also be read."""

    def moved(self) -> LoadedModel:
        """Return a copy at other addresses, as in `TimedModel`."""

    def kernel_outputs(self) -> Iterator[np.ndarray]:
        """Run the kernels in order, and yield the output of each before the next one runs."""


class Machine(Protocol):
    """A machine that is open until `close` is called."""

    @property
    def device(self) -> Device:
        """Description of the machine for the dataset."""

    def steadiness_probe(self) -> SteadinessProbe | None:
        """Return the reference kernels, whose times show the current speed of the machine; None if it has none."""

    @property
    def runtime(self) -> RuntimeDevice:
        """TVM's device on which kernels run."""

    @property
    def threads(self) -> Threads:
        """The threads that run kernels on the machine."""

    @property
    def limits(self) -> Limits:
        """Limits at which rounds on this machine stop."""

    def load(self, compiled: CompiledModel, inputs: dict[str, np.ndarray], copies: int = ...) -> LoadedModel:
        """Load a model and its inputs on the machine.

        Args:
            copies: largest number of copies at other addresses for `LoadedModel.moved`; one if op_profiler cannot
                choose the addresses.
        """

    def running_seconds(self) -> float | None:
        """Return how long models and kernels have run so far, in seconds, without the time to reach the machine;
        None if unknown."""

    def meter(self, threads: int | None = None) -> LoadMeter | None:
        """Return a meter of the background load on the cores that the threads use; None if the load cannot be read.

        Args:
            threads: thread count; None for all available cores.
        """

    def conditions(self) -> dict[str, Any] | None:
        """Return the current state of the machine by names with units; None if the machine reports no state.

        A GPU reports clocks, temperature, power, and the reasons that limit its clock.
        """

    def energy_mj(self) -> float | None:
        """Return the energy used so far in millijoules, from a counter; None if the machine has no counter."""

    def close(self) -> None:
        """Release the machine."""
