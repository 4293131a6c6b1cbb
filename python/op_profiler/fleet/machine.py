"""What a worker tells of its machine."""

from __future__ import annotations

import platform

import msgspec
import psutil

TOLD = "op_profiler"
"""Where Dask keeps what a worker told when it came."""


DRIFT = 0.15
"""Share of its usual time by which a machine's steadiness probe may be off. What a neighbour on a shared host costs is
10 to 40 % (`measure.steadiness`)."""


class FleetMachine(msgspec.Struct, frozen=True, kw_only=True):
    """The machine that a worker is on.

    Attributes:
        host, host_id: its name, and what tells it from machines of the same name.
        processor: as the operating system names it.
        memory_bytes: of the machine.
        measures: kinds of targets that are measured on it, with `Device.identity` of what they are measured on.
        version: of op_profiler.
    """

    host: str
    host_id: str
    processor: str
    cores: int
    memory_bytes: int
    measures: dict[str, str]
    version: str


def this_machine() -> FleetMachine:
    """The machine of this process; TVM is not imported."""
    import op_profiler
    from op_profiler.cores import usable_cores
    from op_profiler.targets.llvm.identity import host_id, processor_name

    return FleetMachine(
        host=platform.node(),
        host_id=host_id(),
        processor=processor_name(),
        cores=usable_cores(),
        memory_bytes=int(psutil.virtual_memory().total),
        measures=_measured_here(),
        version=op_profiler.__version__,
    )


def _measured_here() -> dict[str, str]:
    from op_profiler.errors import OpProfilerError
    from op_profiler.targets import TARGETS

    found = {}
    for name in TARGETS:
        kind = TARGETS.get(name)
        try:
            kind.check(name, remote=False, dry_run=False)
            found[name] = kind.machine_identity()
        except OpProfilerError:
            continue  # not on this machine
    return found


def has_drifted(deviation: float | None) -> bool:
    """Whether a machine is so far off what is usual on it that its times are not of its usual state."""
    return deviation is not None and abs(deviation) > DRIFT
