"""Reads hardware and software counters of kernels on this processor, with ``perf_event_open``.

Each thread of this process is counted separately, including TVM's pool, and the counts are summed. Events are read in
groups; the events of a group are counted at the same time. If the processor has fewer counters than there are events,
the kernel alternates between the groups, and each count is scaled by the time for which its group was counted. A
machine without a PMU, such as most virtual machines, has only the software counters; the reason for missing counters is
stored with the counts. Counters are read in separate walks, so that no reading is part of a timed walk.
"""

from __future__ import annotations

import ctypes
import dataclasses
import errno
import fcntl
import os
import platform
import struct
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

_SYSCALL = {"x86_64": 298, "aarch64": 241, "armv7l": 364}
_HARDWARE, _SOFTWARE, _CACHE, _RAW = 0, 1, 3, 4
_FIRST_CACHE, _LAST_CACHE, _READ_MISSES = 0, 2, 1 << 16
_ATTRIBUTES_BYTES = 128
_ENABLED_AND_RUNNING, _GROUP = 1 | 2, 8
_DISABLED, _NO_KERNEL, _NO_HYPERVISOR = 1 << 0, 1 << 5, 1 << 6
_ENABLE, _OF_THE_GROUP = 0x2400, 1
_L2_MISSES = {"GenuineIntel": 0x3F24, "AuthenticAMD": 0x0964}
"""Raw event numbers, by vendor: L2_RQSTS.MISS (Skylake and later), and L2 misses of data (Zen). Linux has no generic
name for these events."""


@dataclasses.dataclass(frozen=True)
class Event:
    """One event to count.

    Attributes:
        name: name of the field of `Measurement` that contains the count.
        kind, config: arguments of ``perf_event_open``; `config` is None if no such event of this processor is known.
        group: name of the group; the events of a group are counted at the same time.
        of_kernel: whether events inside the operating system's kernel count, too, as needed for context switches.
    """

    name: str
    kind: int
    config: int | None
    group: str
    of_kernel: bool = False


def events(vendor: str) -> tuple[Event, ...]:
    """Return all events that are counted.

    Args:
        vendor: ``vendor_id`` of the processor in /proc/cpuinfo.
    """
    return (
        Event("cycles", _HARDWARE, 0, "work"),
        Event("instructions", _HARDWARE, 1, "work"),
        Event("branch_misses", _HARDWARE, 5, "work"),
        Event("l1_misses", _CACHE, _FIRST_CACHE | _READ_MISSES, "caches"),
        Event("l2_misses", _RAW, _L2_MISSES.get(vendor), "caches"),
        Event("llc_misses", _CACHE, _LAST_CACHE | _READ_MISSES, "caches"),
        Event("page_faults", _SOFTWARE, 2, "kernel"),
        Event("context_switches", _SOFTWARE, 3, "kernel", of_kernel=True),
    )


EVENT_NAMES = tuple(event.name for event in events(""))
Counted = dict[tuple[int, str | None], dict[str, Any]]
"""Fields of `Measurement` with counters, by thread count and workload key; the key of the whole model is None."""
GPU_SHARE_NAMES = ("dram_percent", "sm_percent", "occupancy_percent", "tensor_cores_percent")
"""Names of the values that replace counters for kernels of a GPU (`op_profiler.targets.cuda.counters`)."""


@dataclasses.dataclass(frozen=True)
class Counts:
    """Counters of one call of a kernel, summed over all threads.

    Attributes:
        values: counts by name of the event, or values by `GPU_SHARE_NAMES`.
        missing: reasons why events were not counted, by name of the event.
    """

    values: dict[str, float]
    missing: dict[str, str]

    def fields(self) -> dict[str, Any]:
        """Return the counters as fields of `op_profiler.measure.measurement.Measurement`."""
        return {**self.values, "counters_missing": self.missing}


@dataclasses.dataclass(frozen=True)
class _Group:
    """The open counters of one group of events in one thread; the first descriptor is the leader of the group."""

    events: tuple[Event, ...]
    descriptors: tuple[int, ...]

    def read(self) -> np.ndarray:
        """Return the enabled time and the running time of the group (nanoseconds), then one count per event."""
        found = struct.unpack(f"{3 + len(self.events)}Q", os.read(self.descriptors[0], 8 * (3 + len(self.events))))
        return np.array(found[1:], dtype=np.int64)


