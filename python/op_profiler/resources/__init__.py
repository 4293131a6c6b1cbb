"""What this machine has that decides how fast a kernel runs: how much of each, and how to set it for a while."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from op_profiler.errors import UnknownNameError, UsageError
from op_profiler.measure.measurement import RESOURCES, effective
from op_profiler.resources.cache_ways import CacheWays
from op_profiler.resources.core_set import CoreSet
from op_profiler.resources.governor import Governor
from op_profiler.resources.gpu_clock_mhz import GpuClock
from op_profiler.resources.numa_node import NumaNode
from op_profiler.resources.resource import Resource, ResourceError, State
from op_profiler.resources.sm_share_percent import SmShare
from op_profiler.resources.streams import Streams
from op_profiler.resources.threads import Threads

__all__ = ["Resource", "ResourceError", "State", "applied", "local_resources", "read_back", "resource_to_sweep"]

SYSFS = Path("/sys")


def local_resources(root: Path = SYSFS) -> list[Resource]:
    """Every resource that op_profiler knows, whether this machine has it or not.

    Args:
        root: where sysfs is mounted.
    """
    host = [Threads(), CoreSet(), Governor(root), CacheWays(root), NumaNode(root)]
    return [*host, Streams(), SmShare(), GpuClock()]


def resource_to_sweep(name: str, root: Path = SYSFS) -> Resource:
    """The resource of a name, if a collection can give it several values here.

    Raises:
        UsageError: there is none of this name, or it cannot be set; says why.
    """
    known = {resource.name: resource for resource in local_resources(root) if resource.name != "threads"}
    if name == "threads":
        raise UsageError("--sweep threads: thread counts are given with --threads 1,2,4")
    if name not in known:
        raise UnknownNameError("resource in --sweep", name, known, "See: op-profiler devices --local")
    reason = known[name].state().reason
    if reason is not None:
        raise UsageError(f"--sweep {name} is not possible here: {reason}")
    return known[name]


@contextlib.contextmanager
def applied(values: Mapping[str, Any], root: Path = SYSFS) -> Iterator[None]:
    """Give resources these values, by name, for the processes that are started in the block.

    Raises:
        ResourceError: one of them cannot be set; those before it are restored.
    """
    by_name = {resource.name: resource for resource in local_resources(root)}
    with contextlib.ExitStack() as stack:
        for name, value in values.items():
            stack.enter_context(by_name[name].applied(value))
        yield


def read_back(*, of_gpu: bool, root: Path = SYSFS) -> dict[str, Any]:
    """What this process has of the resources, by their fields in `Settings`; None where that cannot be read.

    Args:
        of_gpu: whether what is measured runs on a GPU; a GPU's resources are read only then.
    """
    found: dict[str, Any] = {}
    for resource in local_resources(root):
        if resource.name in RESOURCES and (of_gpu or not resource.of_gpu):
            try:
                found[effective(resource.name)] = resource.read()
            except ResourceError:
                found[effective(resource.name)] = None
    return found
