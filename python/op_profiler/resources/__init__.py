"""Resources of this machine that affect kernel times: their values, and how to set them temporarily."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from op_profiler.errors import UsageError
from op_profiler.measure.measurement import RESOURCE_FIELDS, Settings, effective
from op_profiler.registry import Entry, Registry
from op_profiler.resources.resource import SYSFS, Resource, ResourceError

_HERE = "op_profiler.resources"

RESOURCES: Registry[type[Resource]] = Registry(
    "resources",
    "resource",
    f"{_HERE}.resource:Resource",
    {
        "threads": Entry(f"{_HERE}.threads:ThreadsResource", "threads of a kernel, one per core"),
        "core_set": Entry(f"{_HERE}.core_set:CoreSet", "cores that threads are bound to: 0, 0-3 or 0+2"),
        "governor": Entry(f"{_HERE}.governor:Governor", "frequency governor of the cores (cpufreq)"),
        "cache_ways": Entry(f"{_HERE}.cache_ways:CacheWays", "ways of the L3 cache that may be filled (resctrl)"),
        "numa_node": Entry(f"{_HERE}.numa_node:NumaNode", "NUMA node that memory is bound to"),
        "streams": Entry(f"{_HERE}.streams:Streams", "GPU streams that kernels run on side by side"),
        "sm_share_percent": Entry(f"{_HERE}.sm_share_percent:SmShare", "share of a GPU's SMs, percent (CUDA MPS)"),
        "gpu_clock_mhz": Entry(f"{_HERE}.gpu_clock_mhz:GpuClock", "clock of a GPU's SMs, MHz (NVML)"),
    },
)


def local_resources(root: Path = SYSFS) -> list[Resource]:
    """Return every resource that op_profiler supports, whether or not this machine has it.

    Args:
        root: where sysfs is mounted.
    """
    return [resource(root) for _, resource in RESOURCES.available()]


def resource_to_sweep(name: str, root: Path = SYSFS) -> Resource:
    """Return the resource of this name, if a collection on this machine can set it.

    Raises:
        UsageError: there is no such resource, or it cannot be set; the message gives the reason.
    """
    if name == "threads":
        raise UsageError("--sweep threads: thread counts are given with --threads 1,2,4")
    RESOURCES.check(name, "See: op-profiler devices --local")
    if name not in {field.name for field in dataclasses.fields(Settings)}:
        raise UsageError(f"--sweep {name}: this resource can only be read, because the dataset has no column for it")
    resource = RESOURCES.get(name)(root)
    reason = resource.state().reason
    if reason is not None:
        raise UsageError(f"--sweep {name} is not possible here: {reason}")
    return resource


@contextlib.contextmanager
def applied(values: Mapping[str, Any], root: Path = SYSFS) -> Iterator[None]:
    """Set each resource named in `values` to its value, for the processes that are started in the block.

    Raises:
        ResourceError: a resource cannot be set; the resources set before it are restored.
    """
    with contextlib.ExitStack() as stack:
        for name, value in values.items():
            stack.enter_context(RESOURCES.get(name)(root).applied(value))
        yield


def read_back(*, of_gpu: bool, root: Path = SYSFS) -> dict[str, Any]:
    """Return the effective value of each resource for this process, by its field in `Settings`; None if a value cannot
    be read.

    Args:
        of_gpu: whether the measured code runs on a GPU; resources of a GPU are read only then.
    """
    found: dict[str, Any] = {}
    for resource in local_resources(root):
        if resource.name in RESOURCE_FIELDS and (of_gpu or not resource.of_gpu):
            try:
                found[effective(resource.name)] = resource.read()
            except ResourceError:
                found[effective(resource.name)] = None
    return found
