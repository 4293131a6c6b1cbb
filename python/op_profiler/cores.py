"""Cores that this process may use: their physical cores and kinds, and the order in which threads are bound to them."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from op_profiler.control_groups import processor_quota

_SYSFS = Path("/sys")


@functools.cache
def available_cores() -> tuple[int, ...]:
    """Return the cores that this process could use at the first call; later bindings do not change the result."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


@functools.cache
def binding_order(sysfs: Path = _SYSFS) -> tuple[int, ...]:
    """Return the available cores in the order in which threads are bound to them: n threads run on the first n cores.

    On a hybrid processor, only cores of the fastest kind are returned. The first hardware threads of all physical cores
    come before the second ones, so that threads share a physical core only if there are more threads than physical
    cores.

    Args:
        sysfs: root folder of Linux's files about the cores.
    """
    available, kinds = available_cores(), core_kinds(sysfs)
    fastest = max(available, key=lambda core: _speed(core, sysfs))
    alike = [core for core in available if kinds.get(core) == kinds.get(fastest)]
    return tuple(sorted(alike, key=lambda core: (len([c for c in siblings(core, sysfs) & {*alike} if c < core]), core)))


@contextlib.contextmanager
def callers_cores() -> Iterator[None]:
    """Restore the core binding of the calling thread at the end of the block.

    TVM binds the thread that runs kernels, and child processes inherit the binding.
    """
    if not hasattr(os, "sched_getaffinity"):
        yield
        return
    cores = os.sched_getaffinity(0)
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def placement(cores: Iterable[int], sysfs: Path = _SYSFS) -> dict[str, Any]:
    """Return properties of cores for `ModelTiming.details`.

    These are the number ``physical_cores``, and on a hybrid processor ``core_kinds``.
    """
    cores, kinds = set(cores), core_kinds(sysfs)
    fields: dict[str, Any] = {"physical_cores": len({min(siblings(core, sysfs)) for core in cores})} if cores else {}
    named = sorted({kinds[core] for core in cores if core in kinds})
    return fields | ({"core_kinds": named} if named else {})


def siblings(core: int, sysfs: Path = _SYSFS) -> set[int]:
    """Return the logical cores on the same physical core as `core`, including `core`."""
    return {core, *parse_core_list(text_in(sysfs / f"devices/system/cpu/cpu{core}/topology/thread_siblings_list"))}


def core_kinds(sysfs: Path = _SYSFS) -> dict[int, str]:
    """Return the kind of each core of a hybrid processor, as Linux names the kind's hardware counters.

    Examples of kinds are ``cpu_core``, ``cpu_atom`` and ``armv8_cortex_a72``. The result is empty if all cores are of
    one kind, or if Linux reports no kinds.
    """
    lists = sorted((sysfs / "bus/event_source/devices").glob("*/cpus"))
    kinds = {core: file.parent.name for file in lists for core in parse_core_list(text_in(file))}
    return kinds if len(set(kinds.values())) > 1 else {}


def parse_core_list(text: str) -> set[int]:
    """Parse a list of cores in the format of Linux: ``0-3,8``."""
    cores: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        cores.update(range(int(first), int(last or first) + 1))
    return cores


def _speed(core: int, sysfs: Path) -> tuple[int, ...]:
    """Return a value that is larger for a faster core: its capacity, then its highest clock; zeros if unknown."""
    files = ("cpu_capacity", "cpufreq/cpuinfo_max_freq")
    return tuple(int(text_in(sysfs / f"devices/system/cpu/cpu{core}" / file) or 0) for file in files)


def text_in(path: str | Path) -> str:
    """Return the text in one of Linux's files, such as a file in ``/sys``; empty if the file cannot be read."""
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def unbind() -> None:
    """Let this thread, and the threads and processes that it starts later, run on all available cores.

    A thread pool may have bound the thread to a few cores.
    """
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, available_cores())


def usable_cores() -> int:
    """Return the number of cores that this process can keep busy.

    These are the cores that threads are bound to (`binding_order`), limited by the processor time of the control
    groups: additional threads would be interrupted repeatedly.
    """
    there = len(binding_order())
    quota = processor_quota()
    return there if quota is None else max(min(there, int(quota)), 1)