class Counters:
    """Context manager that counts the events of threads.

    Args:
        threads: thread numbers as in `/proc/self/task`; None: all threads that this process has now.
        proc: root of Linux's process files.
    """

    def __init__(self, threads: Iterable[int] | None = None, *, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        self.missing: dict[str, str] = {}
        self._groups: list[_Group] = []
        tasks = [int(task.name) for task in (proc / "self" / "task").iterdir()] if threads is None else list(threads)
        wanted = events(_vendor(proc))
        for thread in tasks:
            for name in dict.fromkeys(event.group for event in wanted):
                self._open(thread, [event for event in wanted if event.group == name])

    def __enter__(self) -> Counters:
        return self

    def __exit__(self, *error: object) -> None:
        for group in self._groups:
            for descriptor in group.descriptors:
                os.close(descriptor)

    def of_each(self, calls: Sequence[Callable[[], object]]) -> list[Counts]:
        """Make the calls one after the other, and return the counts of each call."""
        readings = [self._read()]
        for call in calls:
            call()
            readings.append(self._read())
        return [self._between(before, after) for before, after in zip(readings, readings[1:])]

    def _read(self) -> list[np.ndarray]:
        return [group.read() for group in self._groups]

    def _between(self, before: list[np.ndarray], after: list[np.ndarray]) -> Counts:
        """Return the counts between two readings, summed over threads; events that were never counted are missing."""
        values: dict[str, float] = {}
        missing = dict(self.missing)
        for group, one, other in zip(self._groups, before, after):
            enabled, running, *counts = (other - one).tolist()
            for event, count in zip(group.events, counts):
                if running == 0 and enabled > 0:
                    missing[event.name] = "its counters were in use by others all the time"
                values[event.name] = values.get(event.name, 0.0) + scaled(count, enabled, running)
        return Counts({name: value for name, value in values.items() if name not in missing}, missing)

    def _open(self, thread: int, wanted: Sequence[Event]) -> None:
        opened: list[tuple[Event, int]] = []
        for event in wanted:
            if event.config is None:
                self.missing[event.name] = "no event of this processor is known for it"
                continue
            descriptor, error = _perf_event_open(event, thread, opened[0][1] if opened else -1)
            if descriptor >= 0:
                opened.append((event, descriptor))
            elif error != errno.ESRCH:  # a thread that has ended meanwhile is no failure
                self.missing[event.name] = self._reason(error)
        if opened:
            fcntl.ioctl(opened[0][1], _ENABLE, _OF_THE_GROUP)
            self._groups.append(_Group(tuple(event for event, _ in opened), tuple(number for _, number in opened)))

    def _reason(self, error: int) -> str:
        if error in (errno.EACCES, errno.EPERM):
            file = self._proc / "sys/kernel/perf_event_paranoid"
            level = file.read_text().strip() if file.is_file() else "unknown"
            return (
                f"the kernel forbids it (perf_event_paranoid is {level}): sudo sysctl kernel.perf_event_paranoid=1, or "
                "the capability CAP_PERFMON, allows it"
            )
        if error in (errno.ENOENT, errno.EOPNOTSUPP, errno.ENODEV, errno.EINVAL):
            return "this machine has no counter for it; virtual machines mostly have none"
        return f"the kernel refuses it: {os.strerror(error)}"


def counts_of_calls(calls: Sequence[Callable[[], object]], walks: int) -> list[Counts]:
    """Make the calls several times, and return the median counts of each call.

    The counts that reading the counters causes are subtracted. All threads that execute the calls must exist before
    this function is called.

    Args:
        walks: number of repetitions of all calls.
    """
    with Counters() as counters:
        nothing = [counters.of_each([_nothing] * len(calls)) for _ in range(walks)]
        counted = [counters.of_each(calls) for _ in range(walks)]
    return [
        _median([walk[number] for walk in counted], [walk[number] for walk in nothing]) for number in range(len(calls))
    ]


def mean_of(counted: Sequence[Counts]) -> Counts:
    """Return the mean counts over the calls of one operator; an event that one call lacks is missing."""
    missing = {name: reason for counts in counted for name, reason in counts.missing.items()}
    names = [name for name in EVENT_NAMES if name not in missing and all(name in one.values for one in counted)]
    return Counts({name: float(np.mean([one.values[name] for one in counted])) for name in names}, missing)


def scaled(count: int, enabled: int, running: int) -> float:
    """Return a count, extrapolated from the time its group was counted (`running`) to the whole time (`enabled`)."""
    return float(count) * (enabled / running) if 0 < running < enabled else float(count)


def _nothing() -> None:
    """Do nothing; called in place of a kernel."""


def _median(counted: Sequence[Counts], nothing: Sequence[Counts]) -> Counts:
    """Return the median of each event over the walks that counted it, minus its median without kernels.

    If groups of events alternate, a call may fall into the turn of another group, so that its event is not counted.

    Args:
        counted: counts of one call, by walk.
        nothing: counts of `_nothing` at the same place, by walk.
    """

    def middle(of: Sequence[Counts], name: str) -> float:
        found = [one.values[name] for one in of if name in one.values]
        return float(np.median(found)) if found else 0.0

    names = [name for name in EVENT_NAMES if any(name in one.values for one in counted)]
    missing = {name: reason for one in counted for name, reason in one.missing.items() if name not in names}
    values = {name: max(middle(counted, name) - middle(nothing, name), 0.0) for name in names}
    return Counts(values, missing)


def _perf_event_open(event: Event, thread: int, leader: int) -> tuple[int, int]:
    """Return a file descriptor and 0, or -1 and the error number."""
    number = _SYSCALL.get(platform.machine())
    if number is None or event.config is None:
        return -1, errno.ENOSYS
    flags = (_DISABLED if leader < 0 else 0) | (0 if event.of_kernel else _NO_KERNEL | _NO_HYPERVISOR)
    attributes = bytearray(_ATTRIBUTES_BYTES)
    struct.pack_into(
        "IIQQQQQ",
        attributes,
        0,
        event.kind,
        _ATTRIBUTES_BYTES,
        event.config,
        0,
        0,
        _ENABLED_AND_RUNNING | _GROUP,
        flags,
    )
    library = ctypes.CDLL(None, use_errno=True)
    buffer = (ctypes.c_char * _ATTRIBUTES_BYTES).from_buffer(attributes)
    descriptor = library.syscall(number, ctypes.byref(buffer), thread, -1, leader, 0)
    return int(descriptor), ctypes.get_errno() if descriptor < 0 else 0


def _vendor(proc: Path) -> str:
    """Return the ``vendor_id`` of the first core in /proc/cpuinfo; empty if unknown."""
    file = proc / "cpuinfo"
    lines = file.read_text().splitlines() if file.is_file() else []
    return next((line.split(":")[1].strip() for line in lines if line.startswith("vendor_id")), "")
