"""The contract of a machine, its threads and the models that are loaded on it; and how to reach one behind RPC
(`Place`)."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated, Any, Protocol

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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Place:
    """How to reach a machine that is not this one.

    Attributes:
        key: a server's own where there is no tracker.
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
        """The machine that is named; None where neither host nor port is given, and an empty key is the usual one.

        Raises:
            UsageError: only one of them is given, the port is none, or a key without them.
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

    def with_key(self, usual: str) -> Place:
        """The same, with the usual key where it has none."""
        return dataclasses.replace(self, key=self.key or usual)


class Threads(Protocol):
    """The threads that kernels run on: set them, and read back what became of it."""

    def use(self, threads: int) -> None:
        """Run the next kernels with so many; raises MeasureError where the machine took another number."""

    def effective_threads(self) -> int | None:
        """What the runtime answers; None where threads are nothing that can be counted."""

    def core_set(self, threads: int) -> tuple[int, ...]:
        """Cores that `use(threads)` asks for."""

    def effective_core_set(self) -> tuple[int, ...]:
        """Cores read back from the operating system; empty where it cannot be asked."""


class TimedModel(Protocol):
    """A model on a machine, ready to be timed as a whole and kernel by kernel."""

    @property
    def labels(self) -> list[str]:
        """The compiler's hash of each kernel, in execution order."""

    def moved(self) -> TimedModel:
        """A copy of it in other memory, another one at each call, for the next window of rounds; itself where memory is
        not ours to choose."""

    def run_model(self) -> None:
        """Run the whole model once, and `move_stack`."""

    def move_stack(self) -> None:
        """What is timed until the next call of this is called from another place on the stack (`measure/stack.py`);
        nothing where the stack is not ours to choose."""

    def time_model(self) -> float:
        """Microseconds of one run of the whole model; NaN where it can be run kernel by kernel only."""

    def walk(self, cache: Cache, timed: list[bool]) -> list[float]:
        """Run every kernel once in order; microseconds of those that are timed, calls included
        (`call_overhead_us`), NaN for the rest and for failures."""

    def call_overhead_us(self) -> float | None:
        """What each time of `walk` holds that the model does not spend when it runs as a whole, microseconds, as it is
        now; None where times are taken so that they hold no such thing."""

    def launch_gap_us(self) -> float | None:
        """What a device waits for launches while the model runs as a whole, microseconds, as it is now: told by its
        kernels and their launches one by one, not by the time of the whole. None where nothing is launched."""

    def repeat_kernel(self, index: int, calls: int) -> bool:
        """Call one kernel so often in a row as `walk` calls it, and wait for the last; False where it failed or cannot
        be called alone."""

    def kernel_error(self, index: int) -> str | None:
        """Run one kernel with checks: None, or what is wrong with it."""

    def cache_mechanism(self, cache: Cache) -> str:
        """How `walk` brings the caches into that state; raises MeasureError where it cannot."""

    def output_arrays(self) -> list[np.ndarray]:
        """The model's outputs after the last run."""


class LoadedModel(TimedModel, Protocol):
    """A model on a machine whose tensors can be fetched too."""

    def moved(self) -> LoadedModel:
        """As in `TimedModel`."""

    def kernel_outputs(self) -> Iterator[np.ndarray]:
        """Run the kernels in order; what each of them wrote, fetched before the next one runs."""


class Machine(Protocol):
    """One machine, from its opening to its `close`."""

    @property
    def device(self) -> Device:
        """What it is; goes into the dataset."""

    def steadiness_probe(self) -> SteadinessProbe | None:
        """Kernels that tell how fast the machine is at the moment; None where there are none."""

    @property
    def runtime(self) -> RuntimeDevice:
        """That kernels are given."""

    @property
    def threads(self) -> Threads:
        """The threads of its processor."""

    @property
    def limits(self) -> Limits:
        """When rounds on it stop."""

    def load(self, compiled: CompiledModel, inputs: dict[str, np.ndarray], copies: int = ...) -> LoadedModel:
        """Put a model and its inputs on the machine.

        Args:
            copies: in other memory that `LoadedModel.moved` goes through, at most; where memory is not ours to choose
                there is one.
        """

    def running_seconds(self) -> float | None:
        """Seconds that models and kernels ran so far, without what it takes to reach the machine; None: not told."""

    def meter(self, threads: int | None = None) -> LoadMeter | None:
        """Reads the load that others put on what so many threads use; None where it cannot be read.

        Args:
            threads: None for all that may be used.
        """

    def conditions(self) -> dict[str, Any] | None:
        """What it tells of its state at this moment, by names with units: of a GPU clocks, temperature, power, and what
        holds its clock back. None where it tells nothing."""

    def energy_mj(self) -> float | None:
        """A counter of the energy used so far, millijoules; None where there is none."""

    def close(self) -> None:
        """Give it back."""
